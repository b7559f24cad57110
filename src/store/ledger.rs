//! The record of guarded calls, as the gate keeps it.
//!
//! Owns: what a record holds and the few operations on it. Each of them is one transaction, and a write is on the disk
//! when it returns.
//! Does not know: which states may follow which.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Store, StoreError};
use crate::tool::SideEffect;
use crate::types::{CallId, CallState, CardHash, Scope, ToolId, UnixMs};

/// Guarded calls, the tokens of preview tools, signing keys and turns.
///
/// All methods block, on a lock or a disk: async callers use `spawn_blocking`. The tenant is part of every look-up, so
/// that nothing is found across tenants.
pub trait Ledger: Send + Sync {
    /// One call.
    fn call(&self, tenant: &str, id: CallId) -> Result<Option<CallRow>, StoreError>;

    /// The current call of a key.
    fn current(&self, tenant: &str, conversation: &str, key: &str) -> Result<Option<CallRow>, StoreError>;

    /// Compare and set; see [`Change`]. At most `max_calls` records are kept.
    fn change(&self, change: &Change<'_>, max_calls: usize, now: UnixMs) -> Result<Changed, StoreError>;

    /// One token that a preview tool handed out.
    fn token(&self, tenant: &str, target: &ToolId, digest: &str) -> Result<Option<TokenRow>, StoreError>;

    /// Keeps a token; one that is known already and not spent gets its new bindings. False: there is no room.
    fn put_token(&self, row: &TokenRow, max_tokens: usize, now: UnixMs) -> Result<bool, StoreError>;

    /// The newest key that is not older than `made_after`, made now if there is none. Keys made before `forget` go.
    fn signing_key(&self, made_after: UnixMs, forget: UnixMs, now: UnixMs) -> Result<SigningKey, StoreError>;

    /// One key by its id.
    fn signing_key_of(&self, id: &str) -> Result<Option<SigningKey>, StoreError>;

    /// Counts one step of a turn unless `limit` allows no more; how the turn stands then.
    fn step(&self, turn: &Steps<'_>) -> Result<(u32, UnixMs, bool), StoreError>;

    /// Removes at most `batch` late rows of each kind.
    fn sweep(&self, batch: usize, now: UnixMs) -> Result<Swept, StoreError>;
}

/// One call as it is kept. What is looked for has a field of its own, the rest is in `facts`.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRow {
    pub id: CallId,
    pub tenant: String,
    pub conversation: String,
    pub key: String,
    /// The one that the key means; later calls of the same key replace it.
    pub current: bool,
    pub state: CallState,
    /// Grows with each change; set by the ledger.
    pub revision: i64,
    pub updated: UnixMs,
    /// When the state ends by itself.
    pub until: UnixMs,
    /// When the record may go.
    pub keep: UnixMs,
    pub facts: CallFacts,
}

/// What else is known of a call. Arguments are kept as digests; an ending that succeeded holds the shaped result, which
/// names them as its source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallFacts {
    pub tool: ToolId,
    pub card_hash: CardHash,
    pub class: SideEffect,
    /// First call of the same intent: what was agreed to and what the tool is told is named by it.
    pub origin: String,
    pub caller: String,
    /// Who was let go last, and reports.
    pub runner: String,
    /// This server runs it, and reports for the runner.
    #[serde(default)]
    pub by_gate: bool,
    /// The end of an earlier attempt at the same intent is not known.
    #[serde(default)]
    pub unknown_before: bool,
    pub confirmed_by: Option<String>,
    /// Digest of the arguments in their canonical form, tokens left out.
    pub arguments: String,
    pub policy_version: String,
    /// Digest of the preview.
    pub preview: String,
    pub second_person: Option<Scope>,
    /// Digest of the token that counts for this call.
    pub token: Option<String>,
    /// Digest of the preview tool's arguments.
    pub previewed: Option<String>,
    pub consent_until: UnixMs,
    pub ttl_ms: u64,
    pub attempts: u32,
    pub created: UnixMs,
    pub ending: Option<Value>,
}

/// One step of one call: all of it happens or nothing.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Id and revision that have to be there still; `None`: the key must be free.
    pub before: Option<(CallId, i64)>,
    /// How the call of `before` is left where `after` is another one.
    pub retired: Option<&'a CallRow>,
    pub after: &'a CallRow,
    /// Digest of a preview tool's token to be spent for `after`.
    pub spend: Option<&'a str>,
}

/// How a [`Change`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Written; `evicted` records had to go before their time.
    Done { evicted: usize },
    /// Something else was first: look again.
    Raced,
    /// There is no room, and nothing may be forgotten.
    Full,
}

/// A token that a preview tool handed out. Its text is not kept.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenRow {
    pub tenant: String,
    pub target: ToolId,
    pub digest: String,
    pub until: UnixMs,
    pub keep: UnixMs,
    /// Origin of the call it was spent for.
    pub spent_by: Option<String>,
    pub facts: TokenFacts,
}

/// What a preview tool's token is bound to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenFacts {
    pub card_hash: CardHash,
    pub conversation: String,
    pub caller: String,
    /// Digest of the preview's arguments.
    pub previewed: String,
    /// Arguments that both tools take: a digest, or nothing where none was given.
    pub shared: BTreeMap<String, Option<String>>,
}

/// A key that signs confirm tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    pub id: String,
    pub bytes: [u8; 32],
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).field("bytes", &"***").finish()
    }
}

/// One step of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Steps<'a> {
    pub tenant: &'a str,
    pub conversation: &'a str,
    pub turn: &'a str,
    pub limit: u32,
    pub now: UnixMs,
    /// Turns that began before this are not counted on.
    pub began_after: UnixMs,
    pub keep: UnixMs,
    pub max_turns: usize,
}

/// Rows removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub calls: usize,
    pub tokens: usize,
    pub turns: usize,
}

impl Ledger for Store {
    fn call(&self, tenant: &str, id: CallId) -> Result<Option<CallRow>, StoreError> {
        self.find_call(tenant, id)
    }

    fn current(&self, tenant: &str, conversation: &str, key: &str) -> Result<Option<CallRow>, StoreError> {
        self.find_current(tenant, conversation, key)
    }

    fn change(&self, change: &Change<'_>, max_calls: usize, now: UnixMs) -> Result<Changed, StoreError> {
        self.change_call(change, max_calls, now)
    }

    fn token(&self, tenant: &str, target: &ToolId, digest: &str) -> Result<Option<TokenRow>, StoreError> {
        self.find_token(tenant, target, digest)
    }

    fn put_token(&self, row: &TokenRow, max_tokens: usize, now: UnixMs) -> Result<bool, StoreError> {
        self.write_token(row, max_tokens, now)
    }

    fn signing_key(&self, made_after: UnixMs, forget: UnixMs, now: UnixMs) -> Result<SigningKey, StoreError> {
        self.newest_signing_key(made_after, forget, now)
    }

    fn signing_key_of(&self, id: &str) -> Result<Option<SigningKey>, StoreError> {
        self.find_signing_key(id)
    }

    fn step(&self, turn: &Steps<'_>) -> Result<(u32, UnixMs, bool), StoreError> {
        self.count_step(turn)
    }

    fn sweep(&self, batch: usize, now: UnixMs) -> Result<Swept, StoreError> {
        let calls = self.sweep_calls(batch, now)?;
        let tokens = self.sweep_tokens(batch, now)?;
        Ok(Swept { calls, tokens, turns: self.sweep_turns(batch, now)? })
    }
}
