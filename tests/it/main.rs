//! Everything that is tested from outside the modules, in one binary.

// Helpers outside `#[test]` functions are test code too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod behaviours;
mod brake;
mod cache;
mod cli;
mod docs;
mod doctor;
mod endpoints;
mod execute;
mod faults;
mod field_cases;
mod fuzz_corpus;
mod gate;
mod identity;
mod import;
mod injection;
mod interleavings;
mod kill;
mod language;
mod layers;
mod lint;
mod live;
mod llm;
mod policy;
mod quality;
mod real_llm;
mod registry_faults;
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
mod versions;
mod watch;
mod why;
