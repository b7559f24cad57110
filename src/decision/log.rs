//! The decision log: one redacted JSON line per decision.
//!
//! Lines go through a bounded queue to a writer thread, so that a slow disk never makes a request wait; what does not
//! fit is dropped and counted.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::outcome::{Decision, DomainScore, Outcome, Repair, Shadow, TokenUse, Widened};
use super::redact::{self, Salt};
use crate::telemetry::names;
use crate::text::Query;
use crate::tool::{SideEffect, canonical_json};
use crate::types::{Candidate, DecisionId};

#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    Off,
    Stderr,
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub target: Target,
    /// Lines waiting to be written beyond which further ones are dropped and counted.
    pub queue: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot open the decision log {path}")]
pub struct LogError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// The snapshot of one decision: what replaying and auditing it needs, and no value that a person gave.
#[derive(Debug, Serialize)]
struct Record<'a> {
    time: String,
    decision_id: String,
    trace_id: &'a str,
    tenant: &'a str,
    session: String,
    catalog_version: &'a str,
    index: &'a str,
    language: &'a str,
    /// Slots, addresses and what writing calls would carry out are masked.
    utterance: String,
    /// Links equal utterances.
    utterance_hash: String,
    history_turns: usize,
    candidates: &'a [Candidate],
    outcome: &'a str,
    calls: Vec<CallRecord<'a>>,
    clarify: Option<ClarifyRecord<'a>>,
    reason: Option<&'a str>,
    decided_by: &'a str,
    confidence: f32,
    degraded: Vec<&'a str>,
    timings_ms: Map<String, Value>,
    tokens: TokenUse,
    strategy: &'a str,
    eligible: usize,
    model: &'a str,
    prompt_version: &'a str,
    prompt_hash: &'a str,
    llm_calls: u32,
    choice_probability: Option<f32>,
    repairs: Vec<RepairRecord>,
    cache: &'a str,
    rule: &'a str,
    rules_version: &'a str,
    states: &'a [String],
    domains: &'a [DomainScore],
    widened: Option<Widened>,
    /// Tools alone: what the other choice would have called them with is nobody's decision.
    shadow: Option<&'a Shadow>,
}

#[derive(Debug, Serialize)]
struct CallRecord<'a> {
    tool: &'a str,
    tool_version: &'a str,
    side_effect: &'a str,
    needs_confirmation: bool,
    arguments: Map<String, Value>,
    arguments_hash: String,
    origins: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct ClarifyRecord<'a> {
    tool: Option<&'a str>,
    missing: &'a [String],
    arguments: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct RepairRecord {
    attempt: u32,
    code: String,
    fields: Vec<String>,
}

