//! Scores a labelled set through the same pipeline that serves.
//!
//! Owns: reading sets, which rows count, every scoring rule of `docs/SCORING.md`, figures with intervals,
//! whole folders of sets and the document about them.
//! Does not know: flags, exit codes, terminals; how the router ranks or decides.

mod rows;

mod baselines;
mod calibrate;
mod calibration;
mod confusions;
mod document;
mod interval;
mod latency;
mod lint;
mod lint_impact;
mod plan;
mod published;
mod report;
mod run;
mod sample;
mod score_args;
mod score_prefilter;
mod score_route;
mod sets;
mod suite;
mod tools;
pub mod tune;
mod variants;

pub use calibrate::{
    Calibrated, Options as CalibrateOptions, Set as CalibrationSet, Thresholds, WriteError, calibrate,
};
pub use calibration::Bin;
pub use confusions::{Confusions, Did, Pair, Sentence};
pub use document::{About, document};
pub use interval::Figure;
pub use latency::Latency;
pub use lint::{LintOptions, LintedFiles, lint_files};
pub use lint_impact::{Impact, Impacts, Misroute, Trial, lint_impact};
pub use published::Published;
pub use report::Report;
pub use sets::SetsError;
pub use suite::{Plan as SuitePlan, Run, SetFigures, Suite, SuiteError, read_toml, score_suite, write_whole};

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::decision::log::Target;
use crate::pipeline::{Router, Settings, StartError};
use crate::registry::Registry;
use baselines::Baselines;
use plan::{Examples, LeftOutCounts, Plan, Selection};
use rows::Row;
use run::{Runner, Served};
use tools::Tools;
use variants::Variants;

/// How far a request goes before it is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Prefilter,
    Route,
}

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefilter => "prefilter",
            Self::Route => "route",
        }
    }
}

/// What to score. The registries are those of the pipeline's [`Settings`].
#[derive(Debug, Clone)]
pub struct Options {
    pub queries: PathBuf,
    pub stage: Stage,
    /// Ask each row against its own candidates.
    pub candidates: bool,
    /// The first so many rows per tool of a file become example utterances.
    pub examples: Option<(usize, PathBuf)>,
    /// Score plain BM25, dense alone and rank fusion as well, over the same tools and vectors.
    pub baselines: bool,
    /// Ask each row that has a right tool a second time without it: the answer is then that no tool fits.
    pub hide_answers: bool,
    /// Score so many rows, drawn without replacement.
    pub limit: Option<usize>,
    pub seed: u64,
    /// Report wrong choices grouped by pair; at [`Stage::Route`].
    pub confusions: bool,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Embedding { done: usize, total: usize },
    Scoring { done: usize, total: usize },
}

#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {message}", .path.display())]
    Row { path: PathBuf, line: usize, message: String },
    #[error("{}: no row can be scored{}", .path.display(), reasons(.left_out))]
    NothingToScore { path: PathBuf, left_out: LeftOutCounts },
    #[error("cannot write a temporary file: {source}")]
    Temporary { source: std::io::Error },
    #[error(transparent)]
    Index(#[from] crate::index::IndexError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("every request failed; the first: {first}")]
    AllFailed { first: String },
}

impl EvalError {
    /// Whether the input or the configuration is at fault rather than the run.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Row { .. } | Self::NothingToScore { .. } => true,
            Self::Start(start) => match start {
                StartError::Registry(_)
                | StartError::Strict(_)
                | StartError::Rules(_)
                | StartError::Policy(_)
                | StartError::Execute(_)
                | StartError::Live(_)
                | StartError::Embed(_)
                | StartError::Store(_)
                | StartError::Log(_)
                | StartError::Llm(_)
                | StartError::Fusion { .. }
                | StartError::Confidence { .. } => true,
                // The last two are about changes, and nothing is changed here.
                StartError::Build(_)
                | StartError::Interrupted(_)
                | StartError::NotOwn { .. }
                | StartError::NoSuchVersion { .. }
                | StartError::Unreadable { .. }
                | StartError::NotHeld { .. }
                | StartError::Operators { .. } => false,
            },
            Self::Temporary { .. } | Self::Index(_) | Self::AllFailed { .. } => false,
        }
    }
}

fn reasons(left_out: &LeftOutCounts) -> String {
    let counts: Vec<String> = left_out.iter().map(|(reason, rows)| format!("{} {rows}", reason.as_str())).collect();
    if counts.is_empty() { String::new() } else { format!(" (left out: {})", counts.join(", ")) }
}

