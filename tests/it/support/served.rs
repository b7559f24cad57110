//! The sample shop behind the real server, with the encoders that ship with the repository.

use std::path::Path;

use pointsman::config::{Loaded, Settings, Sources};
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::turn::Role;
use pointsman::server::proto::{Problem, RouteOptions, RouteRequest, RouteResponse, Trace, Turn};
use serde_json::{Value, json};

use super::scripted_llm::ScriptedLlm;
use super::server::{TestServer, settings_with_encoders};

/// Vectors of the cards, kept between tests.
pub const VECTORS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/shop-vectors.db");

pub const ORDER: &str = "SO-20260418000736";

/// The text of the registry, to be changed and written to a file of one's own.
pub fn text() -> String {
    std::fs::read_to_string(super::shop()).unwrap()
}

/// The registry with the cards of these domains alone, and the borders between them.
pub fn text_of(domains: &[&str]) -> String {
    text_with(|card| domains.iter().any(|domain| card.contains(&format!("\n    domain: {domain}\n"))))
}

/// The registry with the cards that `belongs` takes, each from its name on, and the borders between them.
pub fn text_with(belongs: impl Fn(&str) -> bool) -> String {
    const CARD: &str = "\n  - name: ";
    let text = text();
    let (head, cards) = text.split_once(CARD).unwrap();
    let cards: Vec<&str> = cards.split(CARD).filter(|card| belongs(card)).collect();
    let is_there = |name: &str| cards.iter().any(|card| card.starts_with(&format!("{name}\n")));
    let stays = |line: &&str| line.split_once(", use: ").is_none_or(|(_, name)| is_there(name.trim_end_matches('}')));
    let lines =
        cards.iter().flat_map(|card| format!("{CARD}{card}").split('\n').map(str::to_owned).collect::<Vec<_>>());
    let kept: Vec<String> = lines.filter(|line| stays(&line.as_str())).collect();
    format!("{head}{}", kept.join("\n"))
}

/// Settings for a registry file; vectors are kept between tests, cards that were put are not.
pub fn settings(registry: &Path) -> Settings {
    let mut settings = settings_with_encoders(&[registry]);
    settings.pipeline.store = Some(VECTORS.into());
    settings.pipeline.stored_cards = false;
    settings
}

/// Lets this endpoint decide, with the product's defaults for everything else.
pub fn decide_with(settings: &mut Settings, llm: &ScriptedLlm) {
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let flags = vec![flag("llm.base_url", llm.url()), flag("llm.model", "scripted")];
    settings.pipeline.llm = Loaded::load(&Sources { flags, ..Sources::default() }).unwrap().settings.pipeline.llm;
}

/// Names of the tools a recorded prompt offers, without the two ways of choosing none.
pub fn offered(request: &Value) -> Vec<&str> {
    let functions = request["tools"].as_array().unwrap();
    let names = functions.iter().map(|function| function["function"]["name"].as_str().unwrap());
    names.filter(|name| !matches!(*name, "no_tool" | "ask_user")).collect()
}

/// One function of a recorded prompt.
pub fn function<'a>(request: &'a Value, name: &str) -> &'a Value {
    let functions = request["tools"].as_array().unwrap().iter().map(|function| &function["function"]);
    functions.into_iter().find(|function| function["name"] == name).unwrap_or_else(|| panic!("{name} is not offered"))
}

pub struct Shop {
    pub server: TestServer,
}

impl Shop {
    /// No LLM: the local decider serves.
    pub async fn start() -> Self {
        Self::with(settings(&super::shop())).await
    }

    pub async fn with(settings: Settings) -> Self {
        Self { server: TestServer::start(settings).await }
    }

    pub async fn with_llm(llm: &ScriptedLlm) -> Self {
        let mut settings = settings(&super::shop());
        decide_with(&mut settings, llm);
        Self::with(settings).await
    }

    pub async fn ask(&self, utterance: &str) -> Answer {
        self.send(request(utterance)).await
    }

    pub async fn send(&self, request: RouteRequest) -> Answer {
        Answer(self.server.router().route(request).await.unwrap().into_inner())
    }
}

/// A bare utterance that no earlier decision answers.
pub fn request(utterance: &str) -> RouteRequest {
    let options = Some(RouteOptions { no_cache: true, max_calls: 0 });
    RouteRequest { utterance: utterance.into(), options, ..RouteRequest::default() }
}

/// The turn in which `tool` came back with `data`.
pub fn result(tool: &str, data: Value) -> Turn {
    Turn { role: Role::Tool.into(), content: json!({"tool": tool, "ok": true, "data": data}).to_string() }
}

/// A response and what tests ask of it.
#[derive(Debug)]
pub struct Answer(pub RouteResponse);

impl Answer {
    /// Every call that was handed out, with its arguments; empty for the other outcomes.
    pub fn calls(&self) -> Vec<(&str, Value)> {
        let calls = match &self.0.outcome {
            Some(Outcome::Call(call)) => call.calls.as_slice(),
            Some(Outcome::Clarify(_) | Outcome::NoTool(_) | Outcome::Handoff(_)) | None => &[],
        };
        calls.iter().map(|call| (call.tool.as_str(), serde_json::from_str(&call.arguments_json).unwrap())).collect()
    }

    #[track_caller]
    pub fn assert_call(&self, tool: &str, arguments: Value) {
        assert_eq!(self.calls(), [(tool, arguments)], "{:?}", self.0);
    }

    /// Returns what is known already.
    #[track_caller]
    pub fn assert_clarify(&self, tool: &str, missing: &[&str]) -> Value {
        let Some(Outcome::Clarify(clarify)) = &self.0.outcome else { panic!("no question: {:?}", self.0) };
        assert_eq!(
            (clarify.tool.as_str(), clarify.missing.as_slice()),
            (tool, &missing.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()[..])
        );
        assert!(!clarify.question.is_empty());
        serde_json::from_str(&clarify.arguments_json).unwrap()
    }

    /// Best first.
    pub fn candidates(&self) -> Vec<&str> {
        self.0.candidates.iter().map(|candidate| candidate.tool.as_str()).collect()
    }

    pub fn trace(&self) -> &Trace {
        self.0.trace.as_ref().unwrap()
    }

    /// What was wrong with the model's answers, in order.
    pub fn rejected(&self) -> Vec<&Problem> {
        self.trace().repairs.iter().map(|repair| repair.problem.as_ref().unwrap()).collect()
    }

    pub fn notices(&self) -> Vec<&str> {
        let Some(Outcome::Call(call)) = &self.0.outcome else { return Vec::new() };
        call.calls.iter().flat_map(|call| &call.notices).map(String::as_str).collect()
    }
}

/// What a field of a problem says; panics when the field is not named.
#[track_caller]
pub fn expected<'a>(problem: &'a Problem, path: &str) -> &'a str {
    let field = problem.fields.iter().find(|field| field.path == path);
    &field.unwrap_or_else(|| panic!("{path} is not among the fields at fault: {problem:?}")).expected
}
