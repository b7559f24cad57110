//! From a file to raw cards: bytes, syntax, positions. What a card has to say is checked later, the same way for all.

mod flat;
mod json;
mod native;
mod toml;
mod yaml;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) use self::toml::nested_too_deeply;
use super::positions::Lines;
use super::scopes::Scopes;
use super::{CardProblem, RegistryError};

/// Larger files are refused before they are parsed.
pub(super) const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;
/// Deepest nesting of mappings and lists.
pub(super) const MAX_DEPTH: usize = 100;

/// How much a card has to state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Class, timeout and scopes are required; references must exist.
    Native,
    /// Name, description and parameters; everything else has a default.
    Flat,
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
}

pub(super) fn read(path: &Path) -> Result<SourceFile, RegistryError> {
    let text = read_text(path)?;
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let parsed = match extension.as_str() {
        "yaml" | "yml" => yaml::parse(&text).and_then(|document| native::read(path, document)),
        "toml" => toml::parse(&text).and_then(|document| native::read(path, document)),
        "json" => json::parse(&text).and_then(|document| native::read(path, document)),
        "jsonl" | "ndjson" => Ok(flat::read(path, &text)),
        _ => Err(SyntaxError {
            line: None,
            message: "unknown kind of registry file; name it .yaml, .yml, .toml or .json (native), or .jsonl (one \
                      tool per line)"
                .into(),
        }),
    };
    parsed.map_err(|error| RegistryError::Syntax { path: path.into(), line: error.line, message: error.message })
}

/// A YAML document that is no registry, with the lines of its parts and what its syntax tells is wrong.
pub(crate) fn read_yaml(path: &Path) -> Result<(Value, Lines, Vec<CardProblem>), RegistryError> {
    let document = yaml::parse(&read_text(path)?).map_err(|error| RegistryError::Syntax {
        path: path.into(),
        line: error.line,
        message: error.message,
    })?;
    Ok((document.value, document.lines, document.flaws))
}

fn read_text(path: &Path) -> Result<String, RegistryError> {
    let failed = |source| RegistryError::Read { path: path.into(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    let refused = |line, message: String| RegistryError::Syntax { path: path.into(), line, message };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES / (1024 * 1024);
        return Err(refused(None, format!("the file is larger than {limit} MiB; split it into several")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let line = line_at(error.as_bytes(), error.utf8_error().valid_up_to());
            Err(refused(Some(line), "not valid UTF-8; save the file as UTF-8".into()))
        }
    }
}

/// 1-based line of a byte offset.
fn line_at(text: &[u8], offset: usize) -> usize {
    1 + text[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

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