/// Starts a router over the settings' registries and scores `options.queries` with it.
///
/// The decision log is off: rows of a labelled set are no decisions anyone asked for.
///
/// # Errors
/// [`EvalError`]; a single failed request is no error but a wrong answer that the report counts.
pub async fn evaluate(
    options: &Options,
    mut settings: Settings,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, EvalError> {
    let Prepared { mut plan, examples, variants } = prepare(options, &settings.registries)?;
    if options.hide_answers && options.stage == Stage::Route {
        plan.rows.extend(twins(&plan.rows));
    }
    settings.registries.extend(variants.registry());
    settings.extra_examples = examples.by_tool;
    // A labelled set is scored against the given files alone.
    settings.stored_cards = false;
    settings.log.target = Target::Off;
    let budget = settings.deadline;

    let router = Router::start(settings, &|done, total| progress(Progress::Embedding { done, total })).await?;
    let (_, registry) = router.registry();
    let tools = Tools::new(&registry, &variants.names, &plan.rows);
    let mut notices = about(&plan.rows, &tools, options);
    notices.extend(about_registry(&registry));

    let baselines = options.baselines.then(|| Baselines::new(&registry));

    let total = plan.rows.len();
    let subject = Served { router, budget };
    let runner = Runner {
        subject: &subject,
        tools: &tools,
        stage: options.stage,
        candidates: options.candidates,
        baselines: baselines.as_ref(),
    };
    let scored = runner.run(&plan.rows, &|done| progress(Progress::Scoring { done, total })).await;
    subject.router.shutdown().await;

    if let Some(first) = scored.first_failure.clone().filter(|_| scored.all_failed()) {
        return Err(EvalError::AllFailed { first });
    }
    let mut report = Report::new(options.stage, tools.count(), plan.left_out, scored, notices);
    if !options.confusions {
        report.confusions = None;
    }
    Ok(report)
}

struct Prepared {
    plan: Plan,
    examples: Examples,
    variants: Variants,
}

/// Reads the files and chooses the rows.
fn prepare(options: &Options, registries: &[PathBuf]) -> Result<Prepared, EvalError> {
    let rows = rows::read(&options.queries)?;
    // From all rows, not from the drawn ones: what is served must not depend on the sample.
    let variants = if options.candidates { Variants::collect(registries, &rows)? } else { Variants::default() };
    let examples = match &options.examples {
        Some((count, path)) => Examples::from_rows(&rows::read(path)?, *count, options.candidates),
        None => Examples::default(),
    };
    let selection = Selection {
        stage: options.stage,
        candidates: options.candidates,
        limit: options.limit,
        seed: options.seed,
        examples: &examples,
    };
    let plan = plan::plan(rows, &selection);
    if plan.rows.is_empty() {
        return Err(EvalError::NothingToScore { path: options.queries.clone(), left_out: plan.left_out });
    }
    Ok(Prepared { plan, examples, variants })
}

/// Each row that has a right tool once more without it.
fn twins(rows: &[Row]) -> Vec<Row> {
    rows.iter().filter(|row| !row.gold.is_empty()).map(Row::with_answer_hidden).collect()
}

/// What the labels say that the registry or the flags do not fit.
fn about(rows: &[Row], tools: &Tools, options: &Options) -> Vec<String> {
    let mut notices = Vec::new();
    let unknown: BTreeSet<&str> =
        rows.iter().flat_map(|row| &row.gold).map(String::as_str).filter(|name| !tools.holds(name)).collect();
    if let Some(first) = unknown.first() {
        notices.push(format!("{} gold tools are not served and can't be found; the first: {first}", unknown.len()));
    }
    let whole = rows.iter().filter(|row| row.candidates.is_none()).count();
    if options.candidates && whole > 0 {
        notices.push(format!("{whole} rows have no candidates of their own and were asked against the whole registry"));
    }
    notices
}

fn about_registry(registry: &Registry) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(first) = registry.quarantined.first() {
        let count = registry.quarantined.len();
        notices.push(format!("{count} cards are quarantined and not served; the first: {}", first.card));
    }
    let put = registry.cards.values().filter(|card| card.source == "put").count();
    if put > 0 {
        notices.push(format!("{put} served cards come from the store, not from the registry file"));
    }
    notices
}

#[cfg(test)]
mod tests;
