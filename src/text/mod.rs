//! From an utterance to a checked [`Query`]: cleaned text, language, slots, words.
//!
//! Owns: normalising, language by script, slot masking, clauses, tokenising for the lexical index.
//! Does not know: tools, schemas, or what a slot will be used for.

pub mod clauses;
pub mod language;
pub mod normalise;
pub mod slots;
pub mod tokens;

pub use clauses::clauses;
pub use language::Language;
pub use normalise::{Query, TextError, normalise, to_nfkc};
pub use slots::{Slot, SlotKind};
pub use tokens::{terms, tokenise};
