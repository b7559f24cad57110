//! One labelled row with everything that weights apply to, so that thousands of weights can be tried on it.
//!
//! Owns: which tools of a row are looked at, the copy of the fusion on them.
//! Does not know: which weights are tried. A test compares the copy with the prefilter itself.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::point::{Point, SIGNALS};
use super::{Options, Recall};
use crate::decision::log::Target;
use crate::evaluate::plan::{self, Examples, Selection};
use crate::evaluate::rows::{self, Row};
use crate::evaluate::run::request;
use crate::evaluate::score_prefilter::{self, CUTS, Ranked};
use crate::evaluate::sets::Set;
use crate::evaluate::tools::Tools;
use crate::evaluate::{EvalError, Progress, Stage};
use crate::index::IndexError;
use crate::pipeline::{Reading, Router, Settings};
use crate::retrieve::{self, Basis, Embedded, Fusion, Scored, SignalValues, TextSignals};
use crate::types::{Caller, Deadline, Signal, Spread};

/// Best tools by each signal of the whole that are looked at, and by each of a clause.
const BY_WHOLE: usize = 40;
const BY_CLAUSE: usize = 20;
/// As many places of a ranking as recall is counted at.
const PLACES: usize = 8;
/// The columns of [`Text`].
const KINDS: [Signal; SIGNALS] = [
    Signal::DenseCentroid,
    Signal::DenseBest,
    Signal::Lexical,
    Signal::NameCover,
    Signal::PurposeCover,
    Signal::Boundary,
];
/// One row is embedded at a time, so only a broken encoder takes this long.
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(120);

/// Standardised signals of one text, one line per tool that is looked at.
#[derive(Debug)]
pub(super) struct Text {
    /// See [`retrieve::length`].
    pub length: f64,
    pub lines: Vec<[f64; SIGNALS]>,
}

#[derive(Debug)]
pub(super) struct Case {
    label: Row,
    reading: Reading,
    /// Name of every eligible tool as labels name it.
    names: Vec<String>,
    /// Indices among the eligible tools that are looked at, ascending.
    looked_at: Vec<usize>,
    pub right: Vec<bool>,
    pub whole: Text,
    clauses: Vec<Text>,
    named: Vec<f64>,
    history: Vec<f64>,
    /// Pairs of the tools looked at that say nearly the same.
    near: Vec<BTreeSet<usize>>,
    /// The gaps are measured on this row, so no weight may follow it.
    pub for_gaps: bool,
}

/// The rows of one set by the encoder that reads them.
pub(super) struct Read {
    pub by_encoder: BTreeMap<String, Vec<Case>>,
    pub notices: Vec<String>,
}

