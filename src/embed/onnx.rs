//! An encoder from a folder, run by ONNX Runtime through fastembed.
//!
//! Owns: session options, cutting long texts and saying so.
//! Does not know: queues, prefixes or stores.

use std::path::Path;
use std::sync::Arc;

use fastembed::{
    AutoDevicePolicy, InitOptionsUserDefined, Pooling as FastembedPooling, TextEmbedding, TokenizerFiles,
    UserDefinedEmbeddingModel,
};
use ort::environment::Environment;

use super::encoder::{Loader, Profile};
use super::manifest::{Files, Manifest, ModelFolder, Pooling};
use super::worker::{Model, ModelError};
use super::{EmbedError, Embedded};
use crate::types::Vector;

/// A token spans a handful of characters; beyond this many per token the rest of a text is not even tokenised, so that
/// a huge text costs no more than a long one.
const MAX_CHARS_PER_TOKEN: usize = 32;

/// Options of every session, whoever builds it. Threads do not spin while they wait: several sessions share the cores.
pub(super) const SPINNING: (&str, &str) = ("session.intra_op.allow_spinning", "0");

/// Reads the manifest of `name`; the loader reads the files, checks them and builds a session.
pub(super) fn open(
    models_dir: &Path,
    name: &str,
    environment: &Environment,
    threads: usize,
) -> Result<(Profile, Loader), EmbedError> {
    let folder = ModelFolder::open(models_dir, name)?;
    let profile = Profile {
        name: folder.manifest.name.clone(),
        dim: folder.manifest.dims,
        languages: folder.manifest.languages.clone(),
        prefix: folder.manifest.prefix.clone(),
        fusion: folder.manifest.fusion.clone(),
        confidence: folder.manifest.confidence.clone(),
        fingerprint: folder.manifest.fingerprint(),
    };
    let environment = environment.clone();
    let loader: Loader = Arc::new(move || {
        let model = OnnxModel::load(&folder, environment.clone(), threads)?;
        Ok(Box::new(model) as Box<dyn Model>)
    });
    Ok((profile, loader))
}

/// A network with its tokenizer.
pub(super) struct OnnxModel {
    network: TextEmbedding,
    dim: usize,
    max_tokens: usize,
}

impl OnnxModel {
    fn load(folder: &ModelFolder, environment: Environment, threads: usize) -> Result<Self, EmbedError> {
        let fail = |message| EmbedError::Model { name: folder.manifest.name.clone(), message };
        let Files { model, tokenizer, config, special_tokens_map, tokenizer_config } = folder.read()?;
        let Manifest { dims, pooling, max_tokens, .. } = folder.manifest;
        let files = TokenizerFiles {
            tokenizer_file: tokenizer,
            config_file: config,
            special_tokens_map_file: special_tokens_map,
            tokenizer_config_file: tokenizer_config,
        };
        let pooling = match pooling {
            Pooling::Mean => FastembedPooling::Mean,
            Pooling::Cls => FastembedPooling::Cls,
        };
        // fastembed sets truncation to `max_tokens` and padding to the longest of a batch, over what the file says.
        let options = InitOptionsUserDefined::new()
            .with_environment(environment)
            .with_max_length(max_tokens)
            .with_intra_threads(threads.max(1))
            .with_session_config(SPINNING.0, SPINNING.1)
            .with_auto_device(AutoDevicePolicy::PreferCPU);
        let network = TextEmbedding::try_new_from_user_defined(
            UserDefinedEmbeddingModel::new(model, files).with_pooling(pooling),
            options,
        )
        .map_err(|err| fail(format!("onnx runtime does not load it: {err}")))?;
        Self::new(network, dims, max_tokens).map_err(|ModelError(message)| fail(message))
    }

    /// Runs the network once: a wrong dimension is found now, and the first request is as fast as the next.
    pub(super) fn new(network: TextEmbedding, dim: usize, max_tokens: usize) -> Result<Self, ModelError> {
        let mut model = Self { network, dim, max_tokens };
        let trial = model.embed(&["ready"])?;
        match trial.first().map(|embedded| embedded.vector.dim()) {
            Some(found) if found == dim => Ok(model),
            found => Err(ModelError(format!("its vectors have {} components, not {dim}", found.unwrap_or(0)))),
        }
    }

    /// Whether the tokenizer cut `text`. fastembed cuts without a word, so it is asked separately.
    fn is_cut(&self, text: &str) -> Result<bool, ModelError> {
        let tokens = self.network.tokenizer.encode_fast(text, true).map_err(|err| ModelError(err.to_string()))?;
        Ok(!tokens.get_overflowing().is_empty())
    }
}

impl Model for OnnxModel {
    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Embedded>, ModelError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let clipped: Vec<&str> = texts.iter().map(|text| clip(text, self.max_tokens * MAX_CHARS_PER_TOKEN)).collect();
        let mut components = vec![Vec::new(); texts.len()];
        for batch in like_lengths(&clipped) {
            let of_batch: Vec<&str> = batch.iter().map(|at| clipped[*at]).collect();
            let found = self
                .network
                .embed(&of_batch, Some(of_batch.len()))
                .map_err(|err| ModelError(format!("inference failed: {err}")))?;
            batch.into_iter().zip(found).for_each(|(at, found)| components[at] = found);
        }
        texts
            .iter()
            .zip(clipped)
            .zip(components)
            .map(|((text, clipped), components)| {
                let truncated = clipped.len() < text.len() || self.is_cut(clipped)?;
                let vector = Vector::normalised(components).map_err(|err| ModelError(err.to_string()))?;
                Ok(Embedded { vector, truncated })
            })
            .collect()
    }

    fn dim(&self) -> usize {
        self.dim
    }
}

/// The texts' numbers in runs of like length: the network pads a batch to its longest text, so a short one beside a long
/// one costs as much as that.
fn like_lengths(texts: &[&str]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|at| (texts[*at].len(), *at));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut shortest = 0;
    for at in order {
        match batches.last_mut() {
            Some(batch) if texts[at].len() <= shortest * 3 / 2 + 8 => batch.push(at),
            _ => {
                shortest = texts[at].len();
                batches.push(vec![at]);
            }
        }
    }
    batches
}

/// The first `max_chars` characters.
fn clip(text: &str, max_chars: usize) -> &str {
    text.char_indices().nth(max_chars).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_like_length_share_a_run() {
        let (long, short) = ("x".repeat(300), "y".repeat(30));
        assert_eq!(like_lengths(&[&long, &short, "yes", &short]), [vec![2], vec![1, 3], vec![0]]);
        assert_eq!(like_lengths(&[]), [[0usize; 0]; 0]);
    }

    #[test]
    fn clipping_counts_characters_not_bytes() {
        assert_eq!(clip("退货退款", 2), "退货");
        assert_eq!(clip("退货", 2), "退货");
        assert_eq!(clip("", 2), "");
    }
}
