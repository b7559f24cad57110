//! The gate: what may run, with whose consent, and never twice.
//!
//! Owns: permissions and policy at the moment of execution, previews, confirm tokens, idempotency, the states of a call
//! and their durable record.
//! Does not know: how a tool is run (`execute`), what its answer means (`result`), transports.
//!
//! The machine: `proposed → previewed → confirmed → dispatched → succeeded | failed | effect_unknown`; before
//! `dispatched` a call may become `expired` or `cancelled`. Each step is one compare-and-set in the ledger, made
//! durable before the side effect it allows.

mod machine;

mod authorize;
mod plan;
mod settle;

mod books;
mod confirm;
mod key;
mod policy;
mod preview;
mod refusal;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Notify;

pub use policy::{Policy, PolicyError, Question, Ruling};
pub use refusal::verifier;

use crate::args::ValidArgs;
use crate::catalog::Tool;
use crate::registry::Registry;
use crate::store::{Store, StoreError};
use crate::telemetry::names;
use crate::types::{CallId, CallState, Caller, Clock, Deadline, Problem, ToolId, UnixMs};

use books::Books;
use plan::Plan;

/// How often a waiting call looks for what another process wrote.
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a confirm token counts.
    pub token_ttl: Duration,
    /// How long a settled call is replayed where its card does not say.
    pub idempotency_ttl: Duration,
    /// A call that was let go and never came back counts as `effect_unknown` this long after its timeout.
    pub grace: Duration,
    /// The key that signs tokens is replaced after this time; older ones count until their tokens are late.
    pub key_rotation: Duration,
    /// Most records of calls kept; the oldest settled ones go first.
    pub max_calls: usize,
    /// Steps and time of one turn of a conversation.
    pub max_steps: u32,
    pub turn_budget: Duration,
}

/// Who runs a call once it is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// The caller; it reports with `Complete`.
    Caller,
    /// This server (`Invoke`).
    Gate,
}

/// One call somebody wants to run.
#[derive(Clone)]
pub struct Ask {
    pub caller: Caller,
    pub tool: Tool,
    /// Of the catalog the tool is from: scopes and who grants them, other tools.
    pub registry: Arc<Registry>,
    pub args: ValidArgs,
    /// The conversation; what the user agreed to and what was done already is kept apart by it.
    pub conversation: String,
    /// The turn within it, if the caller counts turns: bounds steps and time, merges equal reads.
    pub turn: String,
    /// The caller's idempotency key; without one it is made of tool, arguments and conversation.
    pub key: Option<String>,
    /// A confirm token of ours. Tokens of preview tools stand in the arguments.
    pub token: Option<String>,
    pub runner: Runner,
    /// How long the tool may take this time; with [`Settings::grace`] it is the lease of the call.
    pub timeout: Duration,
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments and tokens are the caller's own.
        let mut ask = f.debug_struct("Ask");
        ask.field("caller", &self.caller).field("tool", self.tool.id()).field("conversation", &self.conversation);
        ask.field("turn", &self.turn).field("key", &self.key).field("runner", &self.runner).finish_non_exhaustive()
    }
}

/// What may happen with a call now.
#[derive(Debug)]
pub enum Verdict {
    /// It is let go: recorded as dispatched, to be run once, now.
    Go(Cleared),
    /// Consent is needed: show this, then come back with the token.
    Confirm(Shown),
    /// A person runs it (`execution: propose_only`).
    Propose(Shown),
    /// It was done before: this is how it ended then.
    Replay(Record),
    /// The same call is running.
    InFlight(Record),
    Refused(Problem),
}

/// Leave to run one call once.
#[derive(Debug)]
#[must_use = "a call that was let go has to be settled"]
pub struct Cleared {
    pub record: Record,
    /// The key to hand to the tool; `None` for reads. The same for each attempt at one intended call and another for
    /// each other one, whatever keys callers use in their conversations: a tool that keeps keys longer than we do, or
    /// serves several tenants, never takes a new call for an old one.
    pub key: Option<String>,
    /// What is left of the turn's time, where the caller counts turns.
    pub time_left: Option<Duration>,
}

/// What the user has to agree to.
#[derive(Clone)]
pub struct Shown {
    pub record: Record,
    pub token: String,
    pub until: UnixMs,
    pub preview: Preview,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Shown");
        shown.field("record", &self.record).field("token", &"***").field("until", &self.until);
        shown.field("preview", &self.preview).finish()
    }
}

