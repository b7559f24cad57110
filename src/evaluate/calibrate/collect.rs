//! What the local decider would choose for each row of labelled sets, and whether that is right.
//!
//! Owns: twins, the requests, the samples.
//! Does not know: what is fitted to them.

use super::super::plan::{self, Examples, Selection};
use super::super::rows::{self, Row};
use super::super::run::{Served, request};
use super::super::tools::{Eligible, Tools};
use super::super::{EvalError, Progress, Stage};
use super::{Options, Set};
use crate::decide::confidence::Features;
use crate::pipeline::{RouteError, Router, Settings};
use crate::types::{Caller, Deadline};

/// Where a sample comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A row as it is.
    Row,
    /// A row whose right tools were hidden.
    Twin,
    /// A row of a file of utterances that fit no tool.
    Negative,
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Twin => "twin",
            Self::Negative => "negative",
        }
    }
}

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Number of its set.
    pub set: usize,
    pub id: String,
    pub origin: Origin,
    /// The encoder that read it; `None` when words alone decided.
    pub encoder: Option<String>,
    /// `None` when there was nothing to choose: no tool, whatever the confidence.
    pub features: Option<Features>,
    /// Confidence by the model in use until now.
    pub before: f64,
    /// The first choice is right.
    pub right: bool,
    /// Some tool fits.
    pub fits: bool,
}

/// Answers of one set, in order of their ids.
pub async fn collect(
    at: usize,
    set: &Set,
    options: &Options,
    mut settings: Settings,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Sample>, EvalError> {
    let (rows, negatives) = read(set, options)?;
    settings.registries = set.registries.clone();
    let budget = settings.deadline;
    let router = Router::start(settings, &|done, total| progress(Progress::Embedding { done, total })).await?;
    let (_, registry) = router.registry();
    let tools = Tools::new(&registry, &Default::default(), &rows);
    let subject = Served { router, budget };
    let mut samples = Vec::new();
    let total = rows.len() + negatives.len();
    for (done, row) in rows.iter().enumerate() {
        samples.push(ask(at, &subject, &tools, row, Origin::Row, Vec::new()).await?);
        if !row.gold.is_empty()
            && let Eligible::Only(names) = tools.eligible(&row.with_answer_hidden(), false)
        {
            samples.push(ask(at, &subject, &tools, row, Origin::Twin, names).await?);
        }
        progress(Progress::Scoring { done: done + 1, total });
    }
    for (done, row) in negatives.iter().enumerate() {
        samples.push(ask(at, &subject, &tools, row, Origin::Negative, Vec::new()).await?);
        progress(Progress::Scoring { done: rows.len() + done + 1, total });
    }
    subject.router.shutdown().await;
    samples.sort_by(|a, b| (&a.id, a.origin).cmp(&(&b.id, b.origin)));
    Ok(samples)
}

/// The rows to fit to and the negatives.
fn read(set: &Set, options: &Options) -> Result<(Vec<Row>, Vec<Row>), EvalError> {
    let examples = Examples::default();
    let plan = |path: &std::path::Path, keep: fn(&Row) -> bool| {
        let selection = Selection {
            stage: Stage::Route,
            candidates: false,
            limit: options.limit,
            seed: options.seed,
            examples: &examples,
        };
        let rows = rows::read(path)?.into_iter().filter(keep).collect();
        let plan = plan::plan(rows, &selection);
        if plan.rows.is_empty() {
            return Err(EvalError::NothingToScore { path: path.to_owned(), left_out: plan.left_out });
        }
        Ok(plan.rows)
    };
    let rows = plan(&set.queries, |_| true)?;
    let mut negatives = Vec::new();
    for path in &set.negatives {
        // A set's rows with a right tool say nothing about another registry.
        negatives.extend(plan(path, |row| row.gold.is_empty())?);
    }
    Ok((rows, negatives))
}

async fn ask(
    set: usize,
    subject: &Served,
    tools: &Tools,
    row: &Row,
    origin: Origin,
    names: Vec<String>,
) -> Result<Sample, EvalError> {
    let request = request(row, names);
    let choice = subject.router.first_choice(&request, &Caller::local(), Deadline::after(subject.budget)).await;
    let choice = choice.map_err(|error: RouteError| EvalError::AllFailed { first: format!("{}: {error}", row.id) })?;
    let right = origin == Origin::Row && choice.as_ref().is_some_and(|choice| row.accepts(&tools.label(&choice.tool)));
    Ok(Sample {
        set,
        id: row.id.clone(),
        origin,
        before: choice.as_ref().map_or(0.0, |choice| f64::from(choice.confidence.get())),
        features: choice.as_ref().map(|choice| choice.features),
        encoder: choice.and_then(|choice| choice.encoder),
        right,
        fits: origin == Origin::Row && !row.gold.is_empty(),
    })
}
