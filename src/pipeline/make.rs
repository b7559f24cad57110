//! A decision made now: prefilter, decider, arguments.

use std::sync::Arc;
use std::time::Instant;

use super::pending::Pending;
use super::route::Work;
use super::{RouteError, Router, RunMode};
use crate::catalog::Tool;
use crate::decide::handoff::Sentences;
use crate::decide::llm::{Failed, Llm, LlmError, NO_TIME};
use crate::decide::{self, Answer, Request, Verdict, local};
use crate::decision::{
    ClarifyOutcome, DecidedBy, Decision, Degraded, DomainScore, HandoffReason, NoToolReason, Outcome, PlannedCall,
    Stage, Timings, Trace, Widened,
};
use crate::embed::EmbedError;
use crate::retrieve::{self, Basis, Fusion, Mounted, Ranked, Strategy};
use crate::types::{Candidate, Confidence, Score, ToolId};

/// From this many tools on ranking is long enough to leave the threads that serve requests.
const RANK_ELSEWHERE_FROM: usize = 500;
/// Confidence of a call whose last missing values came as the answer to our own question.
const RESUMED_CONFIDENCE: f32 = 0.9;
/// How far ahead, in fused score, another tool must be to count as a new subject.
const NEW_SUBJECT_MARGIN: f32 = 1.0;
/// How many tools named in one utterance can be on its shortlist beyond the usual length.
const MAX_NAMED: usize = 32;

const NOTE_NOT_WIDENED: &str = "nothing within fitted, and no means were left to look beyond";

/// What was handed to the decider, as the trace tells it.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub strategy: &'static str,
    pub candidates: Vec<Candidate>,
    pub tools: Vec<ToolId>,
    pub domains: Vec<DomainScore>,
    pub widened: Option<Widened>,
}