/// What would happen, made of the real arguments. Nothing in it is shortened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    pub tool: ToolId,
    /// What the tool does, by its card.
    pub what: String,
    pub arguments: Map<String, Value>,
    /// False: cannot be undone.
    pub reversible: bool,
    /// Scope of the second person whose consent is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_person: Option<String>,
}

/// How a call ended, as it is kept for replays: already shaped, never a raw body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Succeeded(Value),
    Failed(Problem),
    /// It was sent, and nobody knows.
    EffectUnknown(Problem),
    /// Nothing was sent: consent and key are free for another try.
    NotStarted(Problem),
}

/// A call after a report on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub record: Record,
    /// False: another report came first, or nothing is left to tell.
    pub written: bool,
}

/// A call as callers see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub id: CallId,
    pub tool: ToolId,
    pub state: CallState,
    pub key: String,
    pub conversation: String,
    /// Who proposed it, and who agreed.
    pub caller: String,
    /// Who was let go, and reports.
    pub runner: String,
    /// This server runs it.
    pub by_gate: bool,
    pub confirmed_by: Option<String>,
    pub attempts: u32,
    pub created: UnixMs,
    pub updated: UnixMs,
    /// When the state ends by itself: a token's expiry, a lease's end, the end of replays.
    pub until: UnixMs,
    pub ending: Option<Ending>,
}

#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// See the module.
pub struct Gate {
    pub settings: Settings,
    pub clock: Clock,
    policy: ArcSwap<Policy>,
    books: Arc<Books>,
    /// Rings whenever a call is settled in this process.
    settled: Notify,
}

