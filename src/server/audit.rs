//! The record of who changed what: one JSON line before a change and one after it.
//!
//! Nothing is queued: a change begins only once its line is on the disk, and it is answered only once its end is. What
//! a line holds are names, versions and counts, never a value.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use metrics::counter;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::AuditTarget;
use crate::telemetry::names;
use crate::types::Caller;

/// Names in one line, and characters of one of them.
const MAX_NAMES: usize = 100;
const MAX_CHARS: usize = 128;

/// The record cannot be written. Nothing of this kind may be done without it.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the audit record{}", place(path.as_deref()))]
pub struct AuditError {
    path: Option<PathBuf>,
    #[source]
    source: std::io::Error,
}

fn place(path: Option<&Path>) -> String {
    path.map(|path| format!(" {}", path.display())).unwrap_or_default()
}

/// How something that was audited ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The caller may not do it, or what was asked cannot be done.
    Refused,
    /// It was tried and did not succeed.
    Failed,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What a line says beside who, when and how it ended: tools by name, and short words such as a version. Never values.
#[derive(Debug, Clone, Default)]
pub struct What {
    tools: Vec<String>,
    words: Vec<(&'static str, String)>,
}

impl What {
    /// Names beyond a hundred are counted and left out.
    #[must_use]
    pub fn tools<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.tools.extend(names.into_iter().map(|name| short(name.as_ref())));
        self
    }

    /// An id, a version, a state, a count.
    #[must_use]
    pub fn word(mut self, key: &'static str, word: impl AsRef<str>) -> Self {
        self.words.push((key, short(word.as_ref())));
        self
    }

    fn json(mut self) -> Map<String, Value> {
        let mut json = Map::new();
        let more = self.tools.len().saturating_sub(MAX_NAMES);
        self.tools.truncate(MAX_NAMES);
        if !self.tools.is_empty() {
            json.insert("tools".into(), self.tools.into());
        }
        if more > 0 {
            json.insert("more_tools".into(), more.into());
        }
        json.extend(self.words.into_iter().map(|(key, word)| (key.to_owned(), Value::String(word))));
        json
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// One line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    /// The same in the line before and the line after.
    audit: &'a str,
    method: &'static str,
    caller: &'a str,
    tenant: &'a str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    what: Map<String, Value>,
}

/// Where the lines go.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Sink>);

#[derive(Debug)]
struct Sink {
    target: AuditTarget,
    /// Lines of several calls must not run into each other.
    turn: Mutex<()>,
}

impl Audit {
    /// # Errors
    /// [`AuditError`] when the file cannot be opened for appending.
    pub fn open(target: AuditTarget) -> Result<Self, AuditError> {
        let audit = Self(Arc::new(Sink { target, turn: Mutex::new(()) }));
        audit.0.write("")?;
        Ok(audit)
    }

    /// Records that `caller` is about to do something. Do it only after this has returned, and call [`Begun::end`]
    /// before the answer leaves.
    ///
    /// # Errors
    /// [`AuditError`]; the thing must not be done.
    pub async fn begin(&self, caller: &Caller, method: &'static str, what: What) -> Result<Begun, AuditError> {
        let begun = Begun {
            audit: self.clone(),
            id: uuid::Uuid::now_v7().to_string(),
            method,
            caller: short(&caller.name),
            tenant: short(&caller.tenant),
        };
        begun.write("begun", what).await?;
        Ok(begun)
    }

    /// Records that `caller` was not let.
    ///
    /// # Errors
    /// [`AuditError`]; the refusal stands all the same.
    pub async fn refused(&self, caller: &Caller, method: &'static str, what: What) -> Result<(), AuditError> {
        let id = uuid::Uuid::now_v7().to_string();
        let (audit, caller, tenant) = (self.clone(), short(&caller.name), short(&caller.tenant));
        Begun { audit, id, method, caller, tenant }.write(Outcome::Refused.as_str(), what).await
    }

