//! Fits the confidence model of each encoder to labelled rows asked through the pipeline.
//!
//! Owns: folds, weights, the choice of thresholds, what is written where.
//! Does not know: flags, exit codes; how a tool is chosen or a feature computed.
//!
//! Source: logistic calibration, Platt 1999; figures are out of sample by k-fold cross-validation, the folds drawn by
//! the hash of a row's id, so that a row and its twin are never on both sides.

mod collect;
mod fit;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{EvalError, Progress};
use crate::decide::confidence::{BIAS, Features, Model, NAMES};
use crate::decision::log::Target;
use crate::embed::{TableError, WordsManifest, replace_table_in};
use crate::pipeline::Settings;
use collect::{Origin, Sample};
use fit::Example;

/// A labelled set with the registry it is asked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    pub registries: Vec<PathBuf>,
    pub queries: PathBuf,
    /// Files of which the rows without gold are asked as well.
    pub negatives: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub sets: Vec<Set>,
    /// Most rows of each file, drawn without replacement.
    pub limit: Option<usize>,
    pub seed: u64,
}

/// Parts the samples are split into.
const FOLDS: u64 = 5;
/// Twins are made at will, so they count no more than that rows without a right tool make up this share of a set. More
/// of them would make every confidence too low for what people ask.
const NO_TOOL_SHARE: f64 = 0.3;
/// Decimals of a coefficient; more would differ from machine to machine.
const DECIMALS: f64 = 1e4;

/// The model of one encoder and what its samples got.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// `None`: words alone.
    pub encoder: Option<String>,
    pub model: Model,
    samples: Vec<Judged>,
}

/// A sample with the confidence a model gave it that had not seen it.
#[derive(Debug, Clone, PartialEq)]
struct Judged {
    sample: Sample,
    after: f64,
}

/// The result: models, and thresholds for the settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    pub models: Vec<Fitted>,
    pub thresholds: Thresholds,
    sets: Vec<String>,
}

/// Settings of the local decider that go with the models.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    pub no_tool_below: f64,
    pub min_confidence: f64,
    pub min_confidence_write: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("cannot write {}: {source}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
}

/// Asks every row, fits a model per encoder and one for words alone, and chooses thresholds.
///
/// # Errors
/// [`EvalError`]; a request that fails ends the run, since a model of half the rows is another model.
pub async fn calibrate(
    options: &Options,
    mut settings: Settings,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Calibrated, EvalError> {
    settings.stored_cards = false;
    settings.log.target = Target::Off;
    let mut words_alone = settings.clone();
    words_alone.embed.encoders.clear();
    let mut samples = Vec::new();
    for settings in [settings, words_alone] {
        for (at, set) in options.sets.iter().enumerate() {
            samples.extend(collect::collect(at, set, options, settings.clone(), progress).await?);
        }
    }
    let sets = options.sets.iter().map(|set| set.queries.display().to_string()).collect();
    Ok(Calibrated::from_samples(samples, sets))
}

impl Calibrated {
    fn from_samples(samples: Vec<Sample>, sets: Vec<String>) -> Self {
        let encoders: BTreeSet<Option<String>> = samples.iter().map(|sample| sample.encoder.clone()).collect();
        // Encoders in name order, words alone last.
        let order = encoders.iter().filter(|encoder| encoder.is_some()).chain(encoders.iter().filter(|e| e.is_none()));
        let models: Vec<Fitted> = order
            .map(|encoder| {
                let own = samples.iter().filter(|sample| sample.encoder == *encoder).cloned().collect();
                Fitted::new(encoder.clone(), own)
            })
            .collect();
        let thresholds = Thresholds::choose(&models);
        Self { models, thresholds, sets }
    }

    /// Stores each model with its encoder: the table `[confidence]` of its manifest, and `words.toml`. Returns the
    /// files written. An encoder of a hub has no folder and is left out.
    ///
    /// # Errors
    /// [`WriteError`] naming the file.
    pub fn write(&self, models_dir: &Path) -> Result<Vec<PathBuf>, WriteError> {
        let mut written = Vec::new();
        for fitted in &self.models {
            let file = match &fitted.encoder {
                Some(encoder) if encoder.contains('/') => continue,
                Some(encoder) => models_dir.join(encoder).join("manifest.toml"),
                None => {
                    let file = models_dir.join(WordsManifest::FILE);
                    if !file.exists() {
                        let head = "# What was fitted for ranking by words alone, without an encoder.\n";
                        std::fs::write(&file, head)
                            .map_err(|source| WriteError::File { path: file.clone(), source })?;
                    }
                    file
                }
            };
            replace_table_in(&file, "confidence", &fitted.table())?;
            written.push(file);
        }
        Ok(written)
    }

    /// One JSON object a sample: its features, what was right, and both confidences.
    pub fn rows(&self) -> impl Iterator<Item = Value> {
        self.models.iter().flat_map(|fitted| &fitted.samples).map(|judged| {
            let Sample { set, id, origin, encoder, features, before, right, fits } = &judged.sample;
            let named = features.as_ref().map(|features| {
                NAMES.iter().map(|name| (*name).to_owned()).zip(features.values()).collect::<BTreeMap<_, _>>()
            });
            json!({"set": self.sets[*set], "id": id, "origin": origin.as_str(), "encoder": encoder, "right": right,
                "fits": fits, "before": before, "after": judged.after, "features": named})
        })
    }
}

impl Fitted {
    fn new(encoder: Option<String>, samples: Vec<Sample>) -> Self {
        let weights = weights(&samples);
        let model_of = |keep: &dyn Fn(&Sample) -> bool| {
            let examples: Vec<_> = samples
                .iter()
                .zip(&weights)
                .filter(|(sample, _)| keep(sample))
                .filter_map(|(sample, weight)| example(sample, *weight))
                .collect();
            let (bias, weights) = fit::fit(&examples);
            let rounded = |value: f64| (value * DECIMALS).round() / DECIMALS;
            Model { bias: rounded(bias), weights: weights.map(rounded) }
        };
        let folds: Vec<Model> = (0..FOLDS).map(|fold| model_of(&|sample| fold_of(&sample.id) != fold)).collect();
        let model = model_of(&|_| true);
        let judge = |sample: Sample| {
            let probability = |features: &Features| folds[fold_of(&sample.id) as usize].probability(features);
            let after = sample.features.as_ref().map_or(0.0, |features| f64::from(probability(features).get()));
            Judged { sample, after }
        };
        Self { encoder, model, samples: samples.into_iter().map(judge).collect() }
    }

    /// Lines of the table in the manifest.
    fn table(&self) -> String {
        let mut lines = vec![format!("# Fitted to {} answers by `pointsman calibrate`.", self.samples.len())];
        lines.extend(self.model.named().map(|(name, value)| format!("{name} = {value:.4}")));
        debug_assert!(lines[1].starts_with(BIAS));
        lines.join("\n")
    }
}

fn example(sample: &Sample, weight: f64) -> Option<Example<{ NAMES.len() }>> {
    // The cap of an unsupported language and what a pinned tool is worth are rules, nothing to be learnt around.
    let features = sample.features.as_ref().filter(|features| !features.unsupported && !features.pinned)?;
    Some(Example { values: features.values(), right: sample.right, weight })
}

fn fold_of(id: &str) -> u64 {
    let digest = Sha256::digest(id.as_bytes());
    u64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 digest has 32 bytes")) % FOLDS
}

/// 1 for what people asked; twins share what is left of [`NO_TOOL_SHARE`] of their set.
fn weights(samples: &[Sample]) -> Vec<f64> {
    let count = |set: usize, of: &dyn Fn(&Sample) -> bool| {
        samples.iter().filter(|sample| sample.set == set && of(sample)).count() as f64
    };
    let sets: BTreeSet<usize> = samples.iter().map(|sample| sample.set).collect();
    let twin_weight: BTreeMap<usize, f64> = sets
        .into_iter()
        .map(|set| {
            let fitting = count(set, &|sample| sample.fits);
            let real = count(set, &|sample| !sample.fits && sample.origin != Origin::Twin);
            let twins = count(set, &|sample| sample.origin == Origin::Twin);
            let wanted = fitting * NO_TOOL_SHARE / (1.0 - NO_TOOL_SHARE) - real;
            // A few even where a set has negatives enough: they are the near misses.
            (set, (wanted / twins.max(1.0)).clamp(0.1, 1.0))
        })
        .collect();
    let weight = |sample: &Sample| if sample.origin == Origin::Twin { twin_weight[&sample.set] } else { 1.0 };
    samples.iter().map(weight).collect()
}

/// Answers with no tool at a threshold, on rows as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Abstaining {
    wanted: usize,
    done: usize,
    both: usize,
}

