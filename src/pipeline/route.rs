//! `route()`: the stages in order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::brake::Held;
use super::make;
use super::observe::{answered_from_cache, nothing_eligible, observe, tell_brake, trace_id};
use super::pending::Pending;
use super::skeleton::Ruled;
use super::{FirstChoice, Ranking, Reading, RouteError, RouteRequest, Router, RunMode};
use crate::cache::{Key, KeyParts};
use crate::catalog::{Catalog, Serving};
use crate::decide::confidence::Model;
use crate::decide::llm::NO_TIME;
use crate::decide::{self, local};
use crate::decision::{ClarifyOutcome, Decision, Degraded, Outcome, Stage, Timings, log};
use crate::retrieve::{self, Eligible, Ranked, Within};
use crate::rules::Rules;
use crate::text::{self, Language, Query, TextError};
use crate::tool::{ToolCard, canonical_json};
use crate::types::{Caller, Candidate, Deadline, DecisionId, Evidence, FieldProblem, Problem, Turn};

/// Earlier turns that are read; older ones are left out and the decision says so.
const MAX_TURNS: usize = 50;
/// Most calls one answer may hold, whatever the request asks for.
const MAX_CALLS: usize = 8;

/// One request on its way down: what the stages share.
pub(super) struct Work<'a> {
    pub id: DecisionId,
    pub request: &'a RouteRequest,
    pub caller: &'a Caller,
    /// One version for the whole request, even during a reload.
    pub serving: Arc<Serving<Rules>>,
    pub query: Query,
    pub history: &'a [Turn],
    pub eligible: Eligible,
    /// What would be eligible if it were not out of service.
    pub held: Held,
    /// One mode for the whole request.
    pub mode: RunMode,
    /// Where a rule narrowed the choice.
    pub within: Option<Within>,
    /// The rule that narrowed; empty when none did.
    pub rule: String,
    /// States that limit what is eligible.
    pub states: Vec<String>,
    /// What the ranking shows; nothing until there is one.
    pub evidence: Evidence,
    /// How the local decider's confidence is computed from it.
    pub model: Model,
    pub deadline: Deadline,
    pub degraded: BTreeSet<Degraded>,
}

impl Work<'_> {
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.serving.catalog
    }

    pub fn rules(&self) -> &Rules {
        &self.serving.beside
    }

    pub fn max_calls(&self) -> usize {
        self.request.max_calls.clamp(1, MAX_CALLS)
    }

    /// Adds to the evidence what the words of `candidates` cover.
    pub fn cover(&mut self, candidates: &[Candidate]) {
        retrieve::cover(&mut self.evidence, &self.serving.catalog, &self.query, candidates);
    }
}

impl Router {
    /// Decides. Cancel safe: dropping the future withdraws the request.
    ///
    /// # Errors
    /// [`RouteError`] when no decision was made; all four outcomes are `Ok`.
    #[tracing::instrument(skip_all, fields(trace_id))]
    pub async fn route(
        self: &Arc<Self>,
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
        let mut work = self.begin(self.catalogs.load(), request, caller, deadline)?;
        let mut timings = Timings::new();
        let Ranked { candidates, gap, .. } = self.prefilter(&mut work, &mut timings, top).await?;
        let shortlist = retrieve::shortlist_len(&candidates, gap, &self.settings.retrieve);
        Ok(Ranking { candidates, shortlist })
    }

    /// What the local decider would choose, without deciding: what `calibrate` fits its model to. `None` when there is
    /// nothing to choose from.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn first_choice(
        &self,
        request: &RouteRequest,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Option<FirstChoice>, RouteError> {
        let mut work = self.begin(self.catalogs.load(), request, caller, deadline)?;
        if work.eligible.is_empty() {
            return Ok(None);
        }
        let candidates = self.shortlist(&mut work, &mut Timings::new()).await?.candidates;
        let tools = retrieve::stable_order(work.catalog(), &candidates);
        Ok(local::first_choice(&make::request(&work, &tools, &candidates)).map(|(tool, features)| FirstChoice {
            tool,
            features,
            encoder: work.evidence.encoder.clone(),
            confidence: work.model.probability(&features),
        }))
    }

    /// Reads a request as [`Router::rank`] does and stops before anything is weighed: what `tune` works on.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn read(
        &self,
        request: &RouteRequest,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Reading, RouteError> {
        let mut work = self.begin(self.catalogs.load(), request, caller, deadline)?;
        let embedded = self.embed(&mut work).await?;
        let context = retrieve::context(work.catalog(), &work.query, work.history, &work.eligible);
        let catalog = Arc::clone(work.catalog());
        Ok(Reading { catalog, query: work.query, eligible: work.eligible, context, embedded })
    }

