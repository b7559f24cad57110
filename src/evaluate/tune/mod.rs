//! Finds the weights of each encoder's signals, and how far behind the best the right tool may be, on labelled sets.
//!
//! Owns: which rows count, cross-validation over the sets, what is written into a manifest.
//! Does not know: how a signal is made; final figures come from the prefilter itself.

mod cases;
mod choose;
mod cross;
mod fit;
mod gaps;
mod point;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use gaps::ShortlistFigures;
pub use report::Tuned;

use super::sets::{self, SetsError};
use super::{EvalError, Progress};
use crate::embed::{TableError, replace_table_in};
use crate::pipeline::Settings;
use crate::retrieve::Fusion;
use cases::Case;

/// A set with fewer rows for an encoder says too little about it to weigh as much as the others.
const FEWEST_ROWS: usize = 20;

/// What to tune on.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder with a folder per set.
    pub sets: PathBuf,
    /// Names of sets; empty means all.
    pub only: Vec<String>,
    /// Rows drawn from each set.
    pub limit: usize,
    pub seed: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    #[error(transparent)]
    Sets(#[from] SetsError),
    #[error("set {set}: {source}")]
    Set { set: String, source: EvalError },
    #[error(transparent)]
    Read(#[from] EvalError),
    #[error("no encoder reads {FEWEST_ROWS} rows of a set; words alone need no weights")]
    TooFew,
    #[error("{encoder}: {source}")]
    Write { encoder: String, source: TableError },
}

impl TuneError {
    /// Whether the input or the configuration is at fault rather than the run.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Sets(_) | Self::TooFew | Self::Write { .. } => true,
            Self::Set { source, .. } | Self::Read(source) => source.is_input(),
        }
    }
}

/// The found weights of one encoder, with the figures they give.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    pub encoder: String,
    pub fusion: Fusion,
    /// Rows the weights were found on, and rows the gaps were measured on.
    pub fitted_rows: usize,
    pub gap_rows: usize,
    /// By name.
    pub sets: Vec<SetFigures>,
    /// Shortlists by the final weights on all rows.
    pub shortlists: Vec<ShortlistFigures>,
    /// The same, each set by weights and gaps that were found without it; empty with a single set.
    pub held_out_shortlists: Vec<ShortlistFigures>,
}

/// Recall of the prefilter on one set's rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Recall {
    pub at_5: f64,
    pub at_8: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SetFigures {
    pub set: String,
    pub rows: usize,
    pub untuned: Recall,
    /// By weights that were found without this set; `None` when it is the only one.
    pub held_out: Option<Recall>,
    pub tuned: Recall,
}

/// Tunes every encoder that reads enough rows. The registries of `settings` are replaced by those of the sets, and
/// weights that its manifests hold already do not matter.
///
/// # Errors
/// [`TuneError`]; nothing is written here.
pub async fn tune(
    options: &Options,
    settings: &Settings,
    progress: &(dyn Fn(&str, Progress) + Sync),
) -> Result<Tuned, TuneError> {
    let mut by_encoder: BTreeMap<String, BTreeMap<String, Vec<Case>>> = BTreeMap::new();
    let mut notices = Vec::new();
    for set in sets::chosen(&options.sets, &options.only)? {
        let read = cases::read(&set, options, settings, &|at| progress(&set.name, at)).await;
        let read = read.map_err(|source| TuneError::Set { set: set.name.clone(), source })?;
        notices.extend(read.notices.into_iter().map(|notice| format!("{}: {notice}", set.name)));
        for (encoder, cases) in read.by_encoder {
            if cases.len() < FEWEST_ROWS {
                notices.push(format!("{}: {encoder} reads only {} rows, left out", set.name, cases.len()));
            } else {
                by_encoder.entry(encoder).or_default().insert(set.name.clone(), cases);
            }
        }
    }
    if by_encoder.is_empty() {
        return Err(TuneError::TooFew);
    }
    let total: usize = by_encoder.values().map(|sets| cross::steps(sets.len())).sum();
    let mut done = 0;
    let mut encoders = Vec::new();
    for (encoder, sets) in by_encoder {
        let mut step = || {
            done += 1;
            progress("fitting", Progress::Scoring { done, total });
        };
        encoders.push(cross::tuning(&encoder, &sets, &mut step).map_err(EvalError::from)?);
    }
    Ok(Tuned { limit: options.limit, seed: options.seed, encoders, notices })
}

/// Writes the `[fusion]` table of each encoder's manifest below `models`; the rest of the file stays as it is.
///
/// # Errors
/// [`TuneError::Write`] for the first manifest that cannot be written.
pub fn write(tuned: &Tuned, models: &Path) -> Result<Vec<PathBuf>, TuneError> {
    let one = |tuning: &Tuning| {
        let file = models.join(&tuning.encoder).join("manifest.toml");
        match replace_table_in(&file, "fusion", &tuned.table(tuning)) {
            Ok(()) => Ok(file),
            Err(source) => Err(TuneError::Write { encoder: tuning.encoder.clone(), source }),
        }
    };
    tuned.encoders.iter().map(one).collect()
}
