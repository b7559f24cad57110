//! What the prefilter hands on: a tool, its fused score and the signals behind it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Score, ToolId};

/// Where a part of a candidate's score comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Cosine to the centroid of the tool's positive texts, seen from the middle of the catalog.
    DenseCentroid,
    /// Cosine to the closest single positive text, likewise.
    DenseBest,
    /// BM25 over the tool's words.
    Lexical,
    /// Share of the name's words that the utterance says.
    NameCover,
    /// Share of the words of name and purpose that the utterance says.
    PurposeCover,
    /// Cosine to the closest case in which another card sends the reader here.
    Boundary,
    /// Fused score for the single wish of the utterance that fits best, as a part of that wish's best score.
    Clause,
    /// How many tools ranked before it are nearly the same.
    Crowding,
    /// The tool's name stands in the utterance.
    Named,
    /// The tool, or one that requires it, took part in the last turns.
    History,
}

impl Signal {
    pub const ALL: [Self; 10] = [
        Self::DenseCentroid,
        Self::DenseBest,
        Self::Lexical,
        Self::NameCover,
        Self::PurposeCover,
        Self::Boundary,
        Self::Clause,
        Self::Crowding,
        Self::Named,
        Self::History,
    ];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::DenseCentroid => "dense_centroid",
            Self::DenseBest => "dense_best",
            Self::Lexical => "lexical",
            Self::NameCover => "name_cover",
            Self::PurposeCover => "purpose_cover",
            Self::Boundary => "boundary",
            Self::Clause => "clause",
            Self::Crowding => "crowding",
            Self::Named => "named",
            Self::History => "history",
        }
    }
}

/// One tool on the shortlist. Ordered lists of candidates are best first, equal scores by tool id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub tool: ToolId,
    pub score: Score,
    /// Raw value of each signal that was computed, before standardising.
    pub signals: BTreeMap<Signal, f32>,
}

/// Which dense index answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexKind {
    Exact,
    Hnsw,
}

impl IndexKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Hnsw => "hnsw",
        }
    }
}
