//! Asks the router about every row of a plan, one request at a time, and scores each answer at once.
//!
//! Owns: the request a row becomes, warming up, what is measured.
//! Does not know: where rows come from or how figures are put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Stage;
use super::confusions::{self, Wrong};
use super::rows::Row;
use super::score_prefilter::{self, PrefilterScore, Ranked};
use super::score_route::{self, Answer, Call, RouteScore};
use super::tools::{Eligible, Tools};
use crate::decision::{Decision, Outcome};
use crate::pipeline::{Narrowing, Ranking, RouteError, RouteRequest, Router};
use crate::text::normalise;
use crate::types::{Caller, Deadline, Signal};

/// What is scored. The product has one, [`Served`]; tests script another.
pub(super) trait Subject {
    async fn rank(&self, request: &RouteRequest) -> Result<Ranking, RouteError>;
    async fn route(&self, request: RouteRequest) -> Result<Decision, RouteError>;
}

/// The router as a caller on this machine sees it.
pub(super) struct Served {
    pub router: Arc<Router>,
    pub budget: Duration,
}

impl Subject for Served {
    async fn rank(&self, request: &RouteRequest) -> Result<Ranking, RouteError> {
        self.router.rank(request, &Caller::local(), Deadline::after(self.budget)).await
    }

    async fn route(&self, request: RouteRequest) -> Result<Decision, RouteError> {
        self.router.route(request, &Caller::local(), Deadline::after(self.budget)).await
    }
}

/// Scores and everything that happened on the way.
#[derive(Debug, Default)]
pub(super) struct Scored {
    pub rows: Vec<RowScore>,
    pub latencies: Vec<Duration>,
    pub variant_missing: usize,
    /// Rows without any eligible tool: there is nothing to ask the router.
    pub nothing_eligible: usize,
    pub failed_requests: usize,
    pub answered: usize,
    pub first_failure: Option<String>,
    /// Rankings without a single vector behind them.
    pub words_alone: usize,
    pub decided_by: BTreeMap<&'static str, usize>,
    pub degraded: BTreeMap<&'static str, usize>,
    /// Rows whose choice was wrong.
    pub wrong: Vec<Wrong>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct RowScore {
    pub prefilter: Option<PrefilterScore>,
    /// Only at [`Stage::Route`].
    pub route: Option<RouteScore>,
}

pub(super) struct Runner<'a, S> {
    pub subject: &'a S,
    pub tools: &'a Tools,
    pub stage: Stage,
    pub candidates: bool,
}

