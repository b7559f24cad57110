//! Cards and their indices at one version, immutable, swapped as one pointer.
//!
//! Owns: which texts of a card are embedded and which words are indexed, versions, the swap.
//! Does not know: who asks and what for.

mod build;
mod handle;
mod names;
#[cfg(test)]
mod tests;
mod texts;
mod tool;

pub use build::{BuildError, BuildReport, Catalog, CatalogBuilder, DenseRows};
pub use handle::{CatalogHandle, Published};
pub use names::NameIndex;
pub use tool::Tool;
