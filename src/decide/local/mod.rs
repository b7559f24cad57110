//! The local decider: no model, grounded arguments only.
//!
//! Owns: reading arguments off the utterance, weighing candidates by what they can take, abstaining.
//! Does not know: whether it stands in for an LLM (`super::settle` applies that mode's limits).

mod choose;
pub(super) mod extract;
mod pin;
mod resume;
mod verdict;
mod weigh;

mod borders;
mod concepts;
mod follow;
mod known;
mod signs;

pub use choose::{Weight, decide, first_choice, read_arguments, weights};
pub use extract::{Extraction, extract};
pub use pin::pin;
pub use resume::{Resumed, resume};

pub(super) use verdict::clarify;

/// From which confidence on the local decider acts.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Least confidence for a call of a read tool.
    pub min_confidence: f32,
    /// Least confidence for a call of a write or destructive tool.
    pub min_confidence_write: f32,
    /// Below this no tool is named at all.
    pub no_tool_below: f32,
}
