//! A set of tool cards: read from files or from calls, checked, one bad card never stopping the others.
//!
//! Owns: the native and the flat format, other people's forms and their translation, positions in files, quarantine,
//! differences between two sets, which changes wait for approval.
//! Does not know: vectors, indices, or how a changed set gets served.

mod card;
mod description;
mod diff;
mod fields;
mod import;
mod imported;
pub mod lint;
mod listed;
mod merge;
pub mod pin;
mod place;
mod positions;
mod run;
mod scopes;
mod source;
mod widened;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use diff::{Diff, FieldChange, diff, fields_that_differ};
pub(crate) use fields::{Fields, Report, kind, shorten};
pub use import::{Kind, detect};
pub(crate) use import::{nested_too_deeply, read_yaml};
pub use imported::{ImportOptions, import, import_text, read_source};
pub use listed::Listed;
pub(crate) use merge::PUT;
pub use merge::{from_values, load, merge, overlay};
pub use place::Place;
pub(crate) use positions::{Lines, join};
pub use scopes::{ScopeInfo, Scopes};
pub use write::to_yaml;

use crate::tool::ToolCard;
use crate::types::ToolId;

/// Cards that may be served and a report on those that may not.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    pub cards: BTreeMap<ToolId, Arc<ToolCard>>,
    /// By source, then by place in it.
    pub quarantined: Vec<Quarantined>,
    /// Things worth knowing that did not keep a card from being served.
    pub notices: Vec<String>,
    /// What the files say about scopes that cards need.
    pub scopes: Scopes,
    /// Where the cards stand, as far as it is known.
    pub places: BTreeMap<ToolId, Place>,
    /// Changes that wait for approval; what they are to replace is in `cards`.
    pub held: BTreeMap<ToolId, pin::Held>,
    /// Names of sources that another system exported.
    pub imported: BTreeSet<String>,
    /// Why these are the cards that were served last and not those of the files, when they are.
    pub last_good: Option<String>,
}

/// A card that is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Its name, or its position (`tools/3`).
    pub card: String,
    /// File, or `put`.
    pub source: String,
    /// All of them, never empty.
    pub problems: Vec<CardProblem>,
}

/// One line per problem: card, source, line, pointer, what is wrong.
impl fmt::Display for Quarantined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
            let separator = if index > 0 { "\n" } else { "" };
            let place = if problem.pointer.is_empty() { "" } else { " at " };
            write!(
                f,
                "{separator}{}{line}: `{}`{place}{}: {}",
                self.source, self.card, problem.pointer, problem.message
            )?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardProblem {
    /// JSON pointer into the card.
    pub pointer: String,
    /// 1-based line in the file.
    pub line: Option<usize>,
    pub message: String,
}

impl CardProblem {
    /// The tool that the card names and nobody knows, if this is what is wrong.
    pub fn unknown_tool(&self) -> Option<&str> {
        self.message.strip_prefix(source::UNKNOWN_TOOL)?.split('`').next()
    }
}

/// A whole file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("cannot read registry file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}{}: {message}", .line.map(|l| format!(":{l}")).unwrap_or_default())]
    Syntax { path: PathBuf, line: Option<usize>, message: String },
    #[error("the registry files hold {found} tools; at most {limit} are served, so name fewer files")]
    TooMany { found: usize, limit: usize },
}

/// ` (did you mean ...?)` when one of `known` is close to `word`, otherwise nothing.
pub(crate) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    /// Longer words are no misspelt names, and comparing them costs.
    const MAX_CHARS: usize = 64;
    let length = word.chars().count();
    if length > MAX_CHARS {
        return String::new();
    }
    let word = word.to_lowercase();
    let most = |length: usize| (length / 3).max(1);
    // Words are at least as far apart as their lengths are.
    let near = |name: &&str| {
        let of_name = name.chars().count();
        of_name <= MAX_CHARS && of_name.abs_diff(length) <= most(of_name)
    };
    let distance = |name: &str| strsim::damerau_levenshtein(&word, &name.to_lowercase());
    known
        .into_iter()
        .filter(near)
        .map(|name| (distance(name), name))
        .min()
        .filter(|(distance, name)| *distance <= most(name.chars().count()))
        .map(|(_, name)| format!(" (did you mean `{name}`?)"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_close_or_absent() {
        assert_eq!(suggest("get_ordr", ["get_order", "get_invoice"]), " (did you mean `get_order`?)");
        assert_eq!(suggest("Timeout_MS", ["timeout_ms"]), " (did you mean `timeout_ms`?)");
        assert_eq!(suggest("查询订单", ["查询订但", "退款"]), " (did you mean `查询订但`?)");
        assert_eq!(suggest("weather", ["get_order"]), "");
        assert_eq!(suggest(&"x".repeat(10_000), ["x"]), "");
    }
}
