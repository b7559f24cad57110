//! How sure the local decider is of its first candidate.
//!
//! A logistic model over what the ranking shows, fitted for each encoder on labelled development queries with and
//! without a right tool. There is no absolute cut-off on a similarity: cosines mean different things for different
//! encoders.

use crate::types::{Candidate, Confidence, Signal};

/// What the model looks at.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Features {
    /// Cosine to the closest text of the first candidate; 0 without an encoder.
    pub similarity: f32,
    /// Fused score of the first minus that of the second candidate, at most 4.
    pub margin: f32,
    /// BM25 of the first candidate per word of the utterance, at most 3.
    pub words: f32,
    /// Share of the ids and numbers in the utterance that the tool can take; 1 when there are none.
    pub fit: f32,
    /// All required arguments stand in the conversation.
    pub complete: bool,
    /// The utterance names the tool, or the conversation has just led to it.
    pub pinned: bool,
    /// Share of the utterance's content words that stand on one of the candidates' cards; 1 without any.
    pub known: f32,
    /// Concepts the utterance shares with the tool, each worth more the fewer candidates share it; from 0 up.
    pub agrees: f32,
    /// In `[-1, 1]`: below 0 the tool's own boundaries name the utterance, above 0 those of other candidates.
    pub border: f32,
}

/// Largest margin that still says something.
const MARGIN_CAP: f32 = 4.0;
/// Largest lexical score per word that still says something.
const WORDS_CAP: f32 = 3.0;

impl Features {
    /// From the ranking; `words` is the number of tokens in the utterance.
    pub fn of_ranking(best: &Candidate, second: Option<&Candidate>, words: usize) -> Self {
        let signal = |kind| best.signals.get(&kind).copied().unwrap_or(0.0);
        let margin = second.map_or(MARGIN_CAP, |second| best.score.get() - second.score.get());
        Self {
            similarity: signal(Signal::DenseBest),
            margin: margin.clamp(0.0, MARGIN_CAP),
            words: (signal(Signal::Lexical) / words.max(1) as f32).min(WORDS_CAP),
            fit: 1.0,
            complete: false,
            pinned: signal(Signal::Named) > 0.0 || signal(Signal::History) >= 1.0,
            known: 1.0,
            agrees: 0.0,
            border: 0.0,
        }
    }
}

/// Coefficients of one encoder's model.
#[derive(Debug, Clone, Copy)]
struct Model {
    bias: f32,
    similarity: f32,
    margin: f32,
    words: f32,
    fit: f32,
    complete: f32,
    pinned: f32,
    // The last three are not fitted yet.
    known: f32,
    agrees: f32,
    border: f32,
}

const ENGLISH: Model = Model {
    bias: -5.31,
    similarity: 5.82,
    margin: 0.61,
    words: 0.92,
    fit: 1.06,
    complete: 0.78,
    pinned: 3.0,
    known: 0.0,
    agrees: 0.0,
    border: 0.0,
};
const MULTILINGUAL: Model = Model {
    bias: -32.05,
    similarity: 33.63,
    margin: 0.86,
    words: 0.69,
    fit: 0.0,
    complete: 1.31,
    pinned: 3.0,
    known: 0.0,
    agrees: 0.0,
    border: 0.0,
};
const WORDS_ONLY: Model = Model {
    bias: -3.0,
    similarity: 0.0,
    margin: 0.8,
    words: 1.2,
    fit: 1.0,
    complete: 0.6,
    pinned: 3.0,
    known: 0.0,
    agrees: 0.0,
    border: 0.0,
};

/// Probability that the first candidate is right.
pub fn local(features: &Features, english: bool) -> Confidence {
    let model = match (features.similarity > 0.0, english) {
        (false, _) => WORDS_ONLY,
        (true, true) => ENGLISH,
        (true, false) => MULTILINGUAL,
    };
    let sum = model.bias
        + model.similarity * features.similarity
        + model.margin * features.margin
        + model.words * features.words
        + model.fit * features.fit
        + model.known * features.known
        + model.agrees * features.agrees
        + model.border * features.border
        + if features.complete { model.complete } else { 0.0 }
        + if features.pinned { model.pinned } else { 0.0 };
    Confidence::new(1.0 / (1.0 + (-sum).exp()))
}
