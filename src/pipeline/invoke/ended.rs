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
use crate::gate::{self, Ending, Record, Runner, Settled};
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
    /// Who reports.
    pub by: Runner,
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
        // Nothing is shaped, counted or remembered for a report that cannot count.
        if record.runner == caller.name && matches!(record.state, CallState::Succeeded | CallState::Failed) {
            return Ok(replay(record));
        }
        let open = self.open_calls.get(caller, call);
        let serving = self.catalogs.load();
        // The card as it was when the call was let go; after a restart, as it is now.
        let (tool, registry, args): (&Tool, _, _) = match (open.as_deref(), serving.catalog.tool(&record.tool)) {
            (Some(Prepared { tool, registry, args, .. }), _) => (tool, registry, Some(args)),
            (None, Some(tool)) => (tool, &serving.catalog.registry, None),
            (None, None) => return Ok(Answer::Refused(unknown_call())),
        };
        let turn = open.as_ref().and_then(|open| open.turn.clone());
        let ended = Ended { tool, registry, args, locale, record, instead_of: None, by: Runner::Caller };
        let (answer, step) = match reported {
            Reported::Answered(answer) => self.answered(ended, &answer, caller).await?,
            Reported::Lost => self.unanswered(ended, lost(tool), true, caller).await?,
            Reported::NotStarted => self.unanswered(ended, not_started(), false, caller).await?,
        };
        if matches!(&answer, Answer::Ended(outcome) if !outcome.replayed) {
            self.turns.ended(&turn, tool.id(), step);
        }
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
        if !rest.is_empty() {
            shaped.next_cursor = Some(self.pages.keep(caller, &ended.record.conversation, &shaped, rest));
        }
        keep_visible(&mut shaped, ended.registry, caller, &|card| self.is_in_service(card));
        let ending = ending(card, answer, &shaped);
        let (record, tool, registry, args) = (ended.record.clone(), ended.tool, ended.registry, ended.args);
        let settled = self.settle(ended, ending, json!(shaped), sizes, caller).await?;
        if matches!(&settled, Answer::Ended(outcome) if !outcome.replayed) {
            if self.settings.log_bodies {
                self.log.write(calls::body_line(record.id, answer, &json!(shaped), &self.salt));
            }
            if shaped.ok
                && let (Some(args), Body::Json(raw)) = (args, &answer.body)
                && let Err(error) = self.gate.observe(&record, caller, tool, args, registry, raw).await
            {
                // The call itself is settled; a token that is not kept is refused, and the preview can be shown again.
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "a preview's token could not be kept");
            }
        }
        Ok((settled, step))
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
        let (end, code) = (label(&ending), problem_of(&ending).map(|problem| problem.code.clone()));
        let id = ended.record.id;
        let settled = self.gate.report(caller, id, ending, ended.by).await?;
        let Settled { record, written } = match settled {
            Ok(settled) => settled,
            Err(problem) => return Ok(Answer::Refused(problem)),
        };
        // Somebody reported an end before: that one stands.
        if !written {
            return Ok(replay(record));
        }
        // An attempt after one whose end is not known may be recorded otherwise than it ended itself.
        let unknown = |record: &Record| record.state == CallState::EffectUnknown;
        let (end, code, result) = match &record.ending {
            Some(Ending::EffectUnknown(problem)) if unknown(&record) => {
                ("effect_unknown", Some(problem.code.clone()), json!({"ok": false, "error": problem}))
            }
            _ => (end, code, result),
        };
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
                code: code.as_ref().map(ProblemCode::as_str),
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
        self.leading_on(Problem {
            status,
            code: ProblemCode::EffectUnknown,
            message,
            retryable: false,
            repairable: false,
            next,
            ..problem
        })
    }
}

/// Whether an answer settles what became of the call. A gateway that fails says nothing about the tool behind it, and
/// neither does a tool that speaks of time or of others.
fn ending(card: &ToolCard, answer: &ToolAnswer, shaped: &Shaped) -> Ending {
    if shaped.ok {
        return Ending::Succeeded(json!(shaped));
    }
    let problem = shaped.error.clone().unwrap_or_else(not_started);
    if card.is_known_to_read() || !is_doubtful(answer, &problem) {
        return Ending::Failed(problem);
    }
    Ending::EffectUnknown(Problem { code: ProblemCode::EffectUnknown, retryable: false, repairable: false, ..problem })
}

/// Codes of JSON-RPC for requests that were never carried out.
const NOT_CARRIED_OUT: [i64; 4] = [-32_700, -32_600, -32_601, -32_602];

fn is_doubtful(answer: &ToolAnswer, problem: &Problem) -> bool {
    let told = match &answer.body {
        Body::Json(body) => Problem::reported(body),
        Body::Text(_) | Body::Empty => None,
    };
    let open = |status: &str| matches!(status, "timeout" | "unavailable" | "in_flight" | "unknown" | "effect_unknown");
    let by_host = answer
        .status
        .is_some_and(|status| (300..400).contains(&status) || status == 408 || (status >= 500 && status != 501));
    let rpc = match &answer.body {
        Body::Json(body) if answer.failed => body.get("code").and_then(Value::as_i64),
        Body::Json(_) | Body::Text(_) | Body::Empty => None,
    };
    let sound = answer.status.is_none_or(|status| (200..300).contains(&status));
    answer.cut
        || rpc.is_some_and(|code| !NOT_CARRIED_OUT.contains(&code))
        || if by_host {
            // Only the tool's own code, and one that settles it, speaks louder than its host.
            told.is_none_or(|told| open(&told.status) || told.status == "failed")
        } else {
            // A sound status with a body nobody understands may well be an effect.
            open(&problem.status) || (sound && !answer.failed && told.is_none())
        }
}

/// A next step leads to a tool the caller may see, or is left out.
fn keep_visible(shaped: &mut Shaped, registry: &Registry, caller: &Caller, in_service: &dyn Fn(&ToolCard) -> bool) {
    let Some(problem) = &mut shaped.error else { return };
    problem.next = problem.next.take().and_then(|mut next| {
        let named = |card: &&Arc<ToolCard>| card.id == next.tool || card.name == next.tool.as_str();
        let open = |card: &&Arc<ToolCard>| {
            let allowed = caller.belongs_to(&card.tenants) && card.scopes.iter().all(|scope| caller.holds(scope));
            allowed && in_service(card)
        };
        let id = registry.cards.values().filter(named).find(open)?.id.clone();
        next.tool = id;
        Some(next)
    });
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
