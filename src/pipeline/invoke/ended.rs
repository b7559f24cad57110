//! How a call ended: from an answer to the record and to what the model sees.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::Router;
use super::prepare::Prepared;
use super::turn::Step;
use super::{Answer, InvokeError, Locale, Outcome, replay, unknown_call};
use crate::args::ValidArgs;
use crate::catalog::Tool;
use crate::decision::calls::{self, EndedCall};
use crate::gate::{self, Ending, Record};
use crate::registry::Registry;
use crate::result::{self, Context, Shape, Shaped, Sizes};
use crate::tool::ToolCard;
use crate::types::{Body, CallId, CallState, Caller, Problem, ProblemCode, ToolAnswer, ToolId};

/// What the caller reports of a call it ran.
#[derive(Debug)]
pub enum Reported {
    Answered(ToolAnswer),
    /// No answer came.
    Lost,
    /// Nothing was sent.
    NotStarted,
}

/// One call that ended, with what is needed to shape and record it.
pub(super) struct Ended<'a> {
    pub tool: &'a Tool,
    pub registry: &'a Arc<Registry>,
    /// `None` after a restart.
    pub args: Option<&'a ValidArgs>,
    pub locale: Locale,
    pub record: Record,
    pub instead_of: Option<&'a ToolId>,
}

impl Router {
    /// Records how a call ended that its caller ran.
    ///
    /// # Errors
    /// As [`Router::authorize`].
    pub async fn complete(
        &self,
        call: CallId,
        reported: Reported,
        locale: Locale,
        caller: &Caller,
    ) -> Result<Answer, InvokeError> {
        let Some(record) = self.gate.lookup(caller, call).await? else { return Ok(Answer::Refused(unknown_call())) };
        let open = self.open_calls.get(caller, call);
        let serving = self.catalogs.load();
        // The card as it was when the call was let go; after a restart, as it is now.
        let (tool, registry, args): (&Tool, _, _) = match (open.as_deref(), serving.catalog.tool(&record.tool)) {
            (Some(Prepared { tool, registry, args, .. }), _) => (tool, registry, Some(args)),
            (None, Some(tool)) => (tool, &serving.catalog.registry, None),
            (None, None) => return Ok(Answer::Refused(unknown_call())),
        };
        let turn = open.as_ref().and_then(|open| open.turn.clone());
        let ended = Ended { tool, registry, args, locale, record, instead_of: None };
        let (answer, step) = match reported {
            Reported::Answered(answer) => self.answered(ended, &answer, caller).await?,
            Reported::Lost => self.unanswered(ended, lost(tool), true, caller).await?,
            Reported::NotStarted => self.unanswered(ended, not_started(), false, caller).await?,
        };
        self.turns.ended(&turn, tool.id(), step);
        Ok(answer)
    }

    /// An answer came: it is shaped, its tokens are kept, the call is settled.
    pub(super) async fn answered(
        &self,
        ended: Ended<'_>,
        answer: &ToolAnswer,
        caller: &Caller,
    ) -> Result<(Answer, Step), InvokeError> {
        let none = Map::new();
        let card = &ended.tool.card;
        let context = Context {
            card,
            arguments: ended.args.map_or(&none, ValidArgs::as_map),
            fetched_at: self.gate.clock.now(),
            locale: ended.locale.as_str(),
        };
        let Shape { mut shaped, sizes, rest } = result::shape(answer, &context, &self.settings.result);
        shaped.source.instead_of = ended.instead_of.map(ToString::to_string);
        let step = match (shaped.ok, is_empty(&shaped)) {
            (true, true) => Step::Empty,
            (true, false) => Step::Succeeded,
            (false, _) => Step::Failed,
        };
        if shaped.ok
            && let (Some(args), Body::Json(raw)) = (ended.args, &answer.body)
        {
            self.gate.observe(&ended.record, caller, ended.tool, args, ended.registry, raw).await?;
        }
        if !rest.is_empty() {
            shaped.next_cursor = Some(self.pages.keep(caller, &ended.record.conversation, &shaped, rest));
        }
        let ending = ending(card, answer, &shaped);
        if self.settings.log_bodies {
            self.log.write(calls::body_line(ended.record.id, answer, &json!(shaped), &self.salt));
        }
        Ok((self.settle(ended, ending, json!(shaped), sizes, caller).await?, step))
    }