impl Abstaining {
    fn at(threshold: f64, judged: &[&Judged]) -> Self {
        let mut counts = Self::default();
        for judged in judged {
            let wanted = !judged.sample.fits;
            let done = judged.sample.features.is_none() || judged.after < threshold;
            counts.wanted += usize::from(wanted);
            counts.done += usize::from(done);
            counts.both += usize::from(wanted && done);
        }
        counts
    }

    fn precision(self) -> Option<f64> {
        (self.done > 0).then(|| self.both as f64 / self.done as f64)
    }

    fn recall(self) -> Option<f64> {
        (self.wanted > 0).then(|| self.both as f64 / self.wanted as f64)
    }

    fn f1(self) -> f64 {
        let total = self.wanted + self.done;
        if total == 0 { 0.0 } else { 2.0 * self.both as f64 / total as f64 }
    }
}

/// Of the calls that write, how many should be right.
const SURE_ENOUGH: f64 = 0.9;

impl Thresholds {
    /// By the rows of the first set as they are, all encoders together: the threshold for abstaining has the best mean
    /// of precision and recall, in case of doubt the lower one; the one for writing leaves nine right choices of ten.
    fn choose(models: &[Fitted]) -> Self {
        let judged: Vec<&Judged> = models
            .iter()
            .filter(|fitted| fitted.encoder.is_some() || models.len() == 1)
            .flat_map(|fitted| &fitted.samples)
            .filter(|judged| judged.sample.set == 0 && judged.sample.origin == Origin::Row)
            .collect();
        let grid = (1..=80).map(|step| f64::from(step) / 100.0);
        let mut best = (0.0, 0.0);
        for threshold in grid.clone() {
            let f1 = Abstaining::at(threshold, &judged).f1();
            if f1 > best.1 {
                best = (threshold, f1);
            }
        }
        let no_tool_below = best.0;
        let right_above = |threshold: f64| {
            let taken: Vec<_> = judged.iter().filter(|judged| judged.after >= threshold).collect();
            let right = taken.iter().filter(|judged| judged.sample.right).count();
            right as f64 / taken.len().max(1) as f64
        };
        let mut writing = grid.filter(|threshold| *threshold >= no_tool_below);
        let min_confidence_write = writing.find(|threshold| right_above(*threshold) >= SURE_ENOUGH).unwrap_or(0.8);
        Self { no_tool_below, min_confidence: no_tool_below, min_confidence_write }
    }
}

#[cfg(test)]
mod tests;
