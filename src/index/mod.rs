//! Immutable search structures: dense (exact scan or HNSW) and lexical (BM25).
//!
//! Owns: finding rows near a vector and scoring documents by words, deterministically.
//! Does not know: what a row or a document stands for, nor who may see it.

mod cover;
mod dense;
mod exact;
mod graph;
mod lexical;
mod rank;
mod recall;
#[cfg(test)]
mod sample;
mod terms;
mod walk;

pub use cover::CoverIndex;
pub use dense::{DenseIndex, IndexError, Mode, Settings};
pub use lexical::LexicalIndex;
pub use recall::RecallWatch;
pub use terms::{Bag, Terms};
