//! From a file to raw cards: bytes, syntax, positions. What a card has to say is checked later, the same way for all.

mod anthropic;
mod draft;
mod flat;
mod json;
mod kind;
mod mcp;
mod native;
mod openai;
mod openapi;
mod toml;
mod yaml;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use self::kind::{Kind, detect};
pub(super) use self::native::{MAX_SOURCE_NAME_BYTES, SOURCE_NAME, is_source_name};
pub(crate) use self::toml::nested_too_deeply;
use super::positions::Lines;
use super::scopes::Scopes;
use super::{CardProblem, RegistryError};

/// Larger files are refused before they are parsed.
pub(super) const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;
/// Commas, line ends and opening brackets in one file, which bound the values in it: a parsed value takes far more room
/// than its two bytes.
const MAX_MARKS: usize = 4_000_000;
/// Deepest nesting of mappings and lists.
pub(super) const MAX_DEPTH: usize = 100;

/// How much a card has to state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Class, timeout and scopes are required; references must exist.
    Native,
    /// Name, description and parameters; everything else has a default.
    Flat,
    /// As flat. Such cards were translated from somebody else's form, or stand in a file with the keys of a native one
    /// that was written from them, so what they leave open is told.
    Imported,
}

impl Format {
    /// Whether what is missing has a default and what cannot be applied is left out.
    pub fn is_lenient(self) -> bool {
        match self {
            Self::Native => false,
            Self::Flat | Self::Imported => true,
        }
    }
}

/// How somebody else's form is read.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    /// Hints that lower the class of a tool are believed.
    pub trust_hints: bool,
    /// The target of the operator's settings that runs MCP tools.
    pub target: Option<String>,
    /// What the operator says of all tools of an MCP server.
    pub domain: Option<String>,
    pub permissions: Vec<String>,
}

/// One entry of a file, not yet checked.
#[derive(Debug)]
pub(super) struct RawCard {
    pub value: Value,
    pub lines: Lines,
    /// `tools/3`, used while there is no name.
    pub position: String,
    /// What the syntax already tells is wrong: repeated keys, values JSON cannot hold.
    pub flaws: Vec<CardProblem>,
    /// Pointer and words for what its translation left out or changed.
    pub notes: Vec<(String, String)>,
}

impl RawCard {
    pub fn new(value: Value, lines: Lines, position: String) -> Self {
        Self { value, lines, position, flaws: Vec::new(), notes: Vec::new() }
    }
}

/// One file, parsed.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// As it was asked for.
    pub path: PathBuf,
    pub format: Format,
    /// The name the file gives to its registry.
    pub declared: Option<String>,
    /// Domains the file lists; empty when it lists none.
    pub domains: BTreeSet<String>,
    /// What the file says about scopes.
    pub scopes: Scopes,
    pub cards: Vec<RawCard>,
    pub notices: Vec<String>,
}

/// A parsed text with its lines. Flaws concern a part; the rest of the document is usable.
#[derive(Debug)]
struct Document {
    value: Value,
    lines: Lines,
    flaws: Vec<CardProblem>,
}

/// Why a text cannot be parsed at all.
#[derive(Debug, PartialEq, Eq)]
struct SyntaxError {
    line: Option<usize>,
    message: String,
}

impl SyntaxError {
    fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), message: message.into() }
    }

    fn of(self, path: &Path) -> RegistryError {
        RegistryError::Syntax { path: path.into(), line: self.line, message: self.message }
    }
}

/// Reads a registry file: its name tells the syntax, its content the kind.
pub(super) fn read(path: &Path) -> Result<SourceFile, RegistryError> {
    let text = read_text(path)?;
    let parsed = match extension(path).as_str() {
        "yaml" | "yml" => yaml::parse(&text).and_then(|document| by_kind(None, path, document, &Reading::default())),
        "json" => json::parse(&text).and_then(|document| by_kind(None, path, document, &Reading::default())),
        "toml" => toml::parse(&text).and_then(|document| native::read(path, document)),
        "jsonl" | "ndjson" => Ok(flat::read(path, &text)),
        _ => Err(SyntaxError {
            line: None,
            message: "unknown kind of registry file; name it .yaml, .yml, .json (native, OpenAI, Anthropic, MCP or \
                      OpenAPI), .toml (native) or .jsonl (one tool per line)"
                .into(),
        }),
    };
    parsed.map_err(|error| error.of(path))
}

