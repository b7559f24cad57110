//! Cards and their indices at one version, immutable, swapped as one pointer.
//!
//! Owns: which texts of a card are embedded and which words are indexed, versions, the swap.
//! Does not know: who asks and what for.

mod build;
mod centre;
mod handle;
mod kept;
mod names;
mod overlap;
mod rows;
#[cfg(test)]
mod tests;
mod texts;
mod tool;
mod typed;

pub use build::{BuildError, BuildReport, Catalog, CatalogBuilder};
pub use centre::Centre;
pub use handle::{CatalogHandle, Change, Published, Serving};
pub use names::NameIndex;
pub use overlap::{Overlaps, Readers};
pub use rows::DenseRows;
pub use tool::Tool;
pub use typed::Vocabulary;
