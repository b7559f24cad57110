//! From a file, the environment and flags to the settings of every module.
//!
//! Owns: the names and defaults of all settings, the order of layers, the report on everything that is wrong with them.
//! Does not know: what the settings do. Nothing below reads the environment; it is handed in as a map.

mod layers;
mod print;
mod raw;
mod validate;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::{identity, pipeline};

/// Names a configuration file when no flag does.
pub const FILE_VARIABLE: &str = "POINTSMAN_CONFIG";
/// `POINTSMAN_SECTION__KEY` sets `section.key`.
pub const PREFIX: &str = "POINTSMAN_";

/// Where settings come from, weakest first; defaults lie below all of them.
#[derive(Clone, Default)]
pub struct Sources {
    /// TOML file; without it the one that `POINTSMAN_CONFIG` names, if any.
    pub file: Option<PathBuf>,
    /// The process environment.
    pub env: BTreeMap<String, String>,
    /// Key and value, such as `("server.listen", "127.0.0.1:0")`. A list takes several entries.
    pub flags: Vec<(String, String)>,
}

/// Settings of the two listeners and of who may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// gRPC; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Metrics and health.
    pub http: SocketAddr,
    /// How long requests in work may take to finish after a stop.
    pub drain: Duration,
    pub max_message_bytes: usize,
    /// Who may call.
    pub identity: identity::Settings,
    /// Certificates of the gRPC port; without them it speaks in the clear.
    pub tls: Option<TlsSettings>,
    pub audit: AuditTarget,
    /// How often the files of the catalog are looked at; `None`: never.
    pub watch: Option<Duration>,
}

/// Certificates of the gRPC port. The files are read by the server, which reads them again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's chain, its own certificate first.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Authorities of client certificates; without them none is asked for.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is turned away.
    pub require_client_cert: bool,
}

/// Where the record of changes goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTarget {
    /// A line of the ordinary log and no record of its own.
    Off,
    Stderr,
    File(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Everything the program needs to know, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    pub server: ServerSettings,
    pub pipeline: pipeline::Settings,
    /// A level, or a list such as `warn,pointsman=debug`.
    pub log_level: String,
    pub log_format: LogFormat,
}

/// Settings with a record of where each came from. Holds no secret outside [`Settings`].
#[derive(Debug, Clone)]
pub struct Loaded {
    pub settings: Settings,
    /// Settings that fit but probably do not do what was meant.
    pub notices: Vec<String>,
    /// Section → key → value, secrets masked.
    values: Map<String, Value>,
    /// Dotted key → origin.
    origins: BTreeMap<String, String>,
}

impl Loaded {
    /// # Errors
    /// All [`Problems`] at once, whichever layers they are in.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let layered = layers::merge(sources, &mut problems);
        let mut notices = Vec::new();
        let settings = validate::validate(&layered, &sources.env, &mut problems, &mut notices);
        match settings {
            Some(settings) if problems.0.is_empty() => {
                let layers::Layered { values, origins, .. } = layered;
                Ok(Self { settings, notices, values: print::masked(values), origins })
            }
            _ => Err(problems),
        }
    }

    /// The effective configuration as TOML, each value with its origin in a comment; secrets are masked.
    pub fn print_text(&self) -> String {
        print::text(&self.values, &self.origins)
    }

    /// The same as `{"section": {"key": {"value", "origin"}}}`.
    pub fn print_json(&self) -> String {
        print::json(&self.values, &self.origins)
    }
}

/// One setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Dotted key; empty when the whole file is meant.
    pub key: String,
    /// File and line, variable, or flag.
    pub origin: String,
    /// What is wrong and what would be right. Never shows the value of a secret.
    pub message: String,
}

/// Everything wrong with a configuration, never empty when returned; shown one per line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    fn add(&mut self, key: &str, origin: &str, message: impl Into<String>) {
        self.0.push(Problem { key: key.into(), origin: origin.into(), message: message.into() });
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { key, origin, message }) in self.0.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            if key.is_empty() {
                write!(f, "{separator}{origin}: {message}")?;
            } else {
                write!(f, "{separator}{origin}: `{key}`: {message}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests;