impl Router {
    /// Prefilter, decider, arguments: the decision itself, without what belongs to this one request.
    pub(super) async fn make(&self, mut work: Work<'_>) -> Result<Decision, RouteError> {
        let mut timings = Timings::new();
        let pending = self.pending_of(&work);
        let mut mounted = self.shortlist(&mut work, &mut timings).await?;
        if let Some(Ok(pending)) = &pending {
            keep_on_shortlist(&mut mounted.candidates, pending, &work);
        }
        let deciding = Instant::now();
        let mut answer =
            self.choose(&work, &mounted.candidates, pending.as_ref().and_then(|p| p.as_ref().ok())).await?;
        let nothing_fits = answer.verdict == Verdict::NoTool(NoToolReason::NothingFits) && !decide::is_done(&answer);
        if let Some(beyond) = mounted.beyond.take().filter(|beyond| nothing_fits && *beyond != mounted.candidates) {
            work.cover(&beyond);
            match self.choose(&work, &beyond, None).await {
                // What is known stays known when there is no means to ask about more.
                Err(RouteError::Overloaded) => answer.notes.push(NOTE_NOT_WIDENED.into()),
                Ok(second) if second.verdict == Verdict::Handoff(HandoffReason::Budget) => {
                    let verdict = answer.verdict.clone();
                    answer = Answer { verdict, ..after(answer, second) };
                    answer.notes.push(NOTE_NOT_WIDENED.into());
                }
                Ok(second) => {
                    answer = after(answer, second);
                    mounted.candidates = beyond;
                    mounted.widened = Some(Widened::NothingFits);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(Err(note)) = pending {
            answer.notes.push(note.into());
        }
        answer.notes.extend(work.query.reading().notes(&work.query.text));
        timings.insert(Stage::Decide, deciding.elapsed());
        let strategy = if !mounted.domains.is_empty() {
            "layered"
        } else if mounted.candidates.len() < work.eligible.len() {
            "narrowed"
        } else {
            "all"
        };
        let mut tools: Vec<ToolId> = mounted.candidates.iter().map(|candidate| candidate.tool.clone()).collect();
        tools.sort();
        list_called(&mut mounted.candidates, &answer, &work);
        let (candidates, domains, widened) = (mounted.candidates, mounted.domains, mounted.widened);
        let shown = Shown { strategy, candidates, tools, domains, widened };
        Ok(decision(&work, answer, timings, shown, &self.settings.handoff))
    }

    /// The candidates a decider gets to see.
    pub(super) async fn shortlist(&self, work: &mut Work<'_>, timings: &mut Timings) -> Result<Mounted, RouteError> {
        let settings = &self.settings.retrieve;
        let layered = settings.strategy == Strategy::Layered;
        let top = match (&work.within, layered) {
            (None, false) => settings.hand_on_all_up_to.max(settings.shortlist_max) + MAX_NAMED,
            (Some(_), _) | (None, true) => usize::MAX,
        };
        let ranking = self.prefilter(work, timings, top).await?;
        let mounted = retrieve::mount(work.catalog(), ranking, work.within.as_ref(), settings);
        work.cover(&mounted.candidates);
        Ok(mounted)
    }

    /// The open question that the request brings back, or a note that it is not known any more.
    pub(super) fn pending_of(&self, work: &Work<'_>) -> Option<Result<Pending, &'static str>> {
        let handle = work.request.pending.as_deref()?;
        let pending = self.pending.get(handle, &work.caller.tenant, &work.request.session_id);
        Some(pending.ok_or("the open question is not known any more"))
    }

    /// The decider's answer about these candidates, settled.
    async fn choose(
        &self,
        work: &Work<'_>,
        candidates: &[Candidate],
        pending: Option<&Pending>,
    ) -> Result<Answer, RouteError> {
        let tools = retrieve::stable_order(work.catalog(), candidates);
        let request = request(work, &tools, candidates);
        let mut answer = match pending.and_then(|open| resume(&request, open)) {
            Some(answer) => answer,
            None => self.ask_decider(&request, work).await?,
        };
        decide::settle(&mut answer, &request);
        Ok(answer)
    }

    /// Embeds the utterance and ranks the eligible tools. What the ranking shows is kept in `work`.
    pub(super) async fn prefilter(
        &self,
        work: &mut Work<'_>,
        timings: &mut Timings,
        top: usize,
    ) -> Result<Ranked, RouteError> {
        let embedding = Instant::now();
        let embedded = self.embed(work).await?;
        timings.insert(Stage::Embed, embedding.elapsed());
        let ranking = Instant::now();
        let context = retrieve::context(work.catalog(), &work.query, work.history, &work.eligible);
        let (catalog, query, eligible) = (Arc::clone(work.catalog()), work.query.clone(), work.eligible.clone());
        let settings = self.settings.retrieve.clone();
        let rank = move || retrieve::rank(&catalog, &query, embedded.as_ref(), &eligible, &context, &settings, top);
        let ranked = if work.catalog().tools.len() < RANK_ELSEWHERE_FROM {
            rank()
        } else {
            tokio::task::spawn_blocking(rank)
                .await
                .map_err(|_| RouteError::Internal("ranking was interrupted".into()))?
        };
        timings.insert(Stage::Prefilter, ranking.elapsed());
        let mut ranked = ranked.map_err(|error| RouteError::Internal(error.to_string()))?;
        work.evidence = std::mem::take(&mut ranked.evidence);
        work.model = self.models.of(work.evidence.encoder.as_deref());
        Ok(ranked)
    }

    /// The utterance's vectors; `None` when words alone decide, which the decision says unless it was wanted.
    pub(super) async fn embed(&self, work: &mut Work<'_>) -> Result<Option<retrieve::Embedded>, RouteError> {
        if self.settings.retrieve.basis == Basis::Lexical {
            return Ok(None);
        }
        let Some(encoder) = self.encoders.for_query(&work.query) else {
            work.degraded.insert(Degraded::LexicalOnly);
            return Ok(None);
        };
        let mut texts = vec![work.query.retrieval_text()];
        texts.extend(work.query.clauses());
        match encoder.embed_queries(&texts, work.deadline).await {
            Ok(embedded) => {
                if embedded.iter().any(|embedded| embedded.truncated) {
                    work.degraded.insert(Degraded::TruncatedInput);
                }
                let mut vectors = embedded.into_iter().map(|embedded| embedded.vector);
                let Some(whole) = vectors.next() else { return Ok(None) };
                let fusion = self.fusion.get(encoder.name()).copied().unwrap_or(Fusion::UNTUNED);
                let (encoder, clauses) = (encoder.name().to_owned(), vectors.collect());
                Ok(Some(retrieve::Embedded { encoder, whole, clauses, fusion }))
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

    /// The LLM that may be asked in the mode of this request.
    pub(super) fn llm_of(&self, work: &Work<'_>) -> Option<&Llm> {
        self.llm.as_ref().filter(|_| work.mode == RunMode::Normal)
    }

    /// The LLM if one is configured and answers, else the local decider.
    async fn ask_decider(&self, request: &Request<'_>, work: &Work<'_>) -> Result<Answer, RouteError> {
        let Some(llm) = self.llm_of(work) else { return Ok(local::decide(request, &self.settings.local)) };
        let deadline = work.deadline;
        // A tenth of the time is kept for the local decider.
        match llm.decide(request, deadline.capped(deadline.remaining().mul_f32(0.9))).await {
            Ok(answer) => {
                let open = |id: &str| open_tool(work, &ToolId::new(id));
                Ok(decide::follow(answer, request, &self.settings.local, &open))
            }
            Err(Failed { error: LlmError::Overloaded, .. }) => Err(RouteError::Overloaded),
            Err(Failed {
                error: error @ (LlmError::Deadline | LlmError::Unavailable(_) | LlmError::Refused(_)),
                tokens,
                llm_calls,
                repairs,
                mut notes,
            }) => {
                tracing::warn!(%error, "LLM gave no answer; the local decider answers");
                let local = local::decide(request, &self.settings.local);
                if matches!(error, LlmError::Deadline) {
                    notes.push(NO_TIME.into());
                }
                notes.splice(0..0, local.notes);
                let degraded = &local.degraded | &[Degraded::LlmUnavailable].into();
                Ok(Answer { degraded, tokens, llm_calls, repairs, notes, ..local })
            }
        }
    }
}

/// Puts together what was decided and how.
pub(super) fn decision(
    work: &Work<'_>,
    answer: Answer,
    timings: Timings,
    shown: Shown,
    sentences: &Sentences,
) -> Decision {
    let listed = shown.candidates.iter().map(|candidate| &candidate.tool);
    let tools: Vec<_> = listed.filter_map(|id| work.catalog().tool(id)).collect();
    let outcome = outcome(&answer.verdict, &request(work, &tools, &shown.candidates), sentences);
    let degraded = &work.degraded | &answer.degraded;
    Decision {
        id: work.id,
        catalog_version: work.catalog().version.to_string(),
        index: work.catalog().index_kind(),
        language: work.query.language,
        outcome,
        decided_by: answer.decided_by,
        confidence: answer.confidence,
        timings,
        tokens: answer.tokens,
        trace: Trace {
            strategy: shown.strategy.into(),
            eligible: work.eligible.len(),
            shown: shown.tools,
            prompt_hash: answer.prompt_hash,
            prompt_version: answer.prompt_version,
            model: answer.model,
            llm_calls: answer.llm_calls,
            choice_probability: answer.choice_probability,
            repairs: answer.repairs,
            notes: answer.notes,
            rule: work.rule.clone(),
            rules_version: work.rules().version().to_owned(),
            states: work.states.clone(),
            domains: shown.domains,
            widened: shown.widened,
            ..Trace::default()
        },
        degraded,
        trace_id: String::new(),
        candidates: shown.candidates,
    }
}

/// What a decider gets to see of this request.
pub(super) fn request<'a>(work: &'a Work<'_>, tools: &'a [&'a Tool], candidates: &'a [Candidate]) -> Request<'a> {
    Request {
        query: &work.query,
        tenant: &work.caller.tenant,
        history: work.history,
        session: &work.request.session_state,
        tools,
        candidates,
        evidence: &work.evidence,
        model: work.model,
        max_calls: work.max_calls(),
    }
}

/// The second answer with what the first one took.
fn after(first: Answer, mut second: Answer) -> Answer {
    second.tokens.prompt = second.tokens.prompt.saturating_add(first.tokens.prompt);
    second.tokens.completion = second.tokens.completion.saturating_add(first.tokens.completion);
    second.llm_calls = second.llm_calls.saturating_add(first.llm_calls);
    second.degraded.extend(first.degraded);
    second.repairs.splice(0..0, first.repairs);
    second.notes.splice(0..0, first.notes);
    second
}

fn outcome(verdict: &Verdict, request: &Request<'_>, sentences: &Sentences) -> Outcome {
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
        Verdict::Handoff(reason) => {
            Outcome::Handoff { reason: *reason, message: sentences.of(*reason, request.query).to_owned() }
        }
    }
}

/// The tool that was asked about must be a candidate again, if it is still open to the caller.
fn keep_on_shortlist(candidates: &mut Vec<Candidate>, pending: &Pending, work: &Work<'_>) {
    let open = work.catalog().position(&pending.tool).is_some_and(|position| work.eligible.contains(position));
    if open && !candidates.iter().any(|candidate| candidate.tool == pending.tool) {
        let score = candidates.last().map_or(Score::new(0.0), |last| last.score);
        candidates.push(Candidate { tool: pending.tool.clone(), score, signals: Default::default() });
    }
}

fn open_tool<'a>(work: &'a Work<'_>, id: &ToolId) -> Option<&'a Tool> {
    let within =
        |position: &usize| work.within.as_ref().is_none_or(|rule| rule.widen || rule.tools.contains(*position));
    let open = |position: &usize| work.eligible.contains(*position) && within(position);
    let position = work.catalog().position(id).filter(open)?;
    work.catalog().tools.get(position)
}

/// A fallback tool that was not on the shortlist is a candidate all the same, the last one.
fn list_called(candidates: &mut Vec<Candidate>, answer: &Answer, work: &Work<'_>) {
    let Verdict::Call(calls) = &answer.verdict else { return };
    for call in
        calls.iter().filter(|call| answer.decided_by == DecidedBy::Fallback && open_tool(work, &call.tool).is_some())
    {
        if !candidates.iter().any(|candidate| candidate.tool == call.tool) {
            let score = candidates.last().map_or(Score::new(0.0), |last| last.score);
            candidates.push(Candidate { tool: call.tool.clone(), score, signals: Default::default() });
        }
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
