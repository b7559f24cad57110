//! Tool cards made in a line.

use std::collections::BTreeMap;

use pointsman::catalog::Tool;
use pointsman::tool::{Description, ToolCard};
use pointsman::types::{Candidate, Score, ToolId};
use serde_json::{Value, json};

/// A read tool of the registry `shop`.
pub fn card(name: &str, what: &str, parameters: Value) -> ToolCard {
    ToolCard {
        source: "shop".into(),
        version: "1".into(),
        description: Description { what: what.into(), ..Description::default() },
        ..ToolCard::reading(name, parameters)
    }
}

/// Schema of an object whose one required argument is an order number.
pub fn order_schema() -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["order_id"], "properties": {
        "order_id": {"type": "string", "pattern": "^SO-\\d{14}$", "description": "e.g. SO-20260418000736"},
        "reason": {"type": "string"}}})
}

pub fn tool(card: ToolCard) -> Tool {
    Tool::new(card.into()).unwrap()
}

/// Candidates in this order, with scores one apart.
pub fn ranked(names: &[&str]) -> Vec<Candidate> {
    let candidate = |(rank, name): (usize, &&str)| Candidate {
        tool: ToolId::new(*name),
        score: Score::new(-(rank as f32)),
        signals: BTreeMap::new(),
    };
    names.iter().enumerate().map(candidate).collect()
}
