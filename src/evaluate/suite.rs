//! Scores every labelled set below a folder and keeps what is done, so that an interrupted run goes on.
//!
//! Owns: which runs a set gets, the file a set's figures are kept in.
//! Does not know: how a row is scored, or what is written about the figures ([`super::document`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::sets::{self, Set, SetsError};
use super::{EvalError, Options, Progress, Stage, evaluate};
use crate::pipeline::Settings;
use crate::types::encoding::hex;

/// What is scored.
#[derive(Debug, Clone)]
pub struct Suite {
    /// Folder with a folder per set.
    pub sets: PathBuf,
    /// Folder the figures are kept in, a file per set.
    pub kept: PathBuf,
    /// Names of sets; empty means all.
    pub only: Vec<String>,
    pub plan: Plan,
    /// Rows per run.
    pub limit: Option<usize>,
    pub seed: u64,
    /// Stands for the program and its settings: figures kept under another one are not used.
    pub key: String,
}

/// What single sets get besides the two runs of every set, read from TOML.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    pub sets: BTreeMap<String, SetPlan>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetPlan {
    /// A further prefilter run with so many example utterances per tool, taken from the set's own rows.
    pub examples: Option<usize>,
    /// A further run in which each row is asked against its own candidates.
    pub candidates: bool,
    /// A further run in which each row is asked a second time without its right tools.
    pub hide_answers: bool,
    /// What a reader has to know about the set.
    pub note: Option<String>,
}

/// One way of scoring a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    Prefilter,
    Examples(usize),
    Route,
    Candidates,
    HiddenAnswers,
}

impl Run {
    /// Its place in the kept file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefilter => "prefilter",
            Self::Examples(_) => "examples",
            Self::Route => "route",
            Self::Candidates => "candidates",
            Self::HiddenAnswers => "hidden_answers",
        }
    }
}

/// The figures of one set as `pointsman eval --format json` prints them, by run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SetFigures {
    pub set: String,
    pub runs: BTreeMap<String, KeptRun>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptRun {
    /// Hash of everything the figures depend on.
    pub key: String,
    pub report: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}: {source}", .path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{}: {message}", .path.display())]
    Malformed { path: PathBuf, message: String },
    #[error(transparent)]
    Sets(#[from] SetsError),
    #[error("set {set}: {source}")]
    Eval { set: String, source: EvalError },
}

impl SuiteError {
    /// Whether the input or the configuration is at fault rather than the run.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Malformed { .. } | Self::Sets(_) => true,
            Self::Write { .. } => false,
            Self::Eval { source, .. } => source.is_input(),
        }
    }
}

/// Reads a TOML file.
///
/// # Errors
/// [`SuiteError::Read`] and [`SuiteError::Malformed`].
pub fn read_toml<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, SuiteError> {
    let text = std::fs::read_to_string(path).map_err(|source| SuiteError::Read { path: path.into(), source })?;
    toml::from_str(&text).map_err(|err| SuiteError::Malformed { path: path.into(), message: err.to_string() })
}

/// Scores the sets by name. Figures that are kept under the same key are taken as they are; each run is kept as soon
/// as it is done. The registries of `settings` are replaced by those of the sets.
///
/// # Errors
/// [`SuiteError`]; what was done until then stays kept.
pub async fn score_suite(
    suite: &Suite,
    settings: &Settings,
    progress: &(dyn Fn(&str, Run, Progress) + Sync),
) -> Result<Vec<SetFigures>, SuiteError> {
    std::fs::create_dir_all(&suite.kept).map_err(|source| SuiteError::Write { path: suite.kept.clone(), source })?;
    let mut all = Vec::new();
    for set in sets::chosen(&suite.sets, &suite.only)? {
        let path = suite.kept.join(format!("{}.json", set.name));
        let mut figures = SetFigures { set: set.name.clone(), ..read_kept(&path) };
        let planned = runs(suite, &set);
        figures.runs.retain(|name, _| planned.iter().any(|run| run.as_str() == name));
        for run in planned {
            let key = key(suite, &set, run)?;
            if figures.runs.get(run.as_str()).is_none_or(|kept| kept.key != key) {
                let report = score(suite, &set, run, settings, progress).await?;
                figures.runs.insert(run.as_str().to_owned(), KeptRun { key, report });
                write_whole(&path, &serde_json::to_string_pretty(&figures).expect("figures are JSON"))?;
            }
        }
        all.push(figures);
    }
    Ok(all)
}

async fn score(
    suite: &Suite,
    set: &Set,
    run: Run,
    settings: &Settings,
    progress: &(dyn Fn(&str, Run, Progress) + Sync),
) -> Result<Value, SuiteError> {
    let (stage, examples) = match run {
        Run::Prefilter => (Stage::Prefilter, None),
        Run::Examples(count) => (Stage::Prefilter, Some((count, set.queries.clone()))),
        Run::Route | Run::Candidates | Run::HiddenAnswers => (Stage::Route, None),
    };
    let options = Options {
        queries: set.queries.clone(),
        stage,
        candidates: run == Run::Candidates,
        examples,
        baselines: stage == Stage::Prefilter,
        hide_answers: run == Run::HiddenAnswers,
        limit: suite.limit,
        seed: suite.seed,
        confusions: false,
    };
    let settings = Settings { registries: vec![set.registry.clone()], ..settings.clone() };
    let report = evaluate(&options, settings, &|at| progress(&set.name, run, at)).await;
    Ok(report.map_err(|source| SuiteError::Eval { set: set.name.clone(), source })?.to_json())
}

