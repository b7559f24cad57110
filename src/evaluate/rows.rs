//! Reads a labelled set: one JSON object a line, unknown fields ignored, every error with its line.
//!
//! Owns: the shape of a row.
//! Does not know: which rows count ([`super::plan`]) or how they are scored.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::EvalError;
use crate::text::{Language, to_nfkc};
use crate::types::{Role, Turn};

/// Longest line that is read, in bytes.
const MAX_LINE: usize = 4 << 20;
/// Most lines that are read.
const MAX_ROWS: usize = 1_000_000;

/// How `gold` is to be read. Every other kind a set names is scored like a single one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any tool of `gold` is right.
    Single,
    /// All tools of `gold` are wanted.
    Multi,
    /// Any tool of `gold` is right, and so is a question.
    Ambiguous,
}

/// Against which tools the label holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The whole registry.
    Registry,
    /// The row's own candidates alone.
    Candidates,
}

/// An argument object.
pub type Arguments = Map<String, Value>;

/// One labelled utterance.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub id: String,
    pub query: String,
    /// Oldest first.
    pub history: Vec<Turn>,
    /// Empty: no tool may be called.
    pub gold: Vec<String>,
    /// Further tools that count as right.
    pub also_ok: Vec<String>,
    pub kind: Kind,
    pub scope: Scope,
    /// Tools the row is asked against with `--candidates`; `Some` and empty means no tool at all.
    pub candidates: Option<Vec<String>>,
    /// Candidate → variant whose definition stands in for the registry's.
    pub candidate_defs: BTreeMap<String, String>,
    pub args: Option<Arguments>,
    pub args_also_ok: Vec<Arguments>,
    /// Argument → accepted values; `""` among them: may be absent.
    pub args_accept: Option<BTreeMap<String, Vec<Value>>>,
    /// Tool → one argument object per wanted call.
    pub args_by_tool: Option<BTreeMap<String, Vec<Arguments>>>,
    /// Required arguments nobody gave.
    pub missing: Vec<String>,
    /// The source takes any call as right, so the row says nothing about choosing.
    pub any_call: bool,
    /// Right tools that are taken away from the row, so that no tool is right any more.
    pub hidden: Vec<String>,
    pub groups: Groups,
}

/// What a row is reported under besides the whole set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// As the set says; detected where it says nothing.
    pub language: String,
    /// The set's own word, also where it is scored like another kind.
    pub kind: String,
    pub subset: Option<String>,
}

impl Row {
    /// The same request without its right tools: now the answer is that no tool fits.
    pub fn with_answer_hidden(&self) -> Self {
        let hidden = self.gold.iter().chain(&self.also_ok).cloned().collect();
        Self {
            id: format!("{}~hidden", self.id),
            gold: Vec::new(),
            also_ok: Vec::new(),
            kind: Kind::Single,
            args: None,
            args_also_ok: Vec::new(),
            args_accept: None,
            args_by_tool: None,
            missing: Vec::new(),
            hidden,
            ..self.clone()
        }
    }

    /// Whether `tool` is one of those that count as right.
    pub fn accepts(&self, tool: &str) -> bool {
        self.gold.iter().chain(&self.also_ok).any(|right| right == tool)
    }
}

