//! Figures that others have published on the same sets, and how far they can be compared.

use serde::Deserialize;

/// A file of published figures, read from TOML.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Published {
    pub results: Vec<PublishedResult>,
}

/// What one source says about one set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedResult {
    pub set: String,
    /// What was measured, and on which part of the set.
    pub metric: String,
    pub source: String,
    pub comparable: Comparable,
    /// Why it can be compared, or why not.
    pub why: String,
    /// Our figure to set beside it.
    pub ours: Option<Ours>,
    /// System and value as published.
    pub values: Vec<(String, f64)>,
}

/// A figure of a run of the same set.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ours {
    pub run: String,
    /// Its path, such as `by.subset.similar.top1`.
    pub figure: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparable {
    Yes,
    /// The same question on nearly the same rows.
    Nearly,
    No,
}

impl Comparable {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Nearly => "nearly",
            Self::No => "no",
        }
    }
}
