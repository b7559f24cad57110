//! `route()`: the stages in order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::pending::Pending;
use super::{Ranking, RouteError, RouteRequest, Router};
use crate::cache::{Key, KeyParts, Lookup};
use crate::catalog::Catalog;
use crate::decide::llm::LlmError;
use crate::decide::{self, Answer, Request, Verdict, local};
use crate::decision::{
    ClarifyOutcome, DecidedBy, Decision, Degraded, NoToolReason, Outcome, PlannedCall, Stage, Timings, TokenUse, Trace,
    log,
};
use crate::embed::EmbedError;
use crate::retrieve::{self, Eligible};
use crate::telemetry::names;
use crate::text::{self, Language, Query, TextError};
use crate::tool::canonical_json;
use crate::types::{Caller, Candidate, Confidence, Deadline, DecisionId, FieldProblem, Problem, Turn, Vector};

/// Earlier turns that are read; older ones are left out and the decision says so.
const MAX_TURNS: usize = 50;
/// Most calls one answer may hold, whatever the request asks for.
const MAX_CALLS: usize = 8;
/// From this many tools on ranking is long enough to leave the threads that serve requests.
const RANK_ELSEWHERE_FROM: usize = 500;
/// Confidence of a call whose last missing values came as the answer to our own question.
const RESUMED_CONFIDENCE: f32 = 0.9;
/// How far ahead, in fused score, another tool must be to count as a new subject.
const NEW_SUBJECT_MARGIN: f32 = 1.0;

/// One request on its way down: what the stages share.
struct Work<'a> {
    id: DecisionId,
    request: &'a RouteRequest,
    caller: &'a Caller,
    catalog: Arc<Catalog>,
    query: Query,
    history: &'a [Turn],
    eligible: Eligible,
    deadline: Deadline,
    degraded: BTreeSet<Degraded>,
}

impl Router {
    /// Decides. Cancel safe: dropping the future withdraws the request.
    ///
    /// # Errors
    /// [`RouteError`] when no decision was made; all four outcomes are `Ok`.
    #[tracing::instrument(skip_all, fields(trace_id))]
    pub async fn route(
        &self,
        request: RouteRequest,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Decision, RouteError> {
        let _place = self.in_flight.try_acquire().map_err(|_| RouteError::Overloaded)?;
        let deadline = deadline.capped(self.settings.deadline);
        let decided = tokio::time::timeout_at(deadline.instant(), self.decide(&request, caller, deadline)).await;
        decided.map_err(|_| RouteError::Deadline)?
    }

    /// Ranks every eligible tool without deciding: what `eval --stage prefilter` scores.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn rank(
        &self,
        request: &RouteRequest,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Ranking, RouteError> {
        self.rank_top(request, caller, deadline, usize::MAX).await
    }

    /// [`Router::rank`], but only the best `top` tools.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn rank_top(
        &self,
        request: &RouteRequest,
        caller: &Caller,
        deadline: Deadline,
        top: usize,
    ) -> Result<Ranking, RouteError> {
        let mut work = self.begin(request, caller, deadline)?;
        let mut timings = Timings::new();
        let candidates = self.prefilter(&mut work, &mut timings, top).await?;
        let shortlist = retrieve::shortlist_len(&candidates, &self.settings.retrieve);
        Ok(Ranking { candidates, shortlist })
    }

