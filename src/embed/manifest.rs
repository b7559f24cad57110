//! What a folder in `models/` says about itself, and the check that its files are the ones it names.
//!
//! Owns: `manifest.toml`, the hashes, the fingerprint under which vectors are stored.
//! Does not know: how a network is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::EmbedError;
use crate::types::encoding::hex;

/// The manifest of one encoder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub name: String,
    pub dims: usize,
    pub pooling: Pooling,
    /// Whether vectors are scaled to length 1; nothing else is supported.
    pub normalise: bool,
    /// Tokens read of a text, special ones included; the rest is cut.
    pub max_tokens: usize,
    /// Two-letter codes.
    pub languages: Vec<String>,
    pub source: String,
    pub licence: String,
    pub prefix: Prefix,
    /// Weights of its signals in a ranking by name, written by `pointsman tune`; absent until then.
    #[serde(default)]
    pub fusion: Option<BTreeMap<String, f64>>,
    /// Coefficients of the confidence model by name, written by `pointsman calibrate`; absent until then.
    #[serde(default)]
    pub confidence: Option<BTreeMap<String, f64>>,
    files: Hashes,
}

/// What the network expects in front of a text.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    pub query: String,
    pub passage: String,
}

/// How one vector is made of the vectors of all tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    Mean,
    Cls,
}

/// Contents of the files, each as its manifest says.
pub struct Files {
    pub model: Vec<u8>,
    pub tokenizer: Vec<u8>,
    pub config: Vec<u8>,
    pub special_tokens_map: Vec<u8>,
    pub tokenizer_config: Vec<u8>,
}

/// A manifest and where it was read.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    pub manifest: Manifest,
    path: PathBuf,
}

/// SHA-256 by file, in lower-case hex.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hashes {
    #[serde(rename = "model.onnx")]
    model: String,
    #[serde(rename = "tokenizer.json")]
    tokenizer: String,
    #[serde(rename = "config.json")]
    config: String,
    #[serde(rename = "special_tokens_map.json")]
    special_tokens_map: String,
    #[serde(rename = "tokenizer_config.json")]
    tokenizer_config: String,
}

/// What is kept for ranking by words alone, in `words.toml` beside the encoders' folders.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WordsManifest {
    /// As `Manifest::confidence`.
    #[serde(default)]
    pub confidence: Option<BTreeMap<String, f64>>,
}

impl WordsManifest {
    pub const FILE: &str = "words.toml";

    /// Nothing where there is no such file.
    ///
    /// # Errors
    /// [`EmbedError::Model`] naming the file when it cannot be used.
    pub fn read(models_dir: &Path) -> Result<Self, EmbedError> {
        let file = models_dir.join(Self::FILE);
        let fail = |message: String| EmbedError::Model {
            name: "words".to_owned(),
            message: format!("{}: {message}", file.display()),
        };
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(fail(error.to_string())),
        };
        let manifest: Self = toml::from_str(&text).map_err(|error| fail(error.to_string()))?;
        finite(manifest.confidence.as_ref()).map_err(fail)?;
        Ok(manifest)
    }
}

/// A coefficient that is no number would make every confidence 0.
fn finite(confidence: Option<&BTreeMap<String, f64>>) -> Result<(), String> {
    match confidence.into_iter().flatten().find(|(_, value)| !value.is_finite()) {
        Some((name, value)) => Err(format!("`confidence.{name}` is {value}; coefficients are finite numbers")),
        None => Ok(()),
    }
}

impl ModelFolder {
    /// Reads and checks the manifest of the encoder `name` below `models_dir`; its files are not opened yet.
    pub fn open(models_dir: &Path, name: &str) -> Result<Self, EmbedError> {
        let fail = |message| EmbedError::Model { name: name.to_owned(), message };
        let path = models_dir.join(name);
        let file = path.join("manifest.toml");
        let text = std::fs::read_to_string(&file).map_err(|err| {
            fail(format!("cannot read {}: {err}; check the models folder and the encoder's name", file.display()))
        })?;
        let manifest: Manifest = toml::from_str(&text).map_err(|err| fail(format!("{}: {err}", file.display())))?;
        manifest.check(name).map_err(|problem| fail(format!("{}: {problem}", file.display())))?;
        Ok(Self { manifest, path })
    }

