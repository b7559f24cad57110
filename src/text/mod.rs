//! From an utterance to a checked [`Query`]: cleaned text, language, slots, words.
//!
//! Owns: normalising, language, slot masking, clauses, tokenising for the lexical index, common words and how they sound, how many
//! tokens a text is.
//! Does not know: tools, schemas, or what a slot will be used for.

pub mod clauses;
mod estimate;
mod foreign;
pub mod language;
pub mod lexicon;
pub mod normalise;
pub mod pinyin;
mod reading;
mod simplified;
pub mod slots;
pub mod tokens;

pub use clauses::clauses;
pub use estimate::estimate_tokens;
pub use language::{Language, Tongue};
pub use normalise::{Query, TextError, normalise, to_nfkc};
pub use reading::{Change, Misspelling, Reading};
pub use simplified::{simplify, simplify_text};
pub use slots::{Slot, SlotKind};
pub use tokens::{terms, tokenise};
