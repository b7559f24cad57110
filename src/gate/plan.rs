//! One request made ready to be decided: everything that can be told without looking at records.
//!
//! Owns: bounds of a request, its key, whether consent is needed and whose.
//! Does not know: what became of earlier calls.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;

use super::confirm::Binding;
use super::{Ask, Preview, Ruling, Runner, Settings, key, preview, refusal, tokens};
use crate::catalog::Tool;
use crate::registry::Registry;
use crate::store::CallRow;
use crate::tool::{ConfirmedBy, Execution, SideEffect};
use crate::types::{Caller, Problem, Scope, UnixMs};

/// Longest name of a conversation or turn, and longest key, in bytes.
const LONGEST_NAME: usize = 512;
const LONGEST_KEY: usize = 255;

pub(super) struct Plan {
    pub caller: Caller,
    pub tool: Tool,
    pub registry: Arc<Registry>,
    pub arguments: Map<String, serde_json::Value>,
    pub conversation: String,
    pub turn: String,
    /// `None`: nothing is merged with this call.
    pub key: Option<String>,
    /// The caller chose the key.
    pub given: bool,
    /// Recorded for good, with a key: everything but plain reads.
    pub guarded: bool,
    pub class: SideEffect,
    /// A token of ours is needed.
    pub consent: bool,
    pub propose: bool,
    pub second_person: Option<Scope>,
    pub token: Option<String>,
    pub runner: Runner,
    /// Digest of the arguments without tokens.
    pub digest: String,
    pub preview: Preview,
    pub preview_digest: String,
    pub policy_version: String,
    pub lease: Duration,
    pub ttl: Duration,
}

impl Plan {
    #[allow(clippy::result_large_err)] // The error is the answer.
    pub(super) fn of(ask: Ask, ruling: Ruling, policy_version: &str, settings: &Settings) -> Result<Self, Problem> {
        let (demanded, second_person) = match ruling {
            Ruling::Deny(problem) => return Err(problem),
            Ruling::Allow => (false, None),
            Ruling::Confirm { second_person } => (true, second_person),
        };
        let card = &ask.tool.card;
        let class = preview::class(card);
        let by_preview = tokens::token_param(card).is_some();
        let by_gate = match &card.confirmation {
            Some(confirmation) => confirmation.by == ConfirmedBy::Gate || !by_preview,
            None => class == SideEffect::Destructive,
        };
        // The token of a preview tool is consent already; that of a second person comes on top of it.
        let propose = card.execution == Execution::ProposeOnly;
        let consent = propose || by_gate || (demanded && !by_preview) || second_person.is_some();
        let guarded = class != SideEffect::Read || consent || by_preview;
        check(&ask, guarded)?;

        let arguments = ask.args.as_map().clone();
        let (canonical, digest) = tokens::without_token(&ask.tool, &arguments);
        let preview = Preview::of(card, &arguments, second_person.as_ref());
        let given = guarded && ask.key.is_some();
        let key = match ask.key {
            Some(key) if guarded => Some(key),
            _ if guarded => Some(key::derived(&card.id, &digest, &ask.conversation, "")),
            _ if ask.turn.is_empty() || ask.conversation.is_empty() => None,
            // What a read shows may depend on who looks.
            _ => Some(key::derived(&card.id, &digest, &ask.caller.name, &ask.turn)),
        };
        Ok(Self {
            key,
            given,
            guarded,
            class,
            consent,
            propose,
            second_person,
            digest,
            preview_digest: preview.digest(&canonical),
            preview,
            policy_version: policy_version.to_owned(),
            lease: ask.timeout.saturating_add(settings.grace),
            ttl: card.idempotency_ttl.unwrap_or(settings.idempotency_ttl),
            arguments,
            caller: ask.caller,
            registry: ask.registry,
            conversation: ask.conversation,
            turn: ask.turn,
            token: ask.token,
            runner: ask.runner,
            tool: ask.tool,
        })
    }

    /// What a token for this request would be bound to.
    pub(super) fn binding<'a>(&'a self, row: &'a CallRow) -> Binding<'a> {
        Binding {
            origin: &row.facts.origin,
            tenant: &self.caller.tenant,
            caller: &self.caller.name,
            conversation: &self.conversation,
            key: self.key.as_deref().unwrap_or(""),
            tool: self.tool.id().as_str(),
            card_hash: &self.tool.hash.0,
            arguments: &self.digest,
            policy_version: &self.policy_version,
            preview: &self.preview_digest,
            until: row.facts.consent_until,
        }
    }

    pub(super) fn refuse_token(&self, why: &str) -> Problem {
        refusal::token(&self.tool.card, &self.registry, why)
    }
}

/// What the token of a recorded call is bound to.
pub(super) fn binding(row: &CallRow) -> Binding<'_> {
    Binding {
        origin: &row.facts.origin,
        tenant: &row.tenant,
        caller: &row.facts.caller,
        conversation: &row.conversation,
        key: &row.key,
        tool: row.facts.tool.as_str(),
        card_hash: &row.facts.card_hash.0,
        arguments: &row.facts.arguments,
        policy_version: &row.facts.policy_version,
        preview: &row.facts.preview,
        until: row.facts.consent_until,
    }
}

/// Which binding of a token that is ours differs from the request at hand. Told only after it was refused, and only to
/// who holds a true token.
pub(super) fn difference(given: &Binding<'_>, asked: &Binding<'_>, until: UnixMs, now: UnixMs) -> &'static str {
    if given.caller != asked.caller {
        "the token was given to another caller"
    } else if given.conversation != asked.conversation {
        "the token belongs to another conversation"
    } else if given.tool != asked.tool {
        "the token was given for another tool"
    } else if given.arguments != asked.arguments {
        "the arguments differ from those that were shown"
    } else if given.key != asked.key {
        "the idempotency key differs from that of the preview"
    } else if given.card_hash != asked.card_hash {
        "the tool has changed since its preview"
    } else if given.policy_version != asked.policy_version {
        "the policy has changed since the preview"
    } else if given.preview != asked.preview {
        "what would be shown now differs from what was shown"
    } else if until <= now {
        "the token is late"
    } else {
        "the token no longer counts: it was spent, called off, or replaced by a newer preview"
    }
}

#[allow(clippy::result_large_err)] // The error is the answer.
fn check(ask: &Ask, guarded: bool) -> Result<(), Problem> {
    if guarded && ask.conversation.is_empty() {
        let expected = "the conversation, for everything but plain reads: consent and keys count within it";
        return Err(refusal::bad_request("session_id", expected));
    }
    // Without its conversation a turn would be everybody's.
    if ask.conversation.is_empty() && !ask.turn.is_empty() {
        return Err(refusal::bad_request("session_id", "the conversation that the turn belongs to"));
    }
    for (field, text) in [("session_id", &ask.conversation), ("turn_id", &ask.turn)] {
        if text.len() > LONGEST_NAME {
            return Err(refusal::bad_request(field, &format!("at most {LONGEST_NAME} bytes")));
        }
    }
    let fits = |key: &String| (1..=LONGEST_KEY).contains(&key.len()) && !key.chars().any(char::is_control);
    if !ask.key.as_ref().is_none_or(fits) {
        let expected = format!("1 to {LONGEST_KEY} bytes without control characters");
        return Err(refusal::bad_request("idempotency_key", &expected));
    }
    Ok(())
}