/// Renders the line for `decision`, without a line break.
pub fn line(
    decision: &Decision,
    query: &Query,
    tenant: &str,
    session: &str,
    history_turns: usize,
    salt: &Salt,
) -> String {
    let (calls, clarify, reason) = match &decision.outcome {
        Outcome::Call { calls } => (calls.as_slice(), None, None),
        Outcome::Clarify(clarify) => (&[][..], Some(clarify), None),
        Outcome::NoTool { reason } => (&[][..], None, Some(reason.as_str())),
        Outcome::Handoff { reason, .. } => (&[][..], None, Some(reason.as_str())),
    };
    let hash_of = |map: &Map<String, Value>| salt.hash(&canonical_json(&Value::Object(map.clone())));
    let record = Record {
        time: humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string(),
        decision_id: decision.id.to_string(),
        trace_id: &decision.trace_id,
        tenant,
        session: if session.is_empty() { String::new() } else { salt.hash(session) },
        catalog_version: &decision.catalog_version,
        index: decision.index.as_str(),
        language: decision.language.as_str(),
        utterance: redact::utterance(query, carried_out(&decision.outcome)),
        utterance_hash: salt.hash(&query.text),
        history_turns,
        candidates: &decision.candidates,
        outcome: decision.outcome.kind(),
        calls: calls
            .iter()
            .map(|call| CallRecord {
                tool: call.tool.as_str(),
                tool_version: &call.tool_version,
                side_effect: call.side_effect.as_str(),
                needs_confirmation: call.needs_confirmation,
                arguments: redact::arguments(&call.arguments, salt),
                arguments_hash: hash_of(&call.arguments),
                origins: call
                    .origins
                    .iter()
                    .map(|(name, origin)| (redact::argument_name(name, salt), origin.as_str().into()))
                    .collect(),
            })
            .collect(),
        clarify: clarify.map(|clarify| ClarifyRecord {
            tool: clarify.tool.as_ref().map(|tool| tool.as_str()),
            missing: &clarify.missing,
            arguments: redact::arguments(&clarify.arguments, salt),
        }),
        reason,
        decided_by: decision.decided_by.as_str(),
        confidence: decision.confidence.get(),
        degraded: decision.degraded.iter().map(|mode| mode.as_str()).collect(),
        timings_ms: decision
            .timings
            .iter()
            .map(|(stage, time)| (stage.as_str().to_owned(), (time.as_secs_f64() * 1e3).into()))
            .collect(),
        tokens: decision.tokens,
        strategy: &decision.trace.strategy,
        eligible: decision.trace.eligible,
        model: &decision.trace.model,
        prompt_version: &decision.trace.prompt_version,
        prompt_hash: &decision.trace.prompt_hash,
        llm_calls: decision.trace.llm_calls,
        choice_probability: decision.trace.choice_probability,
        repairs: decision.trace.repairs.iter().map(|repair| repair_record(repair, salt)).collect(),
        cache: &decision.trace.cache,
        rule: &decision.trace.rule,
        rules_version: &decision.trace.rules_version,
        states: &decision.trace.states,
        domains: &decision.trace.domains,
        widened: decision.trace.widened,
        shadow: decision.trace.shadow.as_ref(),
    };
    serde_json::to_string(&record).expect("a record holds only strings, finite numbers and maps with string keys")
}

/// The line for a choice beside the rules that came after the answer had left.
pub fn shadow_line(decision: DecisionId, trace_id: &str, shadow: &Shadow) -> String {
    let record = ShadowRecord { shadow_of: decision.to_string(), trace_id, shadow };
    serde_json::to_string(&record).expect("a record holds only strings and lists of them")
}

#[derive(Debug, Serialize)]
struct ShadowRecord<'a> {
    /// The decision's id.
    shadow_of: String,
    trace_id: &'a str,
    shadow: &'a Shadow,
}

/// Arguments that may hold a person's own words or data. Those of reading calls say what is searched for, which is what
/// the utterance is kept for.
fn carried_out(outcome: &Outcome) -> impl Iterator<Item = (&String, &Value)> {
    let (calls, asked) = match outcome {
        Outcome::Call { calls } => (calls.as_slice(), None),
        Outcome::Clarify(clarify) => (&[][..], Some(&clarify.arguments)),
        Outcome::NoTool { .. } | Outcome::Handoff { .. } => (&[][..], None),
    };
    let writing = calls.iter().filter(|call| call.side_effect != SideEffect::Read).map(|call| &call.arguments);
    writing.chain(asked).flatten()
}

/// Field paths and the code only: the message of a problem may quote what was given.
fn repair_record(repair: &Repair, salt: &Salt) -> RepairRecord {
    RepairRecord {
        attempt: repair.attempt,
        code: repair.problem.code.as_str().to_owned(),
        fields: repair.problem.fields.iter().map(|field| redact::argument_name(&field.path, salt)).collect(),
    }
}

/// Writes lines in the order in which they were accepted.
pub struct DecisionLog {
    sender: Mutex<Option<SyncSender<String>>>,
    /// Its channel closes when the writer ends.
    writer: Mutex<Option<(JoinHandle<()>, Receiver<()>)>>,
    dropped: AtomicU64,
}