    async fn decide(
        &self,
        request: &RouteRequest,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Decision, RouteError> {
        let started = Instant::now();
        let work = self.begin(request, caller, deadline)?;
        let (id, query, history_turns) = (work.id, work.query.clone(), work.history.len());
        tracing::Span::current().record("trace_id", trace_id(request, id));
        let normalised = started.elapsed();
        let mut decision = if work.eligible.is_empty() {
            nothing_eligible(&work)
        } else if let Some(key) = self.cache_key(&work) {
            let look_up = Instant::now();
            let catalog = Arc::clone(&work.catalog);
            let (shared, lookup) = self.cache.get_or_make(key, self.make(work), is_own).await?;
            let mut decision = Arc::unwrap_or_clone(shared);
            apply_lookup(&mut decision, lookup, look_up);
            // The same tools may be served at a later version by now.
            decision.catalog_version = catalog.version.to_string();
            decision.index = catalog.index_kind();
            decision
        } else {
            let label = if self.cache.enabled() && !request.no_cache { "bypass" } else { "off" };
            let mut decision = self.make(work).await?;
            decision.trace.cache = label.into();
            decision
        };
        decision.id = id;
        if let Outcome::Clarify(question) = &mut decision.outcome {
            question.pending = self.open_question(id, question, request, caller);
        }
        decision.trace_id = trace_id(request, id);
        decision.timings.insert(Stage::Normalise, normalised);
        decision.timings.insert(Stage::Total, started.elapsed());
        observe(&decision);
        if self.log.is_on() {
            let session = &request.session_id;
            self.log.write(log::line(&decision, &query, &caller.tenant, session, history_turns, &self.salt));
        }
        Ok(decision)
    }

    /// Everything that is checked before any work is done.
    fn begin<'a>(
        &self,
        request: &'a RouteRequest,
        caller: &'a Caller,
        deadline: Deadline,
    ) -> Result<Work<'a>, RouteError> {
        let catalog = self.catalogs.load(); // one version for the whole request, even during a reload
        let mut query = text::normalise(&request.utterance).map_err(|TextError::Empty| {
            let field = FieldProblem { path: "utterance".into(), expected: "some visible text".into(), example: None };
            RouteError::Invalid(Problem::invalid_request("utterance: must not be empty", vec![field]))
        })?;
        let history = &request.history[request.history.len().saturating_sub(MAX_TURNS)..];
        let mut degraded = BTreeSet::new();
        if query.cut_chars > 0 {
            degraded.insert(Degraded::TruncatedInput);
        }
        if history.len() < request.history.len() {
            degraded.insert(Degraded::TruncatedHistory);
        }
        let eligible = retrieve::eligible(&catalog, caller, &request.narrowing, history);
        query.read_as(catalog.typed.read(&query, &|position| eligible.contains(position)));
        query.across = query.language == Language::En && catalog.chinese;
        query.unsupported = query.language == Language::Other && !self.encoders.declare(query.codes);
        if query.unsupported {
            degraded.insert(Degraded::UnsupportedLanguage);
        }
        Ok(Work { id: DecisionId::generate(), request, caller, catalog, query, history, eligible, deadline, degraded })
    }

    /// `None` where an earlier decision must not answer: with history, with an open question, or when switched off.
    fn cache_key(&self, work: &Work<'_>) -> Option<Key> {
        let request = work.request;
        let usable = self.cache.enabled() && !request.no_cache && work.history.is_empty() && request.pending.is_none();
        usable.then(|| {
            let decider = self.llm.as_ref().map_or_else(|| "local".to_owned(), decide::llm::Llm::fingerprint);
            Key::of(&KeyParts {
                tenant: &work.caller.tenant,
                eligible: work.catalog.fingerprint(work.eligible.positions()),
                decider: &decider,
                session: &canonical_json(&Value::Object(request.session_state.clone())),
                query: &work.query,
                max_calls: max_calls(request),
            })
        })
    }

    /// Prefilter, decider, arguments: the decision itself, without what belongs to this one request.
    async fn make(&self, mut work: Work<'_>) -> Result<Decision, RouteError> {
        let mut timings = Timings::new();
        let pending = work.request.pending.as_deref().map(|handle| {
            self.pending
                .get(handle, &work.caller.tenant, &work.request.session_id)
                .ok_or("the open question is not known any more")
        });
        let top = self.settings.retrieve.hand_on_all_up_to.max(self.settings.retrieve.shortlist_max) + MAX_NAMED;
        let mut candidates = self.prefilter(&mut work, &mut timings, top).await?;
        candidates.truncate(retrieve::shortlist_len(&candidates, &self.settings.retrieve));
        if let Some(Ok(pending)) = &pending {
            keep_on_shortlist(&mut candidates, pending, &work);
        }
        let catalog = Arc::clone(&work.catalog);
        let tools = retrieve::stable_order(&catalog, &candidates);
        let request = Request {
            query: &work.query,
            history: work.history,
            session: &work.request.session_state,
            tools: &tools,
            candidates: &candidates,
            max_calls: max_calls(work.request),
        };
        let deciding = Instant::now();
        let resumed = pending.as_ref().and_then(|p| p.as_ref().ok()).and_then(|open| resume(&request, open));
        let mut answer = match resumed {
            Some(answer) => answer,
            None => self.ask_decider(&request, work.deadline).await?,
        };
        if let Some(Err(note)) = pending {
            answer.notes.push(note.into());
        }
        answer.notes.extend(work.query.reading().notes(&work.query.text));
        decide::settle(&mut answer, &request);
        timings.insert(Stage::Decide, deciding.elapsed());
        let outcome = outcome(&answer.verdict, &request);
        let narrowed = candidates.len() < work.eligible.len();
        let shown = tools.iter().map(|tool| tool.id().clone()).collect();
        work.degraded.extend(&answer.degraded);
        Ok(Decision {
            id: work.id,
            catalog_version: catalog.version.to_string(),
            index: catalog.index_kind(),
            language: work.query.language,
            outcome,
            decided_by: answer.decided_by,
            confidence: answer.confidence,
            degraded: work.degraded,
            timings,
            tokens: answer.tokens,
            trace: Trace {
                strategy: if narrowed { "narrowed" } else { "all" }.into(),
                eligible: work.eligible.len(),
                shown,
                prompt_hash: answer.prompt_hash,
                prompt_version: answer.prompt_version,
                model: answer.model,
                llm_calls: answer.llm_calls,
                repairs: answer.repairs,
                cache: String::new(),
                stored: false,
                notes: answer.notes,
            },
            trace_id: String::new(),
            candidates,
        })
    }

    /// Embeds the utterance and ranks the eligible tools.
    async fn prefilter(
        &self,
        work: &mut Work<'_>,
        timings: &mut Timings,
        top: usize,
    ) -> Result<Vec<Candidate>, RouteError> {
        let embedding = Instant::now();
        let vector = self.embed(work).await?;
        timings.insert(Stage::Embed, embedding.elapsed());
        let ranking = Instant::now();
        let context = retrieve::context(&work.catalog, work.history);
        let (catalog, query, eligible) = (Arc::clone(&work.catalog), work.query.clone(), work.eligible.clone());
        let rank = move || {
            let vector = vector.as_ref().map(|(encoder, vector)| (encoder.as_str(), vector));
            retrieve::rank(&catalog, &query, vector, &eligible, &context, top)
        };
        let ranked = if work.catalog.tools.len() < RANK_ELSEWHERE_FROM {
            rank()
        } else {
            tokio::task::spawn_blocking(rank)
                .await
                .map_err(|_| RouteError::Internal("ranking was interrupted".into()))?
        };
        timings.insert(Stage::Prefilter, ranking.elapsed());
        ranked.map_err(|error| RouteError::Internal(error.to_string()))
    }

    /// The utterance's vector with its encoder's name; `None` when words alone decide, which the decision then says.
    async fn embed(&self, work: &mut Work<'_>) -> Result<Option<(String, Vector)>, RouteError> {
        let Some(encoder) = self.encoders.for_query(&work.query) else {
            work.degraded.insert(Degraded::LexicalOnly);
            return Ok(None);
        };
        match encoder.embed_query(&work.query.retrieval_text(), work.deadline).await {
            Ok(embedded) => {
                if embedded.truncated {
                    work.degraded.insert(Degraded::TruncatedInput);
                }
                Ok(Some((encoder.name().to_owned(), embedded.vector)))
            }
            Err(EmbedError::Overloaded) => Err(RouteError::Overloaded),
            Err(EmbedError::Deadline) => Err(RouteError::Deadline),
            Err(error @ (EmbedError::Stopped | EmbedError::NoRuntime(_) | EmbedError::Model { .. })) => {
                tracing::error!(%error, "utterance cannot be embedded; words alone decide");
                work.degraded.insert(Degraded::LexicalOnly);
                Ok(None)
            }
        }
    }

    /// The LLM if one is configured and answers, else the local decider.
    async fn ask_decider(&self, request: &Request<'_>, deadline: Deadline) -> Result<Answer, RouteError> {
        let Some(llm) = &self.llm else { return Ok(local::decide(request, &self.settings.local)) };
        // A tenth of the time is kept for the local decider.
        match llm.decide(request, deadline.capped(deadline.remaining().mul_f32(0.9))).await {
            Ok(answer) => Ok(answer),
            Err(LlmError::Overloaded) => Err(RouteError::Overloaded),
            Err(error @ (LlmError::Deadline | LlmError::Unavailable(_) | LlmError::Refused(_))) => {
                tracing::warn!(%error, "LLM gave no answer; the local decider answers");
                let mut answer = local::decide(request, &self.settings.local);
                answer.degraded.insert(Degraded::LlmUnavailable);
                if matches!(error, LlmError::Deadline) {
                    answer.notes.push(NO_TIME.into());
                }
                Ok(answer)
            }
        }
    }

    /// A handle for this request's own session, whoever shares the question.
    fn open_question(
        &self,
        id: DecisionId,
        question: &ClarifyOutcome,
        request: &RouteRequest,
        caller: &Caller,
    ) -> Option<String> {
        let pending = Pending {
            tenant: caller.tenant.clone(),
            session_id: request.session_id.clone(),
            tool: question.tool.clone()?,
            arguments: question.arguments.clone(),
            missing: question.missing.clone(),
        };
        Some(self.pending.open(id, pending))
    }
}

