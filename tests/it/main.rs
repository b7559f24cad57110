//! Everything that is tested from outside the modules, in one binary.

// Helpers outside `#[test]` functions are test code too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod behaviours;
mod cache;
mod cli;
mod docs;
mod doctor;
mod endpoints;
mod execute;
mod faults;
mod gate;
mod identity;
mod injection;
mod interleavings;
mod kill;
mod language;
mod layers;
mod llm;
mod policy;
mod quality;
mod real_llm;
mod reload;
mod repairs;
mod route;
mod rules;
mod scale;
mod server;
mod shutdown;
mod soak;
mod source;
mod support;
mod tls;
mod why;
