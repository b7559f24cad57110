//! What the conversation so far says about the next tool.

use std::collections::BTreeMap;

use serde_json::Value;

use super::eligible::tool_result;
use crate::catalog::Catalog;
use crate::types::{ToolId, Turn};

/// What earlier turns say about the next tool: tool name → strength in `(0, 1]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    weights: BTreeMap<String, f32>,
}

impl Context {
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// 0 for a tool the history says nothing about.
    pub fn weight(&self, tool: &ToolId) -> f32 {
        self.weights.get(tool.as_str()).copied().unwrap_or(0.0)
    }
}

/// How many turns, counted from the end, can still say something about the next tool.
const HISTORY_TURNS: usize = 8;

/// Tools used in the last turns, the latest counting most, and tools that require one of them: after a preview, its
/// second step is likely.
pub fn context(catalog: &Catalog, history: &[Turn]) -> Context {
    let mut weights: BTreeMap<String, f32> = BTreeMap::new();
    let mut strength = 1.0f32;
    for result in history.iter().rev().take(HISTORY_TURNS).filter_map(tool_result) {
        let Some(used) = result.get("tool").and_then(Value::as_str) else { continue };
        let is_used = |name: &str| name == used || name.rsplit_once('/').is_some_and(|(_, bare)| bare == used);
        for tool in &catalog.tools {
            let follows = tool.card.requires.iter().any(|required| is_used(required));
            if follows || tool.card.name == used || tool.id().as_str() == used {
                let weight = if follows { strength } else { strength / 2.0 };
                weights.entry(tool.id().to_string()).or_insert(weight);
            }
        }
        strength /= 2.0;
    }
    Context { weights }
}
