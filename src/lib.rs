//! Pointsman: a two-stage tool router.
//!
//! The modules are listed in reading order, which is also the order of dependence: a module uses the ones above it,
//! never the ones below. `docs/ARCHITECTURE.md` is the map.

pub mod types;

pub mod telemetry;
pub mod text;
pub mod tool;

pub mod args;
pub mod store;

pub mod decision;

pub mod embed;
pub mod index;
pub mod registry;

pub mod catalog;

pub mod cache;
pub mod decide;
pub mod identity;
pub mod retrieve;
pub mod rules;

pub mod execute;
pub mod gate;
pub mod result;

pub mod pipeline;

pub mod evaluate;

pub mod config;

pub mod server;