impl<S: Subject> Runner<'_, S> {
    /// `progress` hears how many of `rows` are done.
    pub async fn run(&self, rows: &[Row], progress: &(dyn Fn(usize) + Sync)) -> Scored {
        self.warm_up(rows).await;
        let mut scored = Scored::default();
        for (at, row) in rows.iter().enumerate() {
            match self.tools.eligible(row, self.candidates) {
                Eligible::Everything => self.ask(row, Vec::new(), &mut scored).await,
                Eligible::Only(names) => self.ask(row, names, &mut scored).await,
                Eligible::Nothing => {
                    scored.nothing_eligible += 1;
                    let route = (self.stage == Stage::Route).then(|| scored.judge(row, &Answer::NoTool, 1.0));
                    let prefilter = score_prefilter::score(row, &Ranked::default());
                    scored.rows.push(RowScore { prefilter, route });
                }
                Eligible::VariantMissing => scored.variant_missing += 1,
            }
            progress(at + 1);
        }
        scored
    }

    /// Ranks one row per language first, so that no measured request pays for the first use of an encoder.
    async fn warm_up(&self, rows: &[Row]) {
        let mut seen = BTreeSet::new();
        for row in rows {
            let Ok(query) = normalise(&row.query) else { continue };
            if seen.insert(query.language) {
                // A failure here shows again where it is counted.
                drop(self.subject.rank(&request(row, Vec::new())).await);
            }
        }
    }

    async fn ask(&self, row: &Row, tools: Vec<String>, scored: &mut Scored) {
        let request = request(row, tools);
        // The decision comes first: ranking before it would warm the very texts it is timed with.
        let route = match self.stage {
            Stage::Route => Some(self.decide(row, request.clone(), scored).await),
            Stage::Prefilter => None,
        };
        // The prefilter is scored on the rows that have something to find.
        let prefilter = if row.gold.is_empty() { None } else { self.rank(row, &request, scored).await };
        scored.rows.push(RowScore { prefilter, route });
    }

    async fn rank(&self, row: &Row, request: &RouteRequest, scored: &mut Scored) -> Option<PrefilterScore> {
        let start = Instant::now();
        let answer = self.subject.rank(request).await;
        if self.stage == Stage::Prefilter {
            scored.latencies.push(start.elapsed());
        }
        let ranked = match answer {
            Ok(ranking) => {
                scored.answered += 1;
                let dense = |signal: &Signal| matches!(signal, Signal::DenseCentroid | Signal::DenseBest);
                let vectors = ranking.candidates.iter().any(|candidate| candidate.signals.keys().any(dense));
                scored.words_alone += usize::from(!vectors);
                let tools = ranking.candidates.iter().map(|candidate| self.tools.label(&candidate.tool)).collect();
                Ranked { tools, shortlist: ranking.shortlist }
            }
            Err(err) => {
                scored.failed(row, &err);
                Ranked::default()
            }
        };
        score_prefilter::score(row, &ranked)
    }

    async fn decide(&self, row: &Row, request: RouteRequest, scored: &mut Scored) -> RouteScore {
        let start = Instant::now();
        let answer = self.subject.route(request).await;
        scored.latencies.push(start.elapsed());
        match answer {
            Ok(decision) => {
                scored.answered += 1;
                *scored.decided_by.entry(decision.decided_by.as_str()).or_default() += 1;
                for mode in &decision.degraded {
                    *scored.degraded.entry(mode.as_str()).or_default() += 1;
                }
                scored.judge(row, &self.answer(&decision.outcome), f64::from(decision.confidence.get()))
            }
            Err(err) => {
                scored.failed(row, &err);
                scored.judge(row, &Answer::Failed, 0.0)
            }
        }
    }

    fn answer(&self, outcome: &Outcome) -> Answer {
        match outcome {
            Outcome::Call { calls } => {
                let call = |call: &crate::decision::PlannedCall| Call {
                    tool: self.tools.label(&call.tool),
                    arguments: call.arguments.clone(),
                    schema: self.tools.schema(&call.tool),
                };
                Answer::Calls(calls.iter().map(call).collect())
            }
            Outcome::Clarify(clarify) => {
                Answer::Clarify { tool: clarify.tool.as_ref().map(|tool| self.tools.label(tool)) }
            }
            Outcome::NoTool { .. } => Answer::NoTool,
            Outcome::Handoff { .. } => Answer::Handoff,
        }
    }
}

impl Scored {
    /// Whether no request was answered.
    pub fn all_failed(&self) -> bool {
        self.failed_requests > 0 && self.answered == 0
    }

    /// Scores an answer and keeps the choice if it was wrong.
    fn judge(&mut self, row: &Row, answer: &Answer, confidence: f64) -> RouteScore {
        self.wrong.extend(confusions::wrong(row, answer));
        score_route::score(row, answer, confidence)
    }

    fn failed(&mut self, row: &Row, err: &RouteError) {
        self.failed_requests += 1;
        self.first_failure.get_or_insert_with(|| format!("{}: {err}", row.id));
    }
}

/// The same request for every row, whatever its label says: one call, cache off.
pub(super) fn request(row: &Row, tools: Vec<String>) -> RouteRequest {
    RouteRequest {
        utterance: row.query.clone(),
        history: row.history.clone(),
        narrowing: Narrowing { tools, ..Narrowing::default() },
        no_cache: true,
        ..RouteRequest::default()
    }
}
