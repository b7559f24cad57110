//! Text to vectors: encoders on their own threads, one vector space each.
//!
//! Owns: model manifests, ONNX Runtime, the worker thread with micro-batches, prefixes, reuse of stored vectors.
//! Does not know: tools or indices.

mod encoder;
mod encoders;
#[cfg(feature = "hub")]
mod hub;
mod manifest;
mod onnx;
mod runtime;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod traffic;
mod worker;

use std::path::PathBuf;

pub use encoder::Encoder;
pub use encoders::Encoders;
pub use manifest::WordsManifest;
pub use table::{TableError, replace_table, replace_table_in};
pub use worker::{Model, ModelError};

use crate::types::Vector;

/// How encoders are loaded and run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Folder with one sub-folder per encoder.
    pub models_dir: PathBuf,
    /// Encoders to load, by folder name; `owner/model` is one of a hub (`hub` feature).
    pub encoders: Vec<String>,
    /// The ONNX Runtime library, or its folder; where it is not set, the usual places are looked at.
    pub onnxruntime: Option<PathBuf>,
    /// Threads per session, 1 or more; an encoder has one session for queries and one for documents.
    pub threads: usize,
    /// Most texts in one run of the model.
    pub max_batch: usize,
    /// Waiting texts beyond which a request is refused at once.
    pub queue: usize,
}

/// Why a text has no vector.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    #[error("too many texts are waiting to be embedded")]
    Overloaded,
    #[error("the encoder has stopped")]
    Stopped,
    #[error("no vector within the deadline")]
    Deadline,
    /// ONNX Runtime is not on this machine; the message says which command fixes it.
    #[error("{0}")]
    NoRuntime(String),
    #[error("model {name}: {message}")]
    Model { name: String, message: String },
}

/// The vector of one text.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    pub vector: Vector,
    /// The encoder read only the beginning of the text.
    pub truncated: bool,
}

/// The vectors of many texts and what making them took.
#[derive(Debug, Clone, PartialEq)]
pub struct Documents {
    /// One per text, in order.
    pub vectors: Vec<Vector>,
    /// How many different texts were not stored yet.
    pub embedded_now: usize,
    /// How many texts were longer than the encoder reads.
    pub truncated: usize,
    /// Which those are.
    pub is_truncated: Vec<bool>,
}
