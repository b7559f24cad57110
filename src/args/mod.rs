//! Arguments: raw JSON in, arguments that satisfy one tool's schema out.
//!
//! Owns: compiling a schema, coercion where the schema says so and nothing is lost, validation, origins of values.
//! Does not know: who proposed the arguments (a model, the local extractor, a cache) or what happens with them.

mod schema;

mod conjoin;
pub(crate) mod keywords;
mod property;
mod repair;
mod resolve;

mod cost;

mod validate;

mod coerce;
mod explain;
mod origin;
mod pattern;
mod raw;

pub use origin::{Origin, Origins};
pub use property::Property;
pub(crate) use repair::object_type;
pub(crate) use resolve::local;
pub use schema::{ArgumentSchema, SchemaError};
pub use validate::{Checked, Notice, ValidArgs, validate};