    async fn decide(
        self: &Arc<Self>,
        request: &RouteRequest,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Decision, RouteError> {
        let started = Instant::now();
        let mut work = self.begin(self.catalogs.load(), request, caller, deadline)?;
        let (id, query, history_turns) = (work.id, work.query.clone(), work.history.len());
        let rules_on = work.rules().is_on();
        let (holds, mode) = (!work.held.is_empty(), work.mode);
        tracing::Span::current().record("trace_id", trace_id(request, id));
        let normalised = started.elapsed();
        let ruled = match self.refused_question(&work) {
            Some(refusal) => Ruled { decision: Some(Box::new(refusal)), shadow: None },
            None => self.apply_rules(&mut work),
        };
        let ruling = started.elapsed() - normalised;
        let shadow = ruled.shadow.map(|open| self.start_shadow(&work, open));
        let mut decision = match ruled.decision {
            Some(decision) => *decision,
            None => self.dynamic(work).await?,
        };
        decision.id = id;
        decision.trace_id = trace_id(request, id);
        // Of this moment, so not of a decision that was stored: the next request may come at another.
        tell_brake(&mut decision, holds, mode);
        if let Some(shadow) = shadow {
            self.compare_shadow(shadow, &mut decision, deadline).await;
        }
        if let Outcome::Clarify(question) = &mut decision.outcome {
            question.pending = self.open_question(id, question, request, caller);
        }
        decision.timings.insert(Stage::Normalise, normalised);
        if rules_on {
            decision.timings.insert(Stage::Rules, ruling);
        }
        decision.timings.insert(Stage::Total, started.elapsed());
        observe(&decision, rules_on);
        if self.log.is_on() {
            let session = &request.session_id;
            self.log.write(log::line(&decision, &query, &caller.tenant, session, history_turns, &self.salt));
        }
        Ok(decision)
    }

    /// Leaves out tools that this server runs and whose breakers are open.
    fn available(&self, catalog: &Catalog, eligible: Eligible, degraded: &mut BTreeSet<Degraded>) -> Eligible {
        let fails = |card: &ToolCard| card.run.is_some() && self.executors.is_open(card);
        let available = eligible.only(|position| !fails(&catalog.tools[position].card));
        if available.len() < eligible.len() {
            degraded.insert(Degraded::UnavailableTools);
        }
        available
    }

    /// Everything that is checked before any work is done.
    pub(super) fn begin<'a>(
        &self,
        serving: Arc<Serving<Rules>>,
        request: &'a RouteRequest,
        caller: &'a Caller,
        deadline: Deadline,
    ) -> Result<Work<'a>, RouteError> {
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
        let eligible = retrieve::eligible(&serving.catalog, caller, &request.narrowing, history);
        let (eligible, held) = self.in_service(&serving.catalog, eligible, history);
        let eligible = self.available(&serving.catalog, eligible, &mut degraded);
        query.read_as(serving.catalog.typed.read(&query, &|position| eligible.contains(position)));
        query.across = query.language == Language::En && serving.catalog.chinese;
        query.unsupported = query.language == Language::Other && !self.encoders.declare(query.codes);
        if query.unsupported {
            degraded.insert(Degraded::UnsupportedLanguage);
        }
        let (id, rule) = (DecisionId::generate(), String::new());
        let (within, states, mode) = (None, Vec::new(), self.mode());
        let (evidence, model) = (Evidence::default(), Model::WORDS);
        Ok(Work {
            id,
            request,
            caller,
            serving,
            query,
            history,
            eligible,
            held,
            mode,
            within,
            rule,
            states,
            evidence,
            model,
            deadline,
            degraded,
        })
    }

    /// The choice that no rule made: from the cache, or made now.
    pub(super) async fn dynamic(&self, work: Work<'_>) -> Result<Decision, RouteError> {
        if work.eligible.is_empty() {
            return Ok(nothing_eligible(&work));
        }
        let Some(key) = self.cache_key(&work) else {
            let label = if self.cache.enabled() && !work.request.no_cache { "bypass" } else { "off" };
            let mut decision = self.make(work).await?;
            decision.trace.cache = label.into();
            return Ok(decision);
        };
        let look_up = Instant::now();
        let catalog = Arc::clone(work.catalog());
        let (shared, lookup) = self.cache.get_or_make(key, self.make(work), is_own).await?;
        let mut decision = Arc::unwrap_or_clone(shared);
        answered_from_cache(&mut decision, lookup, look_up);
        // The same tools may be served at a later version by now.
        decision.catalog_version = catalog.version.to_string();
        decision.index = catalog.index_kind();
        Ok(decision)
    }

    /// `None` where an earlier decision must not answer: with history, with an open question, or when switched off.
    fn cache_key(&self, work: &Work<'_>) -> Option<Key> {
        let request = work.request;
        let usable = self.cache.enabled() && !request.no_cache && work.history.is_empty() && request.pending.is_none();
        usable.then(|| {
            let decider = self.llm_of(work).map_or_else(|| "local".to_owned(), decide::llm::Llm::fingerprint);
            Key::of(&KeyParts {
                tenant: &work.caller.tenant,
                eligible: work.catalog().fingerprint(work.eligible.positions()),
                rules: work.rules().version(),
                rule: &work.rule,
                decider: &decider,
                session: &canonical_json(&Value::Object(request.session_state.clone())),
                query: &work.query,
                max_calls: work.max_calls(),
            })
        })
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

/// Whether a result tells of the request that made it alone.
fn is_own(result: Result<&Decision, &RouteError>) -> bool {
    match result {
        Ok(decision) => decision.trace.notes.iter().any(|note| note == NO_TIME),
        Err(RouteError::Deadline) => true,
        Err(RouteError::Invalid(_) | RouteError::Overloaded | RouteError::Internal(_)) => false,
    }
}