fn outcome(verdict: &Verdict, request: &Request<'_>) -> Outcome {
    match verdict {
        Verdict::Call(proposals) => Outcome::Call {
            calls: proposals
                .iter()
                .filter_map(|proposal| {
                    let tool = request.tool(&proposal.tool)?;
                    Some(PlannedCall {
                        tool: proposal.tool.clone(),
                        tool_version: tool.card.version.clone(),
                        arguments: proposal.checked.args.as_map().clone(),
                        origins: proposal.origins.clone(),
                        side_effect: tool.card.side_effect,
                        needs_confirmation: decide::needs_confirmation(tool),
                        notices: proposal.checked.notices.iter().map(|notice| notice.0.clone()).collect(),
                    })
                })
                .collect(),
        },
        Verdict::Clarify { tool, arguments, missing, fields, question } => {
            let known = tool.as_ref().and_then(|id| request.tool(id));
            let question = question.clone().unwrap_or_else(|| decide::question(request, known, missing, fields));
            Outcome::Clarify(ClarifyOutcome {
                tool: known.map(|tool| tool.id().clone()),
                arguments: arguments.clone(),
                missing: missing.clone(),
                question,
                pending: None,
            })
        }
        Verdict::NoTool(reason) => Outcome::NoTool { reason: *reason },
        Verdict::Handoff(reason) => Outcome::Handoff { reason: *reason },
    }
}

