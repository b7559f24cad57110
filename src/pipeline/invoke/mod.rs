//! The guarded call: permission, consent, one run, a clean result, in this order.
//!
//! Owns: [`Wish`] and what may follow from it, the order gate → executor → result → record, who may stand in for a tool
//! that cannot answer, the limits of a turn.
//! Does not know: how a decision to call was reached; a call need not come from [`Router::route`].

mod ended;
mod page;
mod prepare;
mod run;
mod stand_in;
mod turn;

use std::sync::Arc;

use serde_json::Value;
use tracing::Instrument;

pub use ended::Reported;
pub(super) use page::Pages;
pub(super) use prepare::OpenCalls;
pub(super) use turn::Turns;

use prepare::Prepared;

use super::Router;
use crate::catalog::Tool;
use crate::decision::HandoffReason;
use crate::gate::{Ending, GateError, Record, Runner, Shown, Verdict};
use crate::result::Sizes;
use crate::telemetry::names;
use crate::types::{CallId, Caller, Deadline, Problem, ProblemCode, ToolId};

/// One call somebody wants to run.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Name or id of the tool.
    pub tool: String,
    /// As a model or a caller wrote them; validated here.
    pub arguments: Value,
    pub conversation: String,
    pub turn: String,
    pub key: Option<String>,
    pub token: Option<String>,
    /// Do not wait for the end of the same call that is running.
    pub no_wait: bool,
    /// `zh` or `en`.
    pub locale: Locale,
}

/// Language of notices and suggestions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Locale {
    #[default]
    English,
    Chinese,
}

impl Locale {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh",
        }
    }
}

/// What follows from a wish.
#[derive(Debug)]
pub enum Answer {
    /// The caller runs it now, and reports.
    Go(Leave),
    Confirm(Shown),
    Propose(Shown),
    Ended(Box<Outcome>),
    InFlight(Record),
    Refused(Problem),
    Handoff {
        reason: HandoffReason,
        message: String,
    },
}

/// Leave for the caller to run one call once.
#[derive(Debug)]
pub struct Leave {
    pub call: CallId,
    pub key: Option<String>,
    pub timeout: std::time::Duration,
    pub arguments: Value,
}

/// How a call ended.
#[derive(Debug)]
pub struct Outcome {
    pub record: Record,
    /// The shaped result, its error included.
    pub result: Value,
    pub replayed: bool,
    /// The tool that stood in.
    pub answered_by: Option<ToolId>,
    pub sizes: Sizes,
}

/// Nothing was decided.
#[derive(Debug, thiserror::Error)]
pub enum InvokeError {
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("too many requests are waiting")]
    Overloaded,
    #[error("interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
}

impl Router {
    /// Asks for leave to run a call; the caller runs it.
    ///
    /// # Errors
    /// [`InvokeError`] when nothing could be decided; refusals are answers.
    pub async fn authorize(&self, wish: Wish, caller: &Caller, deadline: Deadline) -> Result<Answer, InvokeError> {
        let _place = self.in_flight.try_acquire().map_err(|_| InvokeError::Overloaded)?;
        let answer = self.ask(&wish, caller, deadline, Runner::Caller).await?;
        Ok(match answer {
            Next::Run { prepared, cleared } => {
                let (call, key) = (cleared.record.id, cleared.key);
                let timeout = prepared.timeout;
                let arguments = Value::Object(prepared.args.as_map().clone());
                self.open_calls.keep(caller, call, prepared);
                Answer::Go(Leave { call, key, timeout, arguments })
            }
            Next::Answer(answer) => answer,
        })
    }

