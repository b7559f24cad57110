//! Running what was let go, and who answers when the tool cannot.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::super::Router;
use super::ended::Ended;
use super::prepare::Prepared;
use super::stand_in;
use super::turn::Step;
use super::{Answer, InvokeError};
use crate::execute::{End, Job, Ran};
use crate::gate::{Cleared, Record, Runner};
use crate::types::{Caller, Deadline, Problem, ProblemCode, ToolId};

/// Tells the task of a call that nobody waits for it any more.
#[derive(Debug, Clone, Default)]
pub(super) struct Left(CancellationToken);

impl Left {
    /// Says so when it is dropped.
    pub fn guard(self) -> impl Drop {
        self.0.drop_guard()
    }
}

impl Router {
    /// Runs a call that was let go, shapes and records its end; a reading tool that cannot answer has its fallback stand
    /// in once.
    pub(super) async fn run(
        self: &Arc<Self>,
        prepared: Prepared,
        cleared: Cleared,
        caller: &Caller,
        deadline: Deadline,
        left: &Left,
    ) -> Result<Answer, InvokeError> {
        let Cleared { record, key, time_left } = cleared;
        let deadline = time_left.map_or(deadline, |left| deadline.capped(left));
        let Some(ran) = self.run_once(&prepared, key, deadline, left).await else {
            let problem = Problem::passing("cancelled", ProblemCode::Unavailable, "nobody waited for the answer");
            return Ok(self.ended(&prepared, record, End::NotStarted(problem), None, caller).await?.0);
        };
        let failed = matches!(&ran.end, End::NotStarted(_) | End::Lost(_)) || unavailable(&ran.end);
        let instead = if failed { stand_in::find(&prepared, caller, &self.executors) } else { None };
        let instead = instead.filter(|other| self.hold(&other.tool.card, &other.registry).is_none());
        let (answer, step) = self.ended(&prepared, record, ran.end, None, caller).await?;
        let Some(other) = instead else {
            self.turns.ended(&prepared.turn, prepared.tool.id(), step);
            return Ok(answer);
        };
        match self.stand_in(&prepared, other, caller, deadline, left).await? {
            Some((answer, step @ (Step::Succeeded | Step::Empty))) => {
                self.turns.ended(&prepared.turn, prepared.tool.id(), step);
                Ok(answer)
            }
            Some((_, Step::Failed)) | None => {
                self.turns.ended(&prepared.turn, prepared.tool.id(), Step::Failed);
                Ok(answer)
            }
        }
    }

    /// Runs the tool that stands in, under the same gate as any other call.
    async fn stand_in(
        &self,
        prepared: &Prepared,
        other: Prepared,
        caller: &Caller,
        deadline: Deadline,
        left: &Left,
    ) -> Result<Option<(Answer, Step)>, InvokeError> {
        let ask = stand_in::ask(&other, caller);
        let crate::gate::Verdict::Go(Cleared { record, key, .. }) = self.gate.authorize(ask).await? else {
            return Ok(None);
        };
        let Some(ran) = self.run_once(&other, key, deadline, left).await else { return Ok(None) };
        self.ended(&other, record, ran.end, Some(prepared.tool.id()), caller).await.map(Some)
    }

    /// `None` when nobody waits any more for the answer of a reading tool. What has an effect is seen through.
    async fn run_once(&self, prepared: &Prepared, key: Option<String>, deadline: Deadline, left: &Left) -> Option<Ran> {
        let card = Arc::clone(&prepared.tool.card);
        let reads = card.is_known_to_read();
        // Repetitions of a read may take what is left; those of a write have to end before the call counts as lost.
        let within = prepared.timeout + self.settings.gate.grace / 2;
        let deadline = if reads { deadline } else { Deadline::after(within) };
        let job = Job { card, arguments: prepared.args.as_map().clone(), key, deadline };
        let run = self.executors.run(job);
        if !reads {
            return Some(run.await);
        }
        tokio::select! {
            ran = run => Some(ran),
            () = left.0.cancelled() => None,
        }
    }

    async fn ended(
        &self,
        prepared: &Prepared,
        record: Record,
        end: End,
        instead_of: Option<&ToolId>,
        caller: &Caller,
    ) -> Result<(Answer, Step), InvokeError> {
        let Prepared { tool, registry, args, locale, .. } = prepared;
        let by = Runner::Gate;
        let ended = Ended { tool, registry, args: Some(args), locale: *locale, record, instead_of, by };
        match end {
            End::Answered(answer) => self.answered(ended, &answer, caller).await,
            End::NotStarted(problem) => self.unanswered(ended, problem, false, caller).await,
            End::Lost(problem) => self.unanswered(ended, problem, true, caller).await,
        }
    }
}

/// The tool's host answered, but not the tool.
fn unavailable(end: &End) -> bool {
    matches!(end, End::Answered(answer) if answer.status.is_some_and(|status| status >= 500))
}
