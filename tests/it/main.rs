//! Everything that is tested from outside the modules, in one binary.

// Helpers outside `#[test]` functions are test code too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod behaviours;
mod cache;
mod cli;
mod docs;
mod faults;
mod language;
mod layers;
mod llm;
mod quality;
mod reload;
mod route;
mod rules;
mod scale;
mod server;
mod shutdown;
mod source;
mod support;
mod why;