    /// Asks for leave and runs the call. What was sent is seen through and recorded, whether or not anybody waits for
    /// this future; only reads are called off with it.
    ///
    /// # Errors
    /// As [`Router::authorize`].
    pub async fn invoke(
        self: &Arc<Self>,
        wish: Wish,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Answer, InvokeError> {
        let place = Arc::clone(&self.in_flight).try_acquire_owned().map_err(|_| InvokeError::Overloaded)?;
        let (router, caller) = (Arc::clone(self), caller.clone());
        let left = run::Left::default();
        let watched = left.clone();
        let work = async move {
            let _place = place;
            match router.ask(&wish, &caller, deadline, Runner::Gate).await? {
                Next::Run { prepared, cleared } => router.run(prepared, cleared, &caller, deadline, &watched).await,
                Next::Answer(answer) => Ok(answer),
            }
        };
        let task = self.calls.spawn(work.in_current_span());
        let _leaving = left.guard();
        task.await?
    }

    /// Agrees to a call that waits for consent, or calls it off.
    ///
    /// # Errors
    /// As [`Router::authorize`].
    pub async fn confirm(
        &self,
        call: CallId,
        token: &str,
        agreed: bool,
        caller: &Caller,
    ) -> Result<Result<Record, Problem>, InvokeError> {
        let Some(record) = self.gate.lookup(caller, call).await? else { return Ok(Err(unknown_call())) };
        let serving = self.catalogs.load();
        // A tool that is gone cannot be agreed to.
        let Some(tool) = serving.catalog.tool(&record.tool) else { return Ok(Err(unknown_call())) };
        // What is disabled can still be called off.
        if let Some(hold) = self.hold(&tool.card, &serving.catalog.registry).filter(|_| agreed) {
            let tell = tool.card.scopes.iter().all(|scope| caller.holds(scope));
            return Ok(Err(self.refusal(tool.id(), &hold, tell, false)));
        }
        Ok(self.gate.confirm(caller, call, token, agreed, tool).await?)
    }

    /// The truth about a call, by its id or by conversation and key; `None` for one of another tenant, too.
    ///
    /// # Errors
    /// As [`Router::authorize`].
    pub async fn lookup(&self, which: Which<'_>, caller: &Caller) -> Result<Option<Record>, InvokeError> {
        let record = match which {
            Which::Call(call) => self.gate.lookup(caller, call).await?,
            Which::Key { conversation, key } => self.gate.lookup_key(caller, conversation, key).await?,
        };
        Ok(record.map(|record| self.as_seen_by(caller, record)))
    }

    /// What came back is for those who took part, and for those who may call the tool; others see the state alone.
    fn as_seen_by(&self, caller: &Caller, record: Record) -> Record {
        let took_part = [Some(&record.caller), Some(&record.runner), record.confirmed_by.as_ref()];
        let took_part = took_part.into_iter().flatten().any(|name| *name == caller.name);
        let serving = self.catalogs.load();
        let may = |tool: &Tool| {
            caller.belongs_to(&tool.card.tenants) && tool.card.scopes.iter().all(|scope| caller.holds(scope))
        };
        if took_part || serving.catalog.tool(&record.tool).is_some_and(may) {
            return record;
        }
        Record { ending: None, ..record }
    }

    /// Waits until every call that is being run has ended; further ones are still accepted.
    pub async fn calls_ended(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// Removes what is late: records of calls, brakes. A fault is logged: the next sweep tries again.
    pub async fn sweep(self: &Arc<Self>) {
        let router = Arc::clone(self);
        match tokio::task::spawn_blocking(move || router.brakes.sweep(&router.store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "brakes cannot be swept"),
            Err(error) => tracing::error!(%error, "brakes cannot be swept"),
        }
        match self.gate.sweep().await {
            Ok(0) => {}
            Ok(swept) => {
                metrics::counter!(names::GATE_SWEPT).increment(swept as u64);
                tracing::debug!(swept, "records of calls removed");
            }
            Err(error) => tracing::error!(%error, "records of calls cannot be swept"),
        }
    }

    /// What the gate says to a wish, the limits of its turn first.
    async fn ask(&self, wish: &Wish, caller: &Caller, deadline: Deadline, runner: Runner) -> Result<Next, InvokeError> {
        let prepared = match self.prepare(wish, caller) {
            Ok(prepared) => prepared,
            Err(problem) => return Ok(Next::Answer(Answer::Refused(self.leading_on(*problem)))),
        };
        if let Some(answer) = self.turn_over(&prepared, wish.locale) {
            return Ok(Next::Answer(answer));
        }
        if runner == Runner::Gate
            && !prepared.is_for_a_person()
            && let Err(problem) = self.executors.runs(&prepared.tool.card)
        {
            return Ok(Next::Answer(Answer::Refused(problem)));
        }
        let verdict = self.gate.authorize(prepared.ask(wish, caller, runner)).await?;
        Ok(match verdict {
            Verdict::Go(cleared) => Next::Run { prepared, cleared },
            Verdict::Confirm(shown) => Next::Answer(Answer::Confirm(shown)),
            Verdict::Propose(shown) => Next::Answer(Answer::Propose(shown)),
            Verdict::Replay(record) => Next::Answer(replay(record)),
            Verdict::InFlight(record) if wish.no_wait => Next::Answer(Answer::InFlight(record)),
            Verdict::InFlight(record) => Next::Answer(self.joined(record, caller, deadline).await?),
            Verdict::Refused(problem) => Next::Answer(Answer::Refused(self.leading_on(problem))),
        })
    }

    /// The problem without a next step that leads to a tool which is out of service.
    fn leading_on(&self, mut problem: Problem) -> Problem {
        let serving = self.catalogs.load();
        let goes = |id: &ToolId| serving.catalog.tool(id).is_none_or(|tool| self.is_in_service(&tool.card));
        problem.next = problem.next.filter(|next| goes(&next.tool));
        problem
    }

    /// The end of the same call that is running, or that it still runs at the deadline.
    async fn joined(&self, record: Record, caller: &Caller, deadline: Deadline) -> Result<Answer, InvokeError> {
        let now = self.gate.wait(caller, record.id, deadline).await?;
        Ok(match now {
            Some(record) if record.ending.is_some() => replay(record),
            Some(record) => Answer::InFlight(record),
            None => Answer::InFlight(record),
        })
    }

    /// A turn that is over its limits, or in which two calls failed in a row, runs nothing more.
    fn turn_over(&self, prepared: &Prepared, locale: Locale) -> Option<Answer> {
        match self.turns.check(&prepared.turn, prepared.tool.id())? {
            turn::Over::Problem(problem) => Some(Answer::Refused(*problem)),
            turn::Over::Fuse => {
                let reason = HandoffReason::FuseBlown;
                let sentences = self.settings.handoff.by_locale(reason);
                let message = sentences.get(locale.as_str()).or_else(|| sentences.get("en"));
                Some(Answer::Handoff { reason, message: message.cloned().unwrap_or_default() })
            }
        }
    }
}

/// Which call is looked up.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    Call(CallId),
    Key { conversation: &'a str, key: &'a str },
}

enum Next {
    Run { prepared: Prepared, cleared: crate::gate::Cleared },
    Answer(Answer),
}

/// The first end of a call once more.
fn replay(record: Record) -> Answer {
    let result = match &record.ending {
        Some(Ending::Succeeded(result)) => result.clone(),
        Some(Ending::Failed(problem) | Ending::EffectUnknown(problem) | Ending::NotStarted(problem)) => {
            serde_json::json!({"ok": false, "error": problem})
        }
        None => Value::Null,
    };
    Answer::Ended(Box::new(Outcome { record, result, replayed: true, answered_by: None, sizes: Sizes::default() }))
}

/// Also said of a call of another tenant.
pub(super) fn unknown_call() -> Problem {
    Problem::refused("not_found", ProblemCode::InvalidRequest, "there is no such call")
}