    async fn write(&self, line: String) -> Result<(), AuditError> {
        let sink = Arc::clone(&self.0);
        let written = tokio::task::spawn_blocking(move || sink.write(&line)).await;
        let written = written.map_err(|_| sink_died()).flatten();
        let result = if written.is_ok() { "written" } else { "failed" };
        counter!(names::AUDIT_LINES, "result" => result).increment(1);
        written
    }
}

fn sink_died() -> AuditError {
    AuditError { path: None, source: std::io::Error::other("the writer died") }
}

/// Something whose beginning is recorded.
#[must_use = "the end belongs into the record too"]
#[derive(Debug)]
pub struct Begun {
    audit: Audit,
    id: String,
    method: &'static str,
    caller: String,
    tenant: String,
}

impl Begun {
    /// Records how it ended.
    ///
    /// # Errors
    /// [`AuditError`]: it was done, and the record holds its beginning alone.
    pub async fn end(self, outcome: Outcome, what: What) -> Result<(), AuditError> {
        self.write(outcome.as_str(), what).await
    }

    async fn write(&self, outcome: &'static str, what: What) -> Result<(), AuditError> {
        let Self { audit, id, method, caller, tenant } = self;
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let line = Line { time, audit: id, method, caller, tenant, outcome, what: what.json() };
        let json = serde_json::to_string(&line).expect("strings and numbers are JSON");
        audit.write(json + "\n").await
    }
}

impl Sink {
    /// The file is opened for each line, so that it may be moved away at any time.
    fn write(&self, line: &str) -> Result<(), AuditError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.target {
            AuditTarget::Off => {
                if !line.is_empty() {
                    tracing::info!(line = line.trim_end(), "audit");
                }
                Ok(())
            }
            AuditTarget::Stderr => {
                let mut out = std::io::stderr().lock();
                out.write_all(line.as_bytes()).map_err(|source| AuditError { path: None, source })
            }
            AuditTarget::File(path) => {
                append(path, line).map_err(|source| AuditError { path: Some(path.clone()), source })
            }
        }
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn beginning_and_end_are_lines_of_one_id_and_a_moved_file_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(AuditTarget::File(path.clone())).unwrap();
        let caller = Caller::with_scopes("acme", []).named("客服");
        let what = What::default().tools((0..150).map(|n| format!("tool_{n}"))).word("call", "x".repeat(500));
        let begun = audit.begin(&caller, "Put", what).await.unwrap();
        let before = lines(&path);
        assert_eq!((&before[0]["outcome"], &before[0]["caller"]), (&"begun".into(), &"客服".into()));
        assert_eq!(before[0]["what"]["tools"].as_array().unwrap().len(), MAX_NAMES);
        assert_eq!(before[0]["what"]["more_tools"], 50);
        assert!(before[0]["what"]["call"].as_str().unwrap().chars().count() <= MAX_CHARS + 1);
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        begun.end(Outcome::Done, What::default().word("catalog_version", "v2")).await.unwrap();
        let after = lines(&path);
        assert_eq!((&after[0]["audit"], &after[0]["outcome"]), (&before[0]["audit"], &"done".into()));
        audit.refused(&caller, "Replace", What::default()).await.unwrap();
        assert_eq!(lines(&path)[1]["outcome"], "refused");
    }

    #[tokio::test]
    async fn what_cannot_be_recorded_must_not_begin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("there").join("audit.jsonl");
        assert!(Audit::open(AuditTarget::File(path.clone())).is_err());
        std::fs::create_dir(folder.path().join("there")).unwrap();
        let audit = Audit::open(AuditTarget::File(path)).unwrap();
        std::fs::remove_dir_all(folder.path().join("there")).unwrap();
        assert!(audit.begin(&Caller::local(), "Put", What::default()).await.is_err());
        let off = Audit::open(AuditTarget::Off).unwrap();
        assert!(off.begin(&Caller::local(), "Put", What::default()).await.is_ok());
    }
}