/// Reads a file of rows; blank lines are skipped.
///
/// # Errors
/// [`EvalError::Read`] and [`EvalError::Row`]; a row without `query` or `gold` is an error, not a row without a label.
pub fn read(path: &Path) -> Result<Vec<Row>, EvalError> {
    let mut rows = Vec::new();
    for_each_line(path, |line, text| {
        let raw: RawRow = serde_json::from_str(text).map_err(|err| at_line(path, line, &err))?;
        let row = raw.into_row(line).map_err(|message| EvalError::Row { path: path.into(), line, message })?;
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// Calls `each` with the 1-based number and the text of every line that is not blank.
pub(super) fn for_each_line(
    path: &Path,
    mut each: impl FnMut(usize, &str) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    let failed = |source| EvalError::Read { path: path.to_owned(), source };
    let mut reader = BufReader::new(std::fs::File::open(path).map_err(failed)?);
    let mut buffer = Vec::new();
    for line in 1.. {
        let row_error = |message: String| EvalError::Row { path: path.to_owned(), line, message };
        buffer.clear();
        let read = reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut buffer).map_err(failed)?;
        if read == 0 {
            break;
        }
        if read > MAX_LINE {
            return Err(row_error(format!("longer than {MAX_LINE} bytes")));
        }
        if line > MAX_ROWS {
            return Err(row_error(format!("more than {MAX_ROWS} lines")));
        }
        let text = std::str::from_utf8(&buffer).map_err(|_| row_error("not UTF-8 text".into()))?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if !text.is_empty() {
            each(line, text)?;
        }
    }
    Ok(())
}

/// A JSON error as one of `path`, with the line of the file instead of the line of the JSON text.
pub(super) fn at_line(path: &Path, line: usize, err: &serde_json::Error) -> EvalError {
    let text = err.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    EvalError::Row { path: path.to_owned(), line, message: format!("{message} (column {})", err.column()) }
}

#[derive(Deserialize)]
struct RawRow {
    #[serde(default)]
    id: Option<Value>,
    query: String,
    gold: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    history: Vec<RawTurn>,
    #[serde(default, deserialize_with = "null_is_default")]
    also_ok: Vec<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    candidates: Option<Vec<String>>,
    #[serde(default, deserialize_with = "null_is_default")]
    candidate_defs: BTreeMap<String, String>,
    #[serde(default)]
    args: Option<Arguments>,
    #[serde(default, deserialize_with = "null_is_default")]
    args_also_ok: Vec<Arguments>,
    #[serde(default)]
    args_accept: Option<BTreeMap<String, Vec<Value>>>,
    #[serde(default)]
    args_by_tool: Option<BTreeMap<String, Vec<Arguments>>>,
    #[serde(default, deserialize_with = "null_is_default")]
    missing: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    missing_args: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    any_call: bool,
    #[serde(default)]
    lang: Option<String>,
    #[serde(default)]
    subset: Option<String>,
}

#[derive(Deserialize)]
struct RawTurn {
    role: Role,
    content: Value,
}

impl RawRow {
    fn into_row(self, line: usize) -> Result<Row, String> {
        if self.query.trim().is_empty() {
            return Err("`query` is empty".into());
        }
        let scope = match self.scope.as_deref() {
            None | Some("registry" | "no_tool_needed") => Scope::Registry,
            Some("candidates") => Scope::Candidates,
            // Scoring a row against the wrong set of tools would be a silent error.
            Some(other) => return Err(format!("`scope` is `{other}`, expected `candidates` or `no_tool_needed`")),
        };
        let missing = self.missing.iter().chain(&self.missing_args).map(|name| name.trim().to_owned());
        let groups = Groups {
            language: self.lang.unwrap_or_else(|| Language::detect(&to_nfkc(&self.query)).as_str().to_owned()),
            kind: self.kind.clone().unwrap_or_else(|| "single".into()),
            subset: self.subset,
        };
        Ok(Row {
            id: match self.id {
                Some(Value::String(id)) => id,
                Some(other) => other.to_string(),
                None => format!("line-{line}"),
            },
            query: self.query,
            history: self.history.into_iter().map(RawTurn::into_turn).collect(),
            gold: distinct(self.gold),
            also_ok: distinct(self.also_ok),
            kind: match self.kind.as_deref() {
                Some("multi") => Kind::Multi,
                Some("ambiguous") => Kind::Ambiguous,
                Some(_) | None => Kind::Single,
            },
            scope,
            candidates: self.candidates,
            candidate_defs: self.candidate_defs,
            args: self.args,
            args_also_ok: self.args_also_ok,
            args_accept: self.args_accept,
            args_by_tool: self.args_by_tool,
            missing: missing.filter(|name| !name.is_empty()).collect(),
            any_call: self.any_call,
            hidden: Vec::new(),
            groups,
        })
    }
}

impl RawTurn {
    /// Content that is JSON in JSON is kept as its text, which is what a caller would send.
    fn into_turn(self) -> Turn {
        let content = match self.content {
            Value::String(text) => text,
            other => other.to_string(),
        };
        Turn { role: self.role, content }
    }
}

fn distinct(names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// A row from its JSON, for tests.
#[cfg(test)]
pub(super) fn row(value: Value) -> Row {
    serde_json::from_value::<RawRow>(value).unwrap().into_row(1).unwrap()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_text(text: &str) -> Result<Vec<Row>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queries.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&path).map_err(|err| err.to_string().replace(&dir.path().display().to_string(), "DIR"))
    }

    #[test]
    fn rows_are_read_leniently() {
        let text = "\u{feff}{\"id\":1,\"query\":\"退款\",\"gold\":[\"refund\",\"refund\"],\"note\":{\"any\":1},\"missing\":null}\r\n\n\
                    {\"query\":\"hi\",\"gold\":[],\"args\":null,\"missing_args\":[\"a \",\" \"],\"kind\":\"typo\"}";
        let rows = read_text(text).unwrap();
        assert_eq!((rows[0].id.as_str(), rows[0].gold.len()), ("1", 1));
        assert_eq!(
            (rows[1].id.as_str(), rows[1].kind, rows[1].missing.as_slice()),
            ("line-3", Kind::Single, &["a".into()][..])
        );
        assert_eq!(rows[1].args, None);
        assert_eq!(rows[1].groups, Groups { language: "en".into(), kind: "typo".into(), subset: None });
        assert_eq!((rows[0].groups.language.as_str(), rows[0].groups.kind.as_str()), ("zh", "single"));
    }

    #[test]
    fn history_may_hold_text_or_json() {
        let row = row(json!({"query": "ok do it", "gold": ["cancel_order"], "history": [
            {"role": "user", "content": "取消订单"},
            {"role": "tool", "content": {"tool": "preview_cancel_order", "ok": true}},
        ]}));
        assert_eq!(row.history[0], Turn { role: Role::User, content: "取消订单".into() });
        assert!(row.history[1].content.contains("\"ok\":true"));
    }

    #[test]
    fn errors_name_file_and_line() {
        let check = |text: &str, expect: &str| {
            let err = read_text(text).unwrap_err();
            assert!(err.starts_with(expect), "{err}");
        };
        check("{\"query\":\"a\",\"gold\":[]}\n{\"query\":\"b\"}", "DIR/queries.jsonl:2: missing field `gold`");
        check("\n\n{nonsense", "DIR/queries.jsonl:3: key must be a string");
        check("{\"query\":\"  \",\"gold\":[]}", "DIR/queries.jsonl:1: `query` is empty");
        check("{\"query\":\"a\",\"gold\":\"x\"}", "DIR/queries.jsonl:1: invalid type: string");
        check("{\"query\":\"a\",\"gold\":[],\"scope\":\"all\"}", "DIR/queries.jsonl:1: `scope` is `all`");
    }
}