/// Starts a router over the set and reads its rows.
pub(super) async fn read(
    set: &Set,
    options: &Options,
    settings: &Settings,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Read, EvalError> {
    let none = Examples::default();
    let (stage, limit, seed) = (Stage::Prefilter, Some(options.limit), options.seed);
    let selection = Selection { stage, candidates: false, limit, seed, examples: &none };
    let plan = plan::plan(rows::read(&set.queries)?, &selection);
    if plan.rows.is_empty() {
        return Err(EvalError::NothingToScore { path: set.queries.clone(), left_out: plan.left_out });
    }
    let mut settings = Settings { registries: vec![set.registry.clone()], llm: None, ..settings.clone() };
    settings.stored_cards = false;
    settings.rules.file = None;
    settings.log.target = Target::Off;
    settings.retrieve.basis = Basis::Fused;
    let router = Router::start(settings, &|done, total| progress(Progress::Embedding { done, total })).await?;
    let tools = Tools::new(&router.registry().1, &BTreeMap::new(), &plan.rows);
    let mut read = Read { by_encoder: BTreeMap::new(), notices: Vec::new() };
    let (total, mut words_alone) = (plan.rows.len(), 0);
    for (at, row) in plan.rows.into_iter().enumerate() {
        let failed = |message: String| EvalError::Row { path: set.queries.clone(), line: at + 1, message };
        let reading = router.read(&request(&row, Vec::new()), &Caller::local(), Deadline::after(READ_WITHIN)).await;
        let reading = reading.map_err(|error| failed(format!("row {}: {error}", row.id)))?;
        match reading.embedded.as_ref().map(|embedded| embedded.encoder.clone()) {
            Some(encoder) => {
                let case = Case::new(row, reading, &tools)?;
                read.by_encoder.entry(encoder).or_default().push(case);
            }
            None => words_alone += 1,
        }
        progress(Progress::Scoring { done: at + 1, total });
    }
    router.shutdown().await;
    if words_alone > 0 {
        read.notices.push(format!("{words_alone} rows are read by no encoder, left out"));
    }
    Ok(read)
}

impl Case {
    pub fn new(label: Row, reading: Reading, tools: &Tools) -> Result<Self, IndexError> {
        let Reading { catalog, query, eligible, embedded, .. } = &reading;
        let names: Vec<String> =
            eligible.positions().map(|position| tools.label(catalog.tools[position].id())).collect();
        let (whole, clauses) = retrieve::texts(catalog, query, embedded.as_ref(), eligible, Basis::Fused, true)?;
        let scored = score(&reading, Fusion::UNTUNED)?;
        let beside = |kind| scored.signals.iter().find(|signal| signal.kind == kind);
        let mut looked_at: BTreeSet<usize> =
            names.iter().enumerate().filter(|(_, n)| label.accepts(n)).map(first).collect();
        for kind in [Signal::Named, Signal::History] {
            let values = beside(kind).map(|signal| signal.values.as_slice()).unwrap_or_default();
            looked_at.extend(values.iter().enumerate().filter(|(_, value)| **value > 0.0).map(first));
        }
        whole.signals.iter().for_each(|signal| looked_at.extend(best(signal, BY_WHOLE)));
        clauses.iter().flat_map(|clause| &clause.signals).for_each(|signal| looked_at.extend(best(signal, BY_CLAUSE)));
        let looked_at: Vec<usize> = looked_at.into_iter().collect();

        let of = |kind| match beside(kind) {
            Some(signal) => looked_at.iter().map(|at| f64::from(signal.values[*at])).collect(),
            None => vec![0.0; looked_at.len()],
        };
        let encoder = embedded.as_ref().map(|embedded| embedded.encoder.as_str()).unwrap_or_default();
        let positions: Vec<usize> = eligible.positions().collect();
        let nearly_same = |a: usize, b: usize| {
            retrieve::nearly_same(catalog, encoder, positions[looked_at[a]], positions[looked_at[b]])
        };
        let mut near = vec![BTreeSet::new(); looked_at.len()];
        for a in 0..looked_at.len() {
            for b in (0..a).filter(|b| nearly_same(a, *b)) {
                near[a].insert(b);
                near[b].insert(a);
            }
        }
        Ok(Self {
            right: looked_at.iter().map(|at| label.accepts(&names[*at])).collect(),
            whole: Text::new(&whole, &looked_at),
            clauses: clauses.iter().map(|clause| Text::new(clause, &looked_at)).collect(),
            named: of(Signal::Named),
            history: of(Signal::History),
            near,
            for_gaps: for_gaps(&label.id),
            label,
            names,
            looked_at,
            reading,
        })
    }

    /// Whether the weights decide about this row: nothing was named, nothing was said before.
    pub fn is_plain(&self) -> bool {
        self.named.iter().chain(&self.history).all(|value| *value == 0.0) && self.right.contains(&true)
    }

    /// Recall by `point` among the tools that are looked at.
    pub fn recall(&self, point: &Point) -> Recall {
        let top = self.ranking(point);
        recall(&self.label, top.into_iter().map(|at| self.names[self.looked_at[at]].clone()).collect())
    }

    /// The first places by `point`, as indices of the tools that are looked at.
    pub fn ranking(&self, point: &Point) -> Vec<usize> {
        let mut scores = self.whole.scores(point);
        if point.clause > 0.0 && !self.clauses.is_empty() {
            let mut best = vec![f64::MIN; scores.len()];
            for clause in &self.clauses {
                let scores = clause.scores(point);
                let top = highest(&scores);
                if top > 0.0 {
                    best.iter_mut().zip(&scores).for_each(|(best, score)| *best = best.max(score / top));
                }
            }
            if best.iter().all(|value| *value > f64::MIN) {
                let share = point.clause * highest(&scores);
                scores
                    .iter_mut()
                    .zip(&best)
                    .for_each(|(score, best)| *score = *score * (1.0 - point.clause) + share * best);
            }
        }
        scores.iter_mut().zip(&self.history).for_each(|(score, history)| *score += history);
        // More than any two scores can be apart.
        let lift = scores.iter().fold(1.0, |sum, score| sum + score.abs());
        scores.iter_mut().zip(&self.named).for_each(|(score, named)| *score += lift * named);
        let mut fused: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
        if point.crowding > 0.0 {
            let cost = -(point.crowding as f32);
            let crowding = retrieve::crowd(&fused, cost, |a, b| self.near[a].contains(&b));
            fused.iter_mut().zip(&crowding).for_each(|(score, crowding)| *score += cost * crowding);
        }
        let mut order: Vec<usize> = (0..fused.len()).collect();
        order.sort_unstable_by(|a, b| fused[*b].total_cmp(&fused[*a]).then(a.cmp(b)));
        order.truncate(PLACES);
        order
    }

    /// What the prefilter itself does with `fusion`.
    pub fn score(&self, fusion: Fusion) -> Result<Scored, IndexError> {
        score(&self.reading, fusion)
    }

    /// Recall of a ranking of all eligible tools.
    pub fn recall_of(&self, scored: &Scored) -> Recall {
        recall(&self.label, scored.order.iter().take(PLACES).map(|at| self.names[*at].clone()).collect())
    }

    /// Whether the eligible tool at `index` is right.
    pub fn accepts(&self, index: usize) -> bool {
        self.label.accepts(&self.names[index])
    }
}

impl Text {
    fn new(text: &TextSignals, looked_at: &[usize]) -> Self {
        let mut lines = vec![[0.0; SIGNALS]; looked_at.len()];
        let weighed = |kind: &Signal| *kind != Signal::Boundary || text.borders_weigh;
        for (column, kind) in KINDS.into_iter().enumerate().filter(|(_, kind)| weighed(kind)) {
            if let Some(signal) = text.signals.iter().find(|signal| signal.kind == kind) {
                let spread = Spread::of(&signal.values);
                let standard = |at: usize| f64::from(spread.standardise(signal.values[at]));
                lines.iter_mut().zip(looked_at).for_each(|(line, at)| line[column] = standard(*at));
            }
        }
        Self { length: f64::from(retrieve::length(text.words)), lines }
    }

    fn scores(&self, point: &Point) -> Vec<f64> {
        let weights = point.at(self.length);
        self.lines.iter().map(|line| line.iter().zip(&weights).map(|(value, weight)| value * weight).sum()).collect()
    }
}

fn score(reading: &Reading, fusion: Fusion) -> Result<Scored, IndexError> {
    let Reading { catalog, query, eligible, context, embedded } = reading;
    let embedded = embedded.as_ref().map(|embedded| Embedded { fusion, ..embedded.clone() });
    let settings = retrieve::Settings {
        hand_on_all_up_to: 0,
        shortlist_min: 1,
        shortlist_max: 1,
        coverage: retrieve::Coverage::default(),
        basis: Basis::Fused,
        without: Default::default(),
        strategy: retrieve::Strategy::Auto,
    };
    retrieve::score(catalog, query, embedded.as_ref(), eligible, context, &settings)
}

/// Indices of the `count` highest values; equal ones in order.
fn best(signal: &SignalValues, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..signal.values.len()).collect();
    order.sort_unstable_by(|a, b| signal.values[*b].total_cmp(&signal.values[*a]).then(a.cmp(b)));
    order.truncate(count);
    order
}

fn recall(label: &Row, tools: Vec<String>) -> Recall {
    let scored = score_prefilter::score(label, &Ranked { tools, shortlist: 0 });
    let at = |k: usize| {
        let cut = CUTS.iter().position(|cut| *cut == k);
        scored.as_ref().zip(cut).map_or(0.0, |(scored, cut)| scored.recall[cut])
    };
    Recall { at_5: at(5), at_8: at(8) }
}

/// A third of the rows, whatever set they are in and whatever else is in it.
fn for_gaps(id: &str) -> bool {
    Sha256::digest(id)[0] % 3 == 0
}

fn highest(scores: &[f64]) -> f64 {
    scores.iter().copied().fold(0.0, f64::max)
}

fn first<A, B>((first, _): (A, B)) -> A {
    first
}