impl DecisionLog {
    /// # Errors
    /// [`LogError`] when the file cannot be opened for appending.
    pub fn start(settings: &Settings) -> Result<Self, LogError> {
        let open = |path: &PathBuf| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|source| LogError { path: path.clone(), source })
        };
        let file = match &settings.target {
            Target::Off => return Ok(Self::with(None, None)),
            Target::Stderr => None,
            Target::File(path) => Some(open(path)?),
        };
        let (sender, lines) = sync_channel(settings.queue.max(1));
        let (ended, end) = sync_channel(0);
        let writer = std::thread::Builder::new()
            .name("decision-log".into())
            .spawn(move || {
                write_lines(lines, file);
                drop(ended);
            })
            .map_err(|source| LogError { path: "writer thread".into(), source })?;
        Ok(Self::with(Some(sender), Some((writer, end))))
    }

    fn with(sender: Option<SyncSender<String>>, writer: Option<(JoinHandle<()>, Receiver<()>)>) -> Self {
        Self { sender: Mutex::new(sender), writer: Mutex::new(writer), dropped: AtomicU64::new(0) }
    }

    /// Whether lines are wanted at all.
    pub fn is_on(&self) -> bool {
        self.sender.lock().is_ok_and(|sender| sender.is_some())
    }

    /// Hands a line to the writer; never waits.
    pub fn write(&self, line: String) {
        let Ok(sender) = self.sender.lock() else { return };
        let Some(sender) = &*sender else { return };
        match sender.try_send(line) {
            Ok(()) => metrics::counter!(names::DECISION_LOG_LINES, "result" => "queued").increment(1),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                metrics::counter!(names::DECISION_LOG_LINES, "result" => "dropped").increment(1);
                let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
                // Once per power of two: a full queue must be seen, not amplified.
                if dropped.is_power_of_two() {
                    tracing::warn!(dropped, "decision log cannot keep up; lines are dropped");
                }
            }
        }
    }

    /// Lines dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes out what is queued and stops. Blocks, but not for ever: a disk that hangs must not keep the program alive.
    /// Idempotent.
    pub fn close(&self) {
        if let Ok(mut sender) = self.sender.lock() {
            sender.take();
        }
        let Some((writer, end)) = self.writer.lock().ok().and_then(|mut writer| writer.take()) else { return };
        if end.recv_timeout(LONGEST_CLOSE) == Err(RecvTimeoutError::Timeout) {
            tracing::error!("decision log cannot be written out; what is queued is lost");
        } else if writer.join().is_err() {
            tracing::error!("decision log writer ended abnormally");
        }
    }
}

/// How long the writer may take for what is queued.
const LONGEST_CLOSE: Duration = Duration::from_secs(3);

fn write_lines(lines: Receiver<String>, file: Option<File>) {
    let mut out: Box<dyn Write> = match file {
        Some(file) => Box::new(BufWriter::new(file)),
        None => Box::new(std::io::stderr()),
    };
    while let Ok(first) = lines.recv() {
        let queued = std::iter::from_fn(|| lines.try_recv().ok());
        let written = std::iter::once(first).chain(queued).try_for_each(|line| writeln!(out, "{line}"));
        if let Err(error) = written.and_then(|()| out.flush()) {
            metrics::counter!(names::DECISION_LOG_LINES, "result" => "failed").increment(1);
            tracing::error!(%error, "decision log cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_lines_are_on_disk_after_close_and_appended_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("decisions.jsonl");
        let settings = Settings { target: Target::File(path.clone()), queue: 8 };
        for round in 0..2 {
            let log = DecisionLog::start(&settings).unwrap();
            log.write(format!("{{\"round\":{round}}}"));
            log.close();
            log.write("late lines are ignored".into());
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"round\":0}\n{\"round\":1}\n");
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (sender, lines) = sync_channel(1);
        let log = DecisionLog::with(Some(sender), None);
        log.write("1".into());
        log.write("2".into());
        log.write("3".into());
        assert_eq!(log.dropped(), 2);
        drop(lines);
    }

    #[test]
    fn an_unusable_path_is_an_error() {
        let settings = Settings { target: Target::File("/nonexistent/dir/log".into()), queue: 1 };
        assert!(DecisionLog::start(&settings).is_err());
    }
}
