//! Small cards and requests for the tests of this module.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::Request;
use super::{AnswerMode, EndpointSettings, PromptForm, Settings};
use crate::catalog::Tool;
use crate::decide::confidence::Model;
use crate::text::normalise;
use crate::tool::{Boundary, Description, SideEffect, ToolCard};
use crate::types::{Candidate, Score, ToolId, Turn};

pub fn settings(url: &str) -> Settings {
    let endpoint = EndpointSettings {
        base_url: url.into(),
        model: "test-model".into(),
        api_key: None,
        mode: AnswerMode::Functions,
        max_tools: 128,
        logprobs: false,
    };
    Settings {
        endpoints: vec![endpoint],
        temperature: Some(0.0),
        seed: Some(7),
        timeout: Duration::from_secs(1),
        max_attempts: 4,
        max_tokens: 0,
        max_repairs: 2,
        max_completion_tokens: 256,
        card_tokens: 6_000,
        prompt_form: PromptForm::Full,
        examples: None,
        concurrency: 4,
        queue: 16,
        requests_per_minute: 0,
        hedge: false,
        breaker_failures: 6,
        breaker_window: Duration::from_secs(30),
        quota: super::quota::Settings::default(),
    }
}

pub fn card(name: &str, parameters: Value) -> ToolCard {
    ToolCard {
        source: "shop".into(),
        version: "1".into(),
        description: Description { what: format!("Does {name}."), ..Description::default() },
        ..ToolCard::reading(name, parameters)
    }
}

pub fn tool(name: &str) -> ToolCard {
    card(name, json!({"type": "object", "properties": {}}))
}

#[derive(Clone)]
pub struct Shop {
    tools: Vec<Tool>,
    candidates: Vec<Candidate>,
    pub history: Vec<Turn>,
    pub session: Map<String, Value>,
    pub max_calls: usize,
}

impl Shop {
    /// Ranked in the order given, offered in id order.
    pub fn of(cards: Vec<ToolCard>) -> Self {
        let names: Vec<String> = cards.iter().map(|card| card.id.to_string()).collect();
        let mut tools: Vec<Tool> = cards.into_iter().map(|card| Tool::new(card.into()).unwrap()).collect();
        tools.sort_by(|a, b| a.id().cmp(b.id()));
        let shop = Self { tools, candidates: Vec::new(), history: Vec::new(), session: Map::new(), max_calls: 1 };
        shop.ranked(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn ranked(mut self, names: &[&str]) -> Self {
        let candidate = |(rank, name): (usize, &&str)| Candidate {
            tool: ToolId::new(*name),
            score: Score::new(2.0 - rank as f32),
            signals: BTreeMap::new(),
        };
        self.candidates = names.iter().enumerate().map(candidate).collect();
        self
    }

    pub fn tools(&self) -> Vec<&Tool> {
        self.tools.iter().collect()
    }

    pub fn request<'a>(&'a self, utterance: &str, tools: &'a [&'a Tool]) -> Request<'a> {
        Request {
            query: Box::leak(Box::new(normalise(utterance).unwrap())),
            tenant: "local",
            history: &self.history,
            session: &self.session,
            tools,
            candidates: &self.candidates,
            evidence: Box::leak(Box::default()),
            model: Model::WORDS,
            max_calls: self.max_calls,
        }
    }
}

/// Three related tools; `preview_refund` is the best match.
pub fn shop() -> Shop {
    let order_id = json!({"type": "string", "pattern": "^SO-\\d{14}$", "title": "Order id",
        "description": "Copied from the customer's words, e.g. SO-20260418000736."});
    let boundary = |case: &str, tool: &str| Boundary { case: case.into(), use_tool: Some(tool.into()) };

    let mut get = card(
        "get_order",
        json!({"type": "object", "additionalProperties": false, "required": ["order_id"],
        "properties": {"order_id": order_id, "user_id": {"type": "string"},
            "fields": {"type": "array", "items": {"type": "string", "enum": ["amount", "status"]}}}}),
    );
    get.description = Description {
        what: "Read one order by its exact number.".into(),
        when_to_use: vec!["订单现在什么状态".into(), "status of order SO-…".into()],
        when_not_to_use: vec![
            boundary("Money back (退款)", "preview_refund"),
            boundary("Internal audit", "secret_tool"),
            Boundary { case: "Orders of other people".into(), use_tool: None },
        ],
        returns: Some("One object.".into()),
        plain: None,
    };
    let mut preview = card(
        "preview_refund",
        json!({"type": "object", "required": ["order_id"], "properties": {"order_id": order_id}}),
    );
    preview.description.what = "Show what a refund would pay back. Read only.".into();
    preview.description.when_to_use = vec!["帮我退款".into(), "refund my order".into()];
    let mut execute = card(
        "execute_refund",
        json!({"type": "object", "required": ["order_id"], "properties": {"order_id": order_id}}),
    );
    execute.description.what = "Pay the refund".into();
    execute.side_effect = SideEffect::Destructive;
    execute.requires = vec!["preview_refund".into(), "secret_tool".into()];
    Shop::of(vec![preview, get, execute])
}
