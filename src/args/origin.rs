//! Where an argument's value comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Source of one value. On write and destructive tools an [`Origin::Inferred`] value of a required field turns the
/// call into a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Origin {
    /// Copied from the normalised utterance, byte range.
    Utterance { start: usize, end: usize },
    /// Stands in an earlier turn.
    History,
    /// Supplied by the session, never by a model.
    Session,
    /// The schema's default.
    Default,
    /// The utterance holds words that the schema ties to this enum value.
    EnumText,
    /// A constant of the rule that decided.
    Rule,
    /// None of these: somebody concluded it.
    Inferred,
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Utterance { .. } => "utterance",
            Self::History => "history",
            Self::Session => "session",
            Self::Default => "default",
            Self::EnumText => "enum_text",
            Self::Rule => "rule",
            Self::Inferred => "inferred",
        }
    }
}

/// Top-level argument name → origin of its value.
pub type Origins = BTreeMap<String, Origin>;
