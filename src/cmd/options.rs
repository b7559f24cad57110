//! Flags that commands share: where the configuration comes from, how to print.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pointsman::config::{Loaded, Settings, Sources};

use super::failure::Failure;
use super::logging;

/// How to print what a command tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Configuration file and registries.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Registry file: native YAML, TOML or JSON, flat JSON lines, or tools in the form of OpenAI, Anthropic, MCP or OpenAPI;
    /// may be given several times
    #[arg(long, value_name = "FILE")]
    registry: Vec<String>,
    /// Rule file (YAML)
    #[arg(long, value_name = "FILE")]
    rules: Option<String>,
    /// Folder with the encoders; default: beside the executable, then ./models
    #[arg(long, value_name = "DIR")]
    models: Option<String>,
    /// ONNX Runtime, the shared library or its folder; default: ORT_DYLIB_PATH, ./.runtime, then the system
    #[arg(long, value_name = "PATH")]
    onnxruntime: Option<String>,
    /// Set any configuration key, such as --set cache.min_confidence=0.9; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

impl Options {
    /// Defaults, then the file, the environment, and flags: these options and `more`.
    pub fn load(&self, more: Vec<(String, String)>) -> Result<Loaded, Failure> {
        let mut flags = self.set.clone();
        flags.extend(self.registry.iter().map(|file| ("registry.files".to_owned(), file.clone())));
        flags.extend(self.rules.iter().map(|file| ("rules.file".to_owned(), file.clone())));
        flags.extend(self.models.iter().map(|dir| ("embed.models_dir".to_owned(), dir.clone())));
        flags.extend(self.onnxruntime.iter().map(|path| ("embed.onnxruntime".to_owned(), path.clone())));
        flags.extend(more);
        let loaded = Loaded::load(&Sources { file: self.config.clone(), env: environment(), flags })?;
        // Logging starts only with these settings.
        loaded.notices.iter().for_each(|notice| eprintln!("note: {notice}"));
        Ok(loaded)
    }
}

impl Options {
    /// For commands that ask the router about many labelled rows: no decision line a row, which would bury the figures,
    /// and only warnings in the log, which starts here.
    pub fn load_for_rows(&self, more: Vec<(String, String)>) -> Result<Settings, Failure> {
        let quiet = [("log.decisions".to_owned(), "off".to_owned())];
        let mut settings = self.load(quiet.into_iter().chain(more).collect())?.settings;
        settings.log_level = "warn".into();
        logging::init(&settings)?;
        Ok(settings)
    }
}

/// The variables of this process. One that is no Unicode is none of ours.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// Refuses to go on without a registry for the `purpose`.
pub fn with_registry(settings: &Settings, purpose: &str) -> Result<(), Failure> {
    if settings.pipeline.registries.is_empty() {
        let error = anyhow::anyhow!("there is no registry to {purpose}");
        return Err(Failure::unusable(error).remedy("give one with --registry FILE"));
    }
    Ok(())
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected KEY=VALUE".into()),
    }
}
