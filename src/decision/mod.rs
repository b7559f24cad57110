//! The answer to one request, its trace, and its redacted record.
//!
//! Owns: [`Decision`] and the closed set of outcomes, the decision log line and what is left out of it.
//! Does not know: how a decision was reached or how it travels.

pub mod calls;
pub mod log;
mod outcome;
pub mod redact;

pub use outcome::{
    Agreement, ClarifyOutcome, DecidedBy, Decision, Degraded, DomainScore, HandoffReason, NoToolReason, Outcome,
    PlannedCall, Repair, Shadow, Stage, Timings, TokenUse, Trace, Widened,
};