impl Gate {
    /// Effects are recorded in `store`, reads in memory: a read that is forgotten does no harm and need not wait for a
    /// disk.
    ///
    /// # Errors
    /// [`StoreError`] when no store can be had for the reads.
    pub fn new(settings: Settings, policy: Policy, store: Arc<Store>, clock: Clock) -> Result<Self, StoreError> {
        let books = Arc::new(Books::new(settings.clone(), clock, store)?);
        Ok(Self { settings, clock, policy: ArcSwap::from_pointee(policy), books, settled: Notify::new() })
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Replaces the policy: consent that was given under another one no longer counts.
    pub fn rule_by(&self, policy: Arc<Policy>) {
        self.policy.store(policy);
    }

    /// Decides what may happen with a call, and records it. Dropped before it returns, a call may have been let go
    /// that nobody runs: it counts as unknown when its time is up.
    pub async fn authorize(&self, ask: Ask) -> Result<Verdict, GateError> {
        let question = Question {
            caller: &ask.caller,
            card: &ask.tool.card,
            registry: &ask.registry,
            arguments: ask.args.as_map(),
            conversation: &ask.conversation,
            now: self.clock.now(),
        };
        let policy = self.policy.load_full();
        let ruling = policy.judge(&question);
        let class = preview::class(&ask.tool.card).as_str();
        let verdict = match Plan::of(ask, ruling, policy.version(), &self.settings) {
            Ok(plan) => self.blocking(move |books| books.decide(&plan)).await?,
            Err(problem) => Verdict::Refused(problem),
        };
        metrics::counter!(names::GATE_VERDICTS, "verdict" => verdict.name(), "class" => class).increment(1);
        Ok(verdict)
    }

    /// Agrees to a call that waits for consent, or calls it off. `tool` is the call's tool as it is served now.
    pub async fn confirm(
        &self,
        caller: &Caller,
        id: CallId,
        token: &str,
        agreed: bool,
        tool: &Tool,
    ) -> Result<Result<Record, Problem>, GateError> {
        let consent = settle::Consent {
            caller: caller.clone(),
            id,
            token: token.to_owned(),
            agreed,
            tool: tool.clone(),
            policy_version: self.policy.load().version().to_owned(),
        };
        self.blocking(move |books| books.confirm(&consent)).await
    }

    /// Records how a call ended that its caller ran. Whoever reports first is believed; a later report of a call whose
    /// end was not known settles it, also of one that this server ran.
    ///
    /// # Errors
    /// [`GateError`] when the record cannot be written.
    pub async fn settle(
        &self,
        caller: &Caller,
        id: CallId,
        ending: Ending,
    ) -> Result<Result<Record, Problem>, GateError> {
        let settled = self.report(caller, id, ending, Runner::Caller).await?;
        Ok(settled.map(|settled| settled.record))
    }

    /// [`Gate::settle`], also for calls that this server runs, and telling whether this report made the record.
    ///
    /// # Errors
    /// As [`Gate::settle`].
    pub async fn report(
        &self,
        caller: &Caller,
        id: CallId,
        ending: Ending,
        by: Runner,
    ) -> Result<Result<Settled, Problem>, GateError> {
        let name = ending.name();
        let report = settle::Report { caller: caller.clone(), id, ending, by };
        let settled = self.blocking(move |books| books.settle(&report)).await?;
        if settled.is_ok() {
            metrics::counter!(names::GATE_ENDINGS, "ending" => name).increment(1);
            self.settled.notify_waiters();
        }
        Ok(settled.map(|(record, written)| Settled { record, written }))
    }

    /// The truth about one call of the caller's tenant.
    pub async fn lookup(&self, caller: &Caller, id: CallId) -> Result<Option<Record>, GateError> {
        let tenant = caller.tenant.clone();
        self.blocking(move |books| books.lookup(&tenant, id)).await
    }

    /// The same by idempotency key: the call that the key means now, or meant last.
    pub async fn lookup_key(
        &self,
        caller: &Caller,
        conversation: &str,
        key: &str,
    ) -> Result<Option<Record>, GateError> {
        let (tenant, conversation, key) = (caller.tenant.clone(), conversation.to_owned(), key.to_owned());
        self.blocking(move |books| books.lookup_key(&tenant, &conversation, &key)).await
    }

    /// Keeps the tokens that the result of a preview tool hands out, so that they and no others count. `result` is the
    /// raw body.
    pub async fn observe(
        &self,
        record: &Record,
        caller: &Caller,
        tool: &Tool,
        args: &ValidArgs,
        registry: &Registry,
        result: &Value,
    ) -> Result<(), GateError> {
        let preview = tokens::Previewed {
            tool,
            arguments: args.as_map(),
            tenant: &caller.tenant,
            caller: &caller.name,
            conversation: &record.conversation,
        };
        let rows = tokens::in_result(&preview, registry, result, &self.settings, self.clock.now());
        if rows.is_empty() {
            return Ok(());
        }
        self.blocking(move |books| books.keep_tokens(&rows)).await
    }

    /// Waits until a call that is running is settled, at most until `until`; the record as it stands then.
    pub async fn wait(&self, caller: &Caller, id: CallId, until: Deadline) -> Result<Option<Record>, GateError> {
        loop {
            // Listening begins before looking: a report in between is heard.
            let ring = self.settled.notified();
            tokio::pin!(ring);
            ring.as_mut().enable();
            let record = self.lookup(caller, id).await?;
            let runs = record.as_ref().is_some_and(|record| record.state == CallState::Dispatched);
            if !runs || until.has_passed() {
                return Ok(record);
            }
            tokio::select! {
                () = &mut ring => {}
                () = tokio::time::sleep(POLL.min(until.remaining())) => {}
            }
        }
    }

    /// Removes what is late. Returns how many records went.
    pub async fn sweep(&self) -> Result<usize, GateError> {
        let mut removed = 0;
        loop {
            // One short transaction at a time: others get their turn in between.
            let (calls, done) = self.blocking(Books::sweep).await?;
            removed += calls;
            if done {
                return Ok(removed);
            }
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Books) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, GateError> {
        let books = Arc::clone(&self.books);
        Ok(tokio::task::spawn_blocking(move || work(&books)).await??)
    }
}

impl Verdict {
    fn name(&self) -> &'static str {
        match self {
            Self::Go(_) => "go",
            Self::Confirm(_) => "confirm",
            Self::Propose(_) => "propose",
            Self::Replay(_) => "replay",
            Self::InFlight(_) => "in_flight",
            Self::Refused(_) => "refused",
        }
    }
}

impl Ending {
    fn name(&self) -> &'static str {
        match self {
            Self::Succeeded(_) => "succeeded",
            Self::Failed(_) => "failed",
            Self::EffectUnknown(_) => "effect_unknown",
            Self::NotStarted(_) => "not_started",
        }
    }
}