    /// Reads all files and compares each with the manifest.
    ///
    /// # Errors
    /// Names the file, what was expected and what was found, and the remedy.
    pub fn read(&self) -> Result<Files, EmbedError> {
        let hashes = &self.manifest.files;
        Ok(Files {
            // The small files first: a folder that is wrong altogether is found out without reading the network.
            tokenizer: self.read_one("tokenizer.json", &hashes.tokenizer)?,
            config: self.read_one("config.json", &hashes.config)?,
            special_tokens_map: self.read_one("special_tokens_map.json", &hashes.special_tokens_map)?,
            tokenizer_config: self.read_one("tokenizer_config.json", &hashes.tokenizer_config)?,
            model: self.read_one("model.onnx", &hashes.model)?,
        })
    }

    fn read_one(&self, file: &str, expected: &str) -> Result<Vec<u8>, EmbedError> {
        let path = self.path.join(file);
        let fail = |message: String| EmbedError::Model { name: self.manifest.name.clone(), message };
        let bytes = std::fs::read(&path).map_err(|err| {
            fail(format!("cannot read {}: {err} (expected SHA-256 {expected}); {REMEDY}", path.display()))
        })?;
        let found = hex(&Sha256::digest(&bytes));
        if found != expected {
            return Err(fail(format!(
                "{} has SHA-256 {found} ({} bytes), the manifest says {expected}; {REMEDY}",
                path.display(),
                bytes.len()
            )));
        }
        Ok(bytes)
    }
}

const REMEDY: &str = "copy the folder again from where it came, or correct manifest.toml if the change was meant";

impl Manifest {
    /// Everything that shapes a vector, in one hash: vectors stored under it are never mixed with others.
    pub fn fingerprint(&self) -> String {
        let Hashes { model, tokenizer, config, special_tokens_map, tokenizer_config } = &self.files;
        let Self { pooling, max_tokens, .. } = self;
        hex(&Sha256::digest(format!(
            "{model}\n{tokenizer}\n{config}\n{special_tokens_map}\n{tokenizer_config}\n{pooling:?}\n{max_tokens}\n"
        )))
    }