    /// No answer came: `sent` says whether the tool may have been reached.
    pub(super) async fn unanswered(
        &self,
        ended: Ended<'_>,
        problem: Problem,
        sent: bool,
        caller: &Caller,
    ) -> Result<(Answer, Step), InvokeError> {
        let ending = match (sent, ended.tool.card.is_known_to_read()) {
            (false, _) => Ending::NotStarted(problem),
            (true, true) => Ending::Failed(problem),
            (true, false) => Ending::EffectUnknown(self.verify(ended.tool, problem, caller)),
        };
        let result = json!({"ok": false, "error": problem_of(&ending)});
        Ok((self.settle(ended, ending, result, Sizes::default(), caller).await?, Step::Failed))
    }

    async fn settle(
        &self,
        ended: Ended<'_>,
        ending: Ending,
        result: Value,
        sizes: Sizes,
        caller: &Caller,
    ) -> Result<Answer, InvokeError> {
        let end = label(&ending);
        let id = ended.record.id;
        let settled = self.gate.settle(caller, id, ending.clone()).await?;
        let record = match settled {
            Ok(record) => record,
            Err(problem) => return Ok(Answer::Refused(problem)),
        };
        // Somebody reported another end before: that one stands.
        if record.ending.as_ref().is_some_and(|first| *first != ending) {
            return Ok(replay(record));
        }
        let line = calls::call_line(
            &EndedCall {
                call: id,
                tenant: &caller.tenant,
                tool: ended.tool.id().as_str(),
                tool_version: &ended.tool.card.version,
                end,
                attempts: record.attempts,
                arguments: ended.args.map(ValidArgs::as_map),
                conversation: &record.conversation,
                code: problem_of(&ending).map(|problem| problem.code.as_str()),
                raw_chars: sizes.raw_chars,
                shaped_chars: sizes.shaped_chars,
                rows: sizes.rows,
                dropped_rows: sizes.dropped_rows,
                dropped_fields: sizes.dropped_fields,
            },
            &self.salt,
        );
        self.log.write(line);
        let answered_by = ended.instead_of.is_some().then(|| ended.tool.id().clone());
        Ok(Answer::Ended(Box::new(Outcome { record, result, replayed: false, answered_by, sizes })))
    }

    /// Adds to a problem which reading tool can tell whether the call took effect.
    fn verify(&self, tool: &Tool, problem: Problem, caller: &Caller) -> Problem {
        let next = gate::verifier(&tool.card, &self.catalogs.load().catalog.registry, caller);
        let message = format!("{}; it may have taken effect: do not repeat it before that is known", problem.message);
        let status = "effect_unknown".into();
        Problem {
            status,
            code: ProblemCode::EffectUnknown,
            message,
            retryable: false,
            repairable: false,
            next,
            ..problem
        }
    }
}

/// Whether an answer settles what became of the call. A gateway that fails says nothing about the tool behind it.
fn ending(card: &ToolCard, answer: &ToolAnswer, shaped: &Shaped) -> Ending {
    match &shaped.error {
        None if shaped.ok => Ending::Succeeded(json!(shaped)),
        error => {
            let problem = error.clone().unwrap_or_else(not_started);
            let tells = matches!(&answer.body, Body::Json(body) if Problem::reported(body).is_some());
            let doubtful = matches!(answer.status, Some(500 | 502 | 504)) && !tells || answer.cut;
            // A sound status with a body nobody understands may well be an effect.
            let odd = !answer.failed && !tells && answer.status.is_none_or(|status| (200..300).contains(&status));
            if !card.is_known_to_read() && (doubtful || odd) {
                Ending::EffectUnknown(Problem { code: ProblemCode::EffectUnknown, retryable: false, ..problem })
            } else {
                Ending::Failed(problem)
            }
        }
    }
}

fn problem_of(ending: &Ending) -> Option<&Problem> {
    match ending {
        Ending::Succeeded(_) => None,
        Ending::Failed(problem) | Ending::EffectUnknown(problem) | Ending::NotStarted(problem) => Some(problem),
    }
}

fn label(ending: &Ending) -> &'static str {
    match ending {
        Ending::Succeeded(_) => CallState::Succeeded.as_str(),
        Ending::Failed(_) => CallState::Failed.as_str(),
        Ending::EffectUnknown(_) => CallState::EffectUnknown.as_str(),
        Ending::NotStarted(_) => "not_started",
    }
}

fn is_empty(shaped: &Shaped) -> bool {
    shaped.data.as_ref().and_then(Value::as_array).is_some_and(Vec::is_empty)
}

fn lost(tool: &Tool) -> Problem {
    let suggestion = Some("say that the answer did not come; do not guess it".to_owned());
    let message = format!("`{}` gave no answer", tool.id());
    Problem { suggestion, ..Problem::passing("timeout", ProblemCode::Timeout, message) }
}

fn not_started() -> Problem {
    Problem::passing("unavailable", ProblemCode::Unavailable, "the call was not sent")
}