/// Said of a decision the LLM had no time for: another request with more of it asks again.
const NO_TIME: &str = "the LLM had no time left to answer";

/// Whether a result tells of the request that made it alone.
fn is_own(result: Result<&Decision, &RouteError>) -> bool {
    match result {
        Ok(decision) => decision.trace.notes.iter().any(|note| note == NO_TIME),
        Err(RouteError::Deadline) => true,
        Err(RouteError::Invalid(_) | RouteError::Overloaded | RouteError::Internal(_)) => false,
    }
}

/// How many tools named in one utterance can be on its shortlist beyond the usual length.
const MAX_NAMED: usize = 32;

fn max_calls(request: &RouteRequest) -> usize {
    request.max_calls.clamp(1, MAX_CALLS)
}

/// From the caller's trace context; without one, the decision's own id serves.
fn trace_id(request: &RouteRequest, id: DecisionId) -> String {
    request.trace_id.clone().unwrap_or_else(|| id.to_string().trim_start_matches("d_").to_owned())
}

/// The tool that was asked about must be a candidate again, if it is still open to the caller.
fn keep_on_shortlist(candidates: &mut Vec<Candidate>, pending: &Pending, work: &Work<'_>) {
    let open = work.catalog.position(&pending.tool).is_some_and(|position| work.eligible.contains(position));
    if open && !candidates.iter().any(|candidate| candidate.tool == pending.tool) {
        let score = candidates.last().map_or(crate::types::Score::new(0.0), |last| last.score);
        candidates.push(Candidate { tool: pending.tool.clone(), score, signals: Default::default() });
    }
}

