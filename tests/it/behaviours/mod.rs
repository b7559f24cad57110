//! Proofs of the rows of `docs/BEHAVIOURS.md`, one file a group, the row's number in the function's name.

mod choice;
mod effects;
mod errors;
mod evaluation;
mod execution;
mod gate;
mod guarded;
mod lint;
mod observation;
mod parameters;
mod registry;
mod results;
mod safety;
mod snapshots;
mod strategy;
