//! A deterministic encoder without a network, for tests that need *some* vector: texts that share characters are near.

use std::sync::Arc;

use super::encoder::{Encoder, Profile};
use super::manifest::Prefix;
use super::worker::{Model, ModelError};
use super::{Embedded, Encoders, Settings};
use crate::store::Store;
use crate::types::Vector;

/// Characters beyond this are not read.
pub const HASHING_MAX_CHARS: usize = 2_000;

/// A bag of hashed runs of one to three characters, lower-cased.
#[derive(Clone, Copy)]
struct HashingModel {
    /// 1 or more.
    dim: usize,
}

impl Model for HashingModel {
    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Embedded>, ModelError> {
        texts.iter().map(|text| self.embed_one(text)).collect()
    }

    fn dim(&self) -> usize {
        self.dim
    }
}

impl HashingModel {
    fn embed_one(self, text: &str) -> Result<Embedded, ModelError> {
        // The marks make word beginnings and ends count, and give an empty text a vector too.
        let marked = std::iter::once('\u{2}').chain(text.chars().take(HASHING_MAX_CHARS)).chain(['\u{3}']);
        let chars: Vec<char> = marked.flat_map(char::to_lowercase).collect();
        let mut counts = vec![0.0f32; self.dim];
        for size in 1..=3 {
            for run in chars.windows(size) {
                counts[(fnv1a(run) % self.dim as u64) as usize] += 1.0;
            }
        }
        let truncated = text.chars().nth(HASHING_MAX_CHARS).is_some();
        let vector = Vector::normalised(counts).map_err(|err| ModelError(err.to_string()))?;
        Ok(Embedded { vector, truncated })
    }
}

impl Encoders {
    /// One hashing encoder named `hashing` for all languages, with `dim` (1 or more) components and a store in memory.
    ///
    /// # Panics
    /// If the store or the thread cannot be made: tests have no other way on.
    pub fn hashing(dim: usize) -> Self {
        let store = Arc::new(Store::in_memory().expect("a store in memory can be made"));
        Self::of(vec![hashing_encoder("hashing", &["zh", "en"], dim, store)])
    }
}

/// A hashing encoder under a name and with languages of choice.
///
/// # Panics
/// If its thread cannot be started.
pub fn hashing_encoder(name: &str, languages: &[&str], dim: usize, store: Arc<Store>) -> Arc<Encoder> {
    let dim = dim.max(1);
    let profile = Profile {
        name: name.to_owned(),
        dim,
        languages: languages.iter().map(|language| (*language).to_owned()).collect(),
        prefix: Prefix::default(),
        fusion: None,
        confidence: None,
        fingerprint: format!("hashing {dim}"),
    };
    let loader = Arc::new(move || Ok(Box::new(HashingModel { dim }) as Box<dyn Model>));
    Arc::new(Encoder::start(profile, loader, &settings(), store, Arc::default()).expect("a thread can be started"))
}

/// Settings that name no encoder.
pub(super) fn settings() -> Settings {
    Settings {
        models_dir: std::path::PathBuf::new(),
        encoders: Vec::new(),
        onnxruntime: None,
        threads: 1,
        max_batch: 32,
        queue: 1024,
    }
}

/// FNV-1a over the characters' bytes: the same on every machine and in every version.
fn fnv1a(chars: &[char]) -> u64 {
    chars
        .iter()
        .flat_map(|c| u32::from(*c).to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
