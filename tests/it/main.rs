//! Everything that is tested from outside the modules, in one binary.

// Helpers outside `#[test]` functions are test code too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod behaviours;
mod cache;
mod cli;
mod docs;
mod faults;
mod layers;
mod llm;
mod reload;
mod route;
mod scale;
mod server;
mod shutdown;
mod source;
mod support;
