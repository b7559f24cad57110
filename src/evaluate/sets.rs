//! Which folders are labelled sets.

use std::path::{Path, PathBuf};

/// Files a set's registry may be in, the first that is there.
const REGISTRIES: [&str; 2] = ["registry.yaml", "tools.jsonl"];
/// Files a set's labelled utterances may be in, the first that is there.
const QUERIES: [&str; 2] = ["queries.dev.jsonl", "queries.jsonl"];

/// A folder with a registry and labelled utterances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    pub name: String,
    pub registry: PathBuf,
    pub queries: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum SetsError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(
        "{} holds no labelled set{}: a folder with one of {} and one of {}",
        .sets.display(), .named.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default(),
        REGISTRIES.join(", "), QUERIES.join(", ")
    )]
    None { sets: PathBuf, named: Option<String> },
}

/// The sets below `folder`, by name; those of `only` unless it is empty. Folders without queries are no sets.
///
/// # Errors
/// [`SetsError::None`] when there is none, or one that was named is not there.
pub(super) fn chosen(folder: &Path, only: &[String]) -> Result<Vec<Set>, SetsError> {
    let mut sets = find(folder).map_err(|source| SetsError::Read { path: folder.to_owned(), source })?;
    let none = |named| Err(SetsError::None { sets: folder.to_owned(), named });
    if let Some(missing) = only.iter().find(|name| !sets.iter().any(|set| set.name == **name)) {
        return none(Some(missing.clone()));
    }
    sets.retain(|set| only.is_empty() || only.contains(&set.name));
    if sets.is_empty() { none(None) } else { Ok(sets) }
}

fn find(folder: &Path) -> std::io::Result<Vec<Set>> {
    let mut sets = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let first = |names: &[&str]| names.iter().map(|name| entry.path().join(name)).find(|path| path.is_file());
        if let (Some(registry), Some(queries), Ok(name)) =
            (first(&REGISTRIES), first(&QUERIES), entry.file_name().into_string())
        {
            sets.push(Set { name, registry, queries });
        }
    }
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sets)
}
