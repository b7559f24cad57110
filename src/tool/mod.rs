//! One tool card: what its owner says about a tool, in the parts the router needs.
//!
//! Owns: the card's types, its canonical hash, the alias an LLM sees, path templates.
//! Does not know: where a card was read from (`registry`) or how its schema is applied (`args`).

mod alias;
mod card;
mod path;

pub use alias::{alias, argument_alias, is_valid_alias};
pub use card::{
    Boundary, Confirmation, ConfirmedBy, Description, Execution, HttpRun, McpRun, Run, SideEffect, ToolCard,
    canonical_json,
};
pub use path::{PathPart, path_parts};