    fn check(&self, folder: &str) -> Result<(), String> {
        if self.name != folder {
            return Err(format!("`name` is `{}`, but the folder is called `{folder}`", self.name));
        }
        if self.dims == 0 {
            return Err("`dims` must be 1 or more".to_owned());
        }
        // Two of them are taken by special tokens.
        if self.max_tokens < 3 {
            return Err("`max_tokens` must be 3 or more".to_owned());
        }
        if !self.normalise {
            return Err("`normalise = false` is not supported: similarities are cosines of unit vectors".to_owned());
        }
        if self.languages.is_empty() {
            return Err("`languages` must name at least one language".to_owned());
        }
        finite(self.confidence.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = [
        "manifest.toml",
        "model.onnx",
        "tokenizer.json",
        "config.json",
        "special_tokens_map.json",
        "tokenizer_config.json",
    ];

    fn shipped() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("models")
    }

    fn copy(to: &Path) -> PathBuf {
        let folder = to.join("minilm-l6-en");
        std::fs::create_dir(&folder).unwrap();
        for name in NAMES {
            std::fs::copy(shipped().join("minilm-l6-en").join(name), folder.join(name)).unwrap();
        }
        folder
    }

    fn message<T>(result: Result<T, EmbedError>) -> String {
        result.err().expect("the folder is not usable").to_string()
    }

    #[test]
    fn a_truncated_wrong_or_missing_file_is_named_with_both_hashes() {
        let dir = tempfile::tempdir().unwrap();
        let folder = copy(dir.path());
        let opened = ModelFolder::open(dir.path(), "minilm-l6-en").unwrap();
        let files = opened.read().unwrap();

        std::fs::write(folder.join("model.onnx"), &files.model[..files.model.len() / 2]).unwrap();
        let text = message(opened.read());
        let found = hex(&Sha256::digest(&files.model[..files.model.len() / 2]));
        assert!(text.contains("model minilm-l6-en: ") && text.contains("model.onnx has SHA-256"), "{text}");
        assert!(text.contains(&found) && text.contains(&opened.manifest.files.model), "{text}");
        assert!(text.contains("copy the folder again"), "{text}");

        std::fs::write(folder.join("config.json"), "{}").unwrap();
        assert!(message(opened.read()).contains("config.json has SHA-256"));
        std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
        let text = message(opened.read());
        assert!(text.contains("tokenizer.json") && text.contains("expected SHA-256 be50c3628f2bf5bb"), "{text}");
    }

    #[test]
    fn a_manifest_that_cannot_be_used_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let folder = copy(dir.path());
        let original = std::fs::read_to_string(folder.join("manifest.toml")).unwrap();
        let check = |from: &str, to: &str, expect: &str| {
            std::fs::write(folder.join("manifest.toml"), original.replace(from, to)).unwrap();
            let text = message(ModelFolder::open(dir.path(), "minilm-l6-en"));
            assert!(text.contains(expect) && text.contains("manifest.toml"), "{text}");
        };
        check("dims = 384", "dims = 0", "`dims` must be 1 or more");
        check("dims = 384", "dims = \"many\"", "line 3");
        check("dims = 384", "dims = 384\ndepth = 6", "unknown field `depth`");
        check("normalise = true", "normalise = false", "not supported");
        check("name = \"minilm-l6-en\"", "name = \"other\"", "the folder is called");
        check("\"config.json\" =", "\"other.json\" =", "other.json");
        check("max_tokens = 256", "max_tokens = 2", "3 or more");
        check("bias = ", "bias = nan # ", "`confidence.bias` is NaN");
        check("bias = ", "bias = \"high\" # ", "expected");
        assert!(message(ModelFolder::open(dir.path(), "nowhere")).contains("check the models folder"));
    }

    #[test]
    fn what_is_written_into_a_manifest_is_read_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = copy(dir.path());
        let before = ModelFolder::open(dir.path(), "minilm-l6-en").unwrap().manifest;
        super::super::replace_table_in(&folder.join("manifest.toml"), "confidence", "bias = -0.125\nmargin = 3")
            .unwrap();
        let after = ModelFolder::open(dir.path(), "minilm-l6-en").unwrap().manifest;
        let written = BTreeMap::from([("bias".to_owned(), -0.125), ("margin".to_owned(), 3.0)]);
        assert_eq!(after.confidence, Some(written.clone()));
        assert_eq!(Manifest { confidence: before.confidence.clone(), ..after.clone() }, before);
        assert_eq!(after.fingerprint(), before.fingerprint());

        assert_eq!(WordsManifest::read(dir.path()).unwrap(), WordsManifest::default());
        std::fs::write(dir.path().join("words.toml"), "[confidence]\nbias = -0.125\nmargin = 3\n").unwrap();
        assert_eq!(WordsManifest::read(dir.path()).unwrap().confidence, Some(written));
        std::fs::write(dir.path().join("words.toml"), "[confidence]\nbias = inf\n").unwrap();
        let text = message(WordsManifest::read(dir.path()));
        assert!(text.contains("words.toml") && text.contains("`confidence.bias` is inf"), "{text}");
    }

    #[test]
    fn the_fingerprint_follows_whatever_shapes_a_vector() {
        let manifest = ModelFolder::open(&shipped(), "minilm-l6-en").unwrap().manifest;
        let mut longer = manifest.clone();
        longer.max_tokens += 1;
        let mut other_tokenizer = manifest.clone();
        other_tokenizer.files.tokenizer = "0".repeat(64);
        let mut other_source = manifest.clone();
        other_source.source.clear();
        assert_ne!(manifest.fingerprint(), longer.fingerprint());
        assert_ne!(manifest.fingerprint(), other_tokenizer.fingerprint());
        assert_eq!(manifest.fingerprint(), other_source.fingerprint());
    }
}
