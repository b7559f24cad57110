//! The sample shop with the real encoders, routed in process. The vectors of its cards are kept between runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pointsman::config::{Loaded, Settings, Sources};
use pointsman::decision::{ClarifyOutcome, Decision, Outcome, PlannedCall};
use pointsman::pipeline::{RouteError, RouteRequest, Router};
use pointsman::types::{Caller, Deadline, Role, Turn};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::scripted_llm::ScriptedLlm;

/// File that holds vectors alone: cards that were put are not read from it.
pub fn vectors() -> PathBuf {
    super::served::VECTORS.into()
}

/// The product's defaults with the sample shop, the shared vectors, no decision log, and `flags` on top.
pub fn settings(flags: &[(&str, &str)]) -> Settings {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = vec![
        ("embed.models_dir".to_owned(), root.join("models").display().to_string()),
        ("log.decisions".to_owned(), "off".to_owned()),
        ("store.path".to_owned(), vectors().display().to_string()),
    ];
    all.extend(flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let sources = Sources { file: None, env: BTreeMap::new(), flags: all };
    let mut settings = Loaded::load(&sources).unwrap().settings;
    settings.pipeline.registries = vec![super::shop()];
    settings.pipeline.stored_cards = false;
    settings
}

/// A router of its own for one test.
pub struct Shop {
    pub router: Arc<Router>,
    log: TempDir,
}

impl Shop {
    /// The local decider decides.
    pub async fn start(flags: &[(&str, &str)]) -> Self {
        Self::of(&super::shop(), flags).await
    }

    /// With the cards of another file.
    pub async fn of(registry: &Path, flags: &[(&str, &str)]) -> Self {
        let log = TempDir::new().unwrap();
        let path = log.path().join("decisions.jsonl").display().to_string();
        let mut all = vec![("log.decisions", path.as_str())];
        all.extend(flags);
        let mut settings = settings(&all).pipeline;
        settings.registries = vec![registry.to_path_buf()];
        // The first process embeds the cards, the others wait for its vectors.
        let lock = File::create(vectors().with_extension("lock")).unwrap();
        lock.lock().unwrap();
        let router = Router::start(settings, &|_, _| {}).await.unwrap();
        drop(lock);
        Self { router, log }
    }

    /// `llm` decides.
    pub async fn with_llm(llm: &ScriptedLlm, flags: &[(&str, &str)]) -> Self {
        let mut all = vec![("llm.base_url", llm.url()), ("llm.model", "scripted")];
        all.extend(flags);
        Self::start(&all).await
    }

    pub async fn try_ask(&self, request: RouteRequest, caller: &Caller) -> Result<Decision, RouteError> {
        self.router.route(request, caller, Deadline::after(Duration::from_secs(60))).await
    }

    pub async fn ask(&self, request: RouteRequest) -> Decision {
        self.try_ask(request, &Caller::local()).await.unwrap()
    }

    /// Routes a bare utterance; the cache may answer.
    pub async fn route(&self, utterance: &str) -> Decision {
        self.ask(request(utterance)).await
    }

    /// The records on disk by now.
    pub fn written(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log.path().join("decisions.jsonl")).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The records written so far; nothing is written after this.
    pub async fn records(&self) -> Vec<Value> {
        self.log_text().await.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// See [`Self::records`].
    pub async fn log_text(&self) -> String {
        self.router.shutdown().await;
        std::fs::read_to_string(self.log.path().join("decisions.jsonl")).unwrap()
    }
}

pub fn request(utterance: &str) -> RouteRequest {
    RouteRequest { utterance: utterance.into(), ..RouteRequest::default() }
}

/// A request the cache has no part in.
pub fn uncached(utterance: &str) -> RouteRequest {
    RouteRequest { no_cache: true, ..request(utterance) }
}

/// The only call of a decision.
#[track_caller]
pub fn the_call(decision: &Decision) -> &PlannedCall {
    match &decision.outcome {
        Outcome::Call { calls } if calls.len() == 1 => &calls[0],
        other => panic!("not one call: {other:?}"),
    }
}

#[track_caller]
pub fn the_question(decision: &Decision) -> &ClarifyOutcome {
    match &decision.outcome {
        Outcome::Clarify(clarify) => clarify,
        other => panic!("no question: {other:?}"),
    }
}

/// `tool{arguments}` of the only call.
#[track_caller]
pub fn called(decision: &Decision) -> String {
    let call = the_call(decision);
    format!("{}{}", call.tool, Value::Object(call.arguments.clone()))
}

/// What was decided, without the handle under which a question is kept.
pub fn result(decision: &Decision) -> Value {
    let mut outcome = json!(decision.outcome);
    if let Some(object) = outcome.as_object_mut() {
        object.remove("pending");
    }
    outcome
}

/// One labelled utterance.
pub struct Row {
    pub id: String,
    pub utterance: String,
    pub history: Vec<Turn>,
    pub label: Value,
}

/// The labelled utterances for development.
pub fn dev_rows() -> Vec<Row> {
    rows(include_str!("../../data/shop.dev.jsonl"))
}

/// Labelled utterances, one a line.
pub fn rows(text: &str) -> Vec<Row> {
    text.lines()
        .map(|line| {
            let label: Value = serde_json::from_str(line).unwrap();
            let history = label["history"].as_array().map_or(&[][..], Vec::as_slice).iter().map(turn).collect();
            Row { id: text_of(&label["id"]), utterance: text_of(&label["query"]), history, label }
        })
        .collect()
}

fn turn(turn: &Value) -> Turn {
    let role: Role = serde_json::from_value(turn["role"].clone()).unwrap();
    Turn { role, content: text_of(&turn["content"]) }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