/// Fills the open call from this turn, unless the turn is about something else.
fn resume(request: &Request<'_>, pending: &Pending) -> Option<Answer> {
    let tool = request.tool(&pending.tool)?;
    let best = request.candidates.first()?;
    let own = request.candidates.iter().find(|candidate| candidate.tool == pending.tool)?;
    let ahead = best.score.get() - own.score.get();
    let other_subject = best.tool != pending.tool && ahead > NEW_SUBJECT_MARGIN;
    let resumed = local::resume(tool, &pending.arguments, &pending.missing, request, !other_subject);
    // Words of another subject beside an id that would fit ("no, where is SO-…?") are a new request.
    let is_bare = request.query.retrieval_text().chars().count() <= 4
        || request.query.slots.len() == 1 && {
            let slot = &request.query.slots[0];
            slot.span == (0..request.query.text.len())
        };
    if resumed.filled == 0 || (other_subject && !is_bare) {
        return None;
    }
    let mut answer = Answer::local(resumed.verdict, Confidence::new(RESUMED_CONFIDENCE));
    answer.notes.push("the turn answers an open question".into());
    Some(answer)
}

fn nothing_eligible(work: &Work<'_>) -> Decision {
    Decision {
        id: work.id,
        catalog_version: work.catalog.version.to_string(),
        index: work.catalog.index_kind(),
        language: work.query.language,
        outcome: Outcome::NoTool { reason: NoToolReason::NothingEligible },
        decided_by: DecidedBy::Local,
        confidence: Confidence::ONE,
        degraded: work.degraded.clone(),
        candidates: Vec::new(),
        timings: Timings::new(),
        tokens: TokenUse::default(),
        trace: Trace { strategy: "all".into(), cache: "bypass".into(), ..Trace::default() },
        trace_id: String::new(),
    }
}

/// A stored or shared decision keeps its result; who decided, the time and the tokens are this request's own.
fn apply_lookup(decision: &mut Decision, lookup: Lookup, look_up: Instant) {
    match lookup {
        Lookup::Made { stored } => {
            decision.trace.cache = "miss".into();
            decision.trace.stored = stored;
        }
        Lookup::Hit => {
            decision.trace.cache = "hit".into();
            decision.decided_by = DecidedBy::CacheExact;
            decision.timings = Timings::from([(Stage::Cache, look_up.elapsed())]);
            decision.tokens = TokenUse::default();
            decision.trace.llm_calls = 0;
        }
        Lookup::Joined => {
            decision.trace.cache = "joined".into();
            decision.timings = Timings::from([(Stage::Cache, look_up.elapsed())]);
            decision.tokens = TokenUse::default();
            decision.trace.llm_calls = 0;
        }
    }
}

fn observe(decision: &Decision) {
    for (stage, time) in &decision.timings {
        metrics::histogram!(names::STAGE_DURATION, "stage" => stage.as_str()).record(time.as_secs_f64());
    }
    let (outcome, decided_by) = (decision.outcome.kind(), decision.decided_by.as_str());
    metrics::counter!(names::DECISIONS, "outcome" => outcome, "decided_by" => decided_by).increment(1);
    for mode in &decision.degraded {
        metrics::counter!(names::DEGRADED, "mode" => mode.as_str()).increment(1);
    }
    metrics::counter!(names::CACHE_LOOKUPS, "result" => decision.trace.cache.clone()).increment(1);
}