/// Reads a text of any of the kinds, whatever it is called; without `kind` its content tells.
pub(super) fn read_as(
    kind: Option<Kind>,
    path: &Path,
    text: &str,
    reading: &Reading,
) -> Result<SourceFile, RegistryError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = match extension(path).as_str() {
        "toml" => toml::parse(text).and_then(|document| native::read(path, document)),
        "jsonl" | "ndjson" => Ok(flat::read(path, text)),
        "yaml" | "yml" => yaml::parse(text).and_then(|document| by_kind(kind, path, document, reading)),
        _ if is_lines(text) => Ok(flat::read(path, text)),
        _ if text.trim_start().starts_with(['{', '[']) => {
            json::parse(text).and_then(|document| by_kind(kind, path, document, reading))
        }
        _ => yaml::parse(text).and_then(|document| by_kind(kind, path, document, reading)),
    };
    parsed.map_err(|error| error.of(path))
}

/// Tools that came from an MCP server.
pub(super) fn listed(name: &str, tools: Vec<Value>, reading: &Reading) -> SourceFile {
    mcp::listed(name, tools, reading)
}

fn by_kind(kind: Option<Kind>, path: &Path, document: Document, reading: &Reading) -> Result<SourceFile, SyntaxError> {
    let top = document.lines.line("");
    let kind = kind.map_or_else(|| detect(&document.value), Ok);
    match kind.map_err(|message| SyntaxError { line: top, message })? {
        Kind::Native => native::read(path, document),
        Kind::Flat => flat::read_list(path, document),
        Kind::OpenAi => openai::read(path, document),
        Kind::Anthropic => anthropic::read(path, document),
        Kind::Mcp => mcp::read(path, document, reading),
        Kind::OpenApi => {
            // Also when the kind was named: what is no OpenAPI 3 is told apart from what has no operations.
            detect(&document.value).map_err(|message| SyntaxError { line: top, message })?;
            openapi::read(path, document)
        }
    }
}

fn extension(path: &Path) -> String {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase()
}

/// Whether a text holds one JSON object a line: more than one, and the first complete.
fn is_lines(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let (Some(first), Some(_)) = (lines.next(), lines.next()) else { return false };
    first.trim_start().starts_with('{') && is_json(first)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// A YAML document that is no registry, with the lines of its parts and what its syntax tells is wrong.
pub(crate) fn read_yaml(path: &Path) -> Result<(Value, Lines, Vec<CardProblem>), RegistryError> {
    let document = yaml::parse(&read_text(path)?).map_err(|error| error.of(path))?;
    Ok((document.value, document.lines, document.flaws))
}

fn read_text(path: &Path) -> Result<String, RegistryError> {
    let file = File::open(path).map_err(|source| RegistryError::Read { path: path.into(), source })?;
    read_bounded(file, path)
}

/// Reads a text to its end; `path` is what messages call it.
///
/// # Errors
/// [`RegistryError`] for what cannot be read, is larger than a registry may be, or is no UTF-8.
pub(super) fn read_bounded(from: impl Read, path: &Path) -> Result<String, RegistryError> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|source| RegistryError::Read { path: path.into(), source })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES / (1024 * 1024);
        let message = format!("the file is larger than {limit} MiB; split it into several");
        return Err(SyntaxError { line: None, message }.of(path));
    }
    if bytes.iter().filter(|byte| matches!(byte, b',' | b'\n' | b'[' | b'{')).count() > MAX_MARKS {
        let message = "the file holds more values than a registry may have; split it into several".to_owned();
        return Err(SyntaxError { line: None, message }.of(path));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let line = line_at(error.as_bytes(), error.utf8_error().valid_up_to());
            Err(SyntaxError::at(line, "not valid UTF-8; save the file as UTF-8").of(path))
        }
    }
}

/// 1-based line of a byte offset.
fn line_at(text: &[u8], offset: usize) -> usize {
    1 + text[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
#[path = "tests.rs"]
mod documents;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC{0,200}|[\\[\\]{}:,&*!|>'\"#%@ \\-\n\ta-c0-2.~?]{0,120}") {
            let _ = yaml::parse(&text);
            let _ = toml::parse(&text);
            let _ = json::parse(&text);
            let _ = flat::read(Path::new("f.jsonl"), &text);
        }

        #[test]
        fn json_read_in_any_format_is_the_same_value(
            words in prop::collection::btree_map("[a-z ]{1,6}|[中文键]{1,3}", "\\PC{0,12}", 0..6),
        ) {
            let text = serde_json::to_string(&serde_json::json!({ "tools": [words] })).unwrap();
            let value = json::parse(&text).unwrap().value;
            prop_assert_eq!(&value, &serde_json::from_str::<Value>(&text).unwrap());
            prop_assert_eq!(value, yaml::parse(&text).unwrap().value);
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!(line_at(b"a\nb\n", 0), 1);
        assert_eq!(line_at(b"a\nb\n", 2), 2);
        assert_eq!(line_at(b"a\nb\n", 99), 3);
    }
}
