//! Which folders are labelled sets.

use std::path::PathBuf;

use super::{Options, TuneError};
use crate::evaluate::EvalError;

/// Files a set's registry may be in, the first that is there.
const REGISTRIES: [&str; 2] = ["registry.yaml", "tools.jsonl"];
const QUERIES: &str = "queries.dev.jsonl";

/// A folder with a registry and labelled utterances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    pub name: String,
    pub registry: PathBuf,
    pub queries: PathBuf,
}

/// The sets of `options`, by name.
///
/// # Errors
/// [`TuneError::NoSet`] when there is none, or one that was named is not there.
pub(super) fn chosen(options: &Options) -> Result<Vec<Set>, TuneError> {
    let failed = |source| TuneError::Read(EvalError::Read { path: options.sets.clone(), source });
    let mut sets = Vec::new();
    for entry in std::fs::read_dir(&options.sets).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let queries = entry.path().join(QUERIES);
        let registry = REGISTRIES.iter().map(|name| entry.path().join(name)).find(|path| path.is_file());
        if let (Some(registry), true, Ok(name)) = (registry, queries.is_file(), entry.file_name().into_string()) {
            sets.push(Set { name, registry, queries });
        }
    }
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(missing) = options.only.iter().find(|name| !sets.iter().any(|set| set.name == **name)) {
        return Err(TuneError::NoSet { sets: options.sets.clone(), named: Some(missing.clone()) });
    }
    sets.retain(|set| options.only.is_empty() || options.only.contains(&set.name));
    if sets.is_empty() { Err(TuneError::NoSet { sets: options.sets.clone(), named: None }) } else { Ok(sets) }
}