fn runs(suite: &Suite, set: &Set) -> Vec<Run> {
    let plan = suite.plan.sets.get(&set.name).cloned().unwrap_or_default();
    let mut runs = vec![Run::Prefilter, Run::Route];
    runs.extend(plan.examples.map(Run::Examples));
    runs.extend(plan.candidates.then_some(Run::Candidates));
    runs.extend(plan.hide_answers.then_some(Run::HiddenAnswers));
    runs
}

/// Hash of the program's key, the set's files and the run.
fn key(suite: &Suite, set: &Set, run: Run) -> Result<String, SuiteError> {
    let mut hash = Sha256::new();
    hash.update(format!("{}\n{run:?}\n{:?}\n{}\n", suite.key, suite.limit, suite.seed));
    for path in [&set.registry, &set.queries, &set.registry.with_file_name("tools.variants.jsonl")] {
        match std::fs::read(path) {
            Ok(bytes) => hash.update(Sha256::digest(bytes)),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => hash.update([0]),
            Err(source) => return Err(SuiteError::Read { path: path.clone(), source }),
        }
    }
    Ok(hex(&hash.finalize()))
}

/// What cannot be read is scored anew.
fn read_kept(path: &Path) -> SetFigures {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Writes beside `path` first, so that a reader never sees half a file.
///
/// # Errors
/// [`SuiteError::Write`].
pub fn write_whole(path: &Path, text: &str) -> Result<(), SuiteError> {
    let failed = |source| SuiteError::Write { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = folder.join(name);
    std::fs::write(&beside, text).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Figures of a set with one run.
    pub fn kept(set: &str, run: &str, report: Value) -> SetFigures {
        SetFigures { set: set.into(), runs: [(run.to_owned(), KeptRun { key: "k".into(), report })].into() }
    }

    fn suite(sets: &Path) -> Suite {
        let plan = Plan {
            sets: [("b".to_owned(), SetPlan { examples: Some(5), candidates: true, ..SetPlan::default() })].into(),
        };
        Suite {
            sets: sets.into(),
            kept: sets.join("kept"),
            only: Vec::new(),
            plan,
            limit: None,
            seed: 0,
            key: "1".into(),
        }
    }

    fn write(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        write(at("b/tools.jsonl"), "{}");
        write(at("b/queries.dev.jsonl"), "{}");
        write(at("商店/registry.yaml"), "tools: []");
        write(at("商店/tools.jsonl"), "{}");
        write(at("商店/queries.jsonl"), "{}");
        write(at("only-tools/tools.jsonl"), "{}");
        write(at("README.md"), "no set");
        folder
    }

    #[test]
    fn folders_with_tools_and_queries_are_sets() {
        let folder = folder();
        let mut suite = suite(folder.path());
        let sets = sets::chosen(&suite.sets, &suite.only).unwrap();
        assert_eq!(sets.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), ["b", "商店"]);
        assert!(sets[1].registry.ends_with("商店/registry.yaml"));
        assert_eq!(runs(&suite, &sets[0]), [Run::Prefilter, Run::Route, Run::Examples(5), Run::Candidates]);
        assert_eq!(runs(&suite, &sets[1]), [Run::Prefilter, Run::Route]);
        suite.only = vec!["商店".into()];
        assert_eq!(sets::chosen(&suite.sets, &suite.only).unwrap().len(), 1);
        suite.only = vec!["only-tools".into()];
        let error = SuiteError::from(sets::chosen(&suite.sets, &suite.only).unwrap_err());
        assert!(error.to_string().contains("no labelled set `only-tools`") && error.is_input(), "{error}");
    }

    #[test]
    fn the_key_follows_everything_figures_depend_on() {
        let folder = folder();
        let first = suite(folder.path());
        let set = sets::chosen(&first.sets, &first.only).unwrap().remove(0);
        let of = |suite: &Suite, run| key(suite, &set, run).unwrap();
        let before = of(&first, Run::Prefilter);
        assert_eq!(of(&first, Run::Prefilter), before);
        assert_ne!(of(&first, Run::Route), before);
        assert_ne!(of(&Suite { key: "2".into(), ..first.clone() }, Run::Prefilter), before);
        assert_ne!(of(&Suite { limit: Some(3), ..first.clone() }, Run::Prefilter), before);
        write(folder.path().join("b/tools.variants.jsonl"), "{}");
        assert_ne!(of(&first, Run::Prefilter), before);
    }

    #[test]
    fn kept_figures_come_back_and_broken_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/shop.json");
        let report = serde_json::json!({"recall": {"5": 0.5}});
        let figures = kept("shop", "route", report);
        write_whole(&path, &serde_json::to_string(&figures).unwrap()).unwrap();
        assert_eq!(read_kept(&path), figures);
        write_whole(&path, "{\"set\":").unwrap();
        assert_eq!(read_kept(&path), SetFigures::default());
    }
}
