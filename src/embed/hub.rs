//! Encoders by model name from a Hugging Face compatible hub. Needs the network at the first load.
//!
//! Owns: the choice of a network for a name, the prefixes and languages its family is known to use.

use std::sync::Arc;

use fastembed::{AutoDevicePolicy, EmbeddingModel, QuantizationMode, TextEmbedding, TextInitOptions};
use ort::environment::Environment;
use sha2::{Digest, Sha256};

use super::EmbedError;
use super::encoder::{Loader, Profile};
use super::manifest::Prefix;
use super::onnx::{OnnxModel, SPINNING};
use super::worker::{Model, ModelError};
use crate::types::encoding::hex;

/// Tokens read of a text: longer inputs cost memory with the square of their length.
const MAX_TOKENS: usize = 512;

/// What stands behind the fingerprint: see [`fingerprint`].
const PROBE: [&str; 2] = ["where is my order 10086", "我的订单 10086 到哪了"];

/// Downloads `name`, such as `intfloat/multilingual-e5-small`, or takes it from the hub's cache on disk.
pub(super) fn open(name: &str, environment: &Environment, threads: usize) -> Result<(Profile, Loader), EmbedError> {
    let fail = |message: String| EmbedError::Model { name: name.to_owned(), message };
    let info = TextEmbedding::list_supported_models()
        .into_iter()
        .filter(|info| info.model_code.eq_ignore_ascii_case(name))
        // Dynamically quantised networks give vectors that depend on the batch: queries would not match documents.
        .find(|info| TextEmbedding::get_quantization_mode(&info.model) != QuantizationMode::Dynamic)
        .ok_or_else(|| fail("no model of that name can be used from the hub".to_owned()))?;
    let (model, dim, environment) = (info.model, info.dim, environment.clone());
    let load = {
        let name = name.to_owned();
        move || {
            load(&model, dim, environment.clone(), threads)
                .map_err(|ModelError(message)| EmbedError::Model { name: name.clone(), message })
        }
    };
    let fingerprint = fingerprint(name, &mut load()?).map_err(|ModelError(message)| fail(message))?;
    let profile = Profile {
        name: name.to_owned(),
        dim,
        languages: languages(name).iter().map(|language| (*language).to_owned()).collect(),
        prefix: prefix(name),
        fusion: None,
        confidence: None,
        fingerprint,
    };
    let loader: Loader = Arc::new(move || Ok(Box::new(load()?) as Box<dyn Model>));
    Ok((profile, loader))
}

fn load(model: &EmbeddingModel, dim: usize, environment: Environment, threads: usize) -> Result<OnnxModel, ModelError> {
    let options = TextInitOptions::new(model.clone())
        .with_environment(environment)
        .with_max_length(MAX_TOKENS)
        .with_intra_threads(threads.max(1))
        .with_session_config(SPINNING.0, SPINNING.1)
        .with_auto_device(AutoDevicePolicy::PreferCPU)
        .with_show_download_progress(false);
    let network = TextEmbedding::try_new(options).map_err(|err| {
        ModelError(format!("it cannot be loaded from the hub: {err}; check the network and the name"))
    })?;
    OnnxModel::new(network, dim, MAX_TOKENS)
}

/// A name on the hub may stand for other files tomorrow, so the vectors of two fixed texts are part of the key under
/// which vectors are stored.
fn fingerprint(name: &str, model: &mut OnnxModel) -> Result<String, ModelError> {
    let mut hash = Sha256::new();
    hash.update(format!("hub\n{name}\n{MAX_TOKENS}\n"));
    for embedded in model.embed(&PROBE)? {
        for component in embedded.vector.as_slice() {
            hash.update(component.to_le_bytes());
        }
    }
    Ok(hex(&hash.finalize()))
}

/// By family, as the models' own pages ask for.
fn prefix(name: &str) -> Prefix {
    let name = name.to_ascii_lowercase();
    let has = |part: &str| name.contains(part);
    let (query, passage) = if has("e5-") {
        ("query: ", "passage: ")
    } else if has("nomic-embed") || has("modernbert-embed") {
        ("search_query: ", "search_document: ")
    } else if has("bge-") && has("-en") || has("mxbai-embed") || has("snowflake-arctic") {
        ("Represent this sentence for searching relevant passages: ", "")
    } else if has("bge-") && has("-zh") {
        ("为这个句子生成表示以用于检索相关文章：", "")
    } else if has("embeddinggemma") {
        ("task: search result | query: ", "title: none | text: ")
    } else {
        ("", "")
    };
    Prefix { query: query.to_owned(), passage: passage.to_owned() }
}

/// By family; a multilingual network reads more than is listed, which `Language::Other` stands for.
fn languages(name: &str) -> &'static [&'static str] {
    let name = name.to_ascii_lowercase();
    if ["multilingual", "bge-m3", "embeddinggemma"].iter().any(|part| name.contains(part)) {
        &["zh", "en", "other"]
    } else if name.contains("-zh") {
        &["zh"]
    } else {
        &["en"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_bring_their_prefixes_and_languages() {
        assert_eq!(prefix("intfloat/multilingual-e5-small").query, "query: ");
        assert_eq!(languages("intfloat/multilingual-e5-small"), ["zh", "en", "other"]);
        assert_eq!(prefix("Xenova/bge-small-zh-v1.5").passage, "");
        assert!(prefix("Xenova/bge-small-zh-v1.5").query.starts_with("为这个句子"));
        assert_eq!(languages("Xenova/bge-small-zh-v1.5"), ["zh"]);
        assert_eq!(prefix("Qdrant/all-MiniLM-L6-v2-onnx"), Prefix::default());
        assert_eq!(languages("Qdrant/all-MiniLM-L6-v2-onnx"), ["en"]);
    }
}
