//! The card itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::types::encoding::hex;
use crate::types::{CardHash, Scope, ToolId};

/// What calling the tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    /// Changes nothing.
    Read,
    /// May be repeated or undone.
    Write,
    /// Cannot be undone.
    Destructive,
}

impl SideEffect {
    pub const NAMES: [&'static str; 3] = ["read", "write", "destructive"];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "read" => Some(Self::Read),
            "write" => Some(Self::Write),
            "destructive" => Some(Self::Destructive),
            _ => None,
        }
    }
}

/// Who runs the tool once it is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    #[default]
    Caller,
    Gate,
    /// A person executes; the router only proposes.
    ProposeOnly,
}

/// How this server runs the tool: at a target that the operator's settings name, so that no card can reach another
/// host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Run {
    Http(HttpRun),
    Mcp(McpRun),
}

impl Run {
    /// Name of the target in the operator's settings.
    pub fn target(&self) -> &str {
        match self {
            Self::Http(run) => &run.target,
            Self::Mcp(run) => &run.target,
        }
    }
}

/// One HTTP request. Arguments that neither path nor query takes go into the body, unless the method has none: then
/// into the query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRun {
    pub target: String,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Below the target's base URL, such as `/orders/{order_id}`; each `{name}` is one argument, percent-encoded.
    pub path: String,
    /// Arguments that go into the query.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<String>,
}

/// One `tools/call` of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpRun {
    pub target: String,
    /// The tool's name at the server.
    pub tool: String,
}

/// When another tool is the right one. Never embedded: "not for refunds" would attract refunds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// The case in words.
    pub case: String,
    /// The tool that serves the case, by the name used in the same source.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub use_tool: Option<String>,
}

/// The description in its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Description {
    pub what: String,
    /// Wordings that lead to the tool.
    pub when_to_use: Vec<String>,
    pub when_not_to_use: Vec<Boundary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<String>,
    /// All of it as it was given, when it came as one text; the parts are what its wording says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain: Option<String>,
}

impl Description {
    /// As its author gave it: the one text, or what the tool does.
    pub fn as_given(&self) -> &str {
        self.plain.as_deref().unwrap_or(&self.what)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmedBy {
    /// A token that another tool's result hands out.
    PreviewTool,
    /// The router shows the arguments and waits for consent.
    Gate,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    pub by: ConfirmedBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_param: Option<String>,
}

/// One tool as the catalog holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCard {
    /// Unique in the catalog; equals `name` unless two sources share it.
    pub id: ToolId,
    pub name: String,
    /// Name of the registry the card came from.
    pub source: String,
    /// Version of the card's text as its owner counts it; empty when not given.
    pub version: String,
    pub domain: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    pub description: Description,
    /// Example utterances.
    #[serde(default)]
    pub examples: Vec<String>,
    /// JSON Schema of the arguments; always an object schema.
    pub parameters: Value,
    pub side_effect: SideEffect,
    /// False when the card did not say and `side_effect` is the assumed worst (`destructive`). Such a tool may be
    /// chosen freely; gate and cache treat it as destructive.
    pub side_effect_declared: bool,
    pub idempotent: bool,
    #[serde(default)]
    pub execution: Execution,
    pub confirmation: Option<Confirmation>,
    /// All of them are needed.
    pub scopes: Vec<Scope>,
    pub timeout: Option<Duration>,
    /// Tools whose result is needed first.
    #[serde(default)]
    pub requires: Vec<String>,
    #[serde(default)]
    pub conflicts_with: Vec<String>,
    pub fallback: Option<String>,
    #[serde(default)]
    pub result_fields: Vec<String>,
    /// Field → backend code → words.
    #[serde(default)]
    pub result_enums: BTreeMap<String, BTreeMap<String, String>>,
    pub idempotency_ttl: Option<Duration>,
    pub owner: Option<String>,
    /// How this server runs it; `None` where only the caller can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Whose callers may see it; empty means everybody's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
}

impl ToolCard {
    /// A tool that only reads, with a name, a schema and nothing else said about it.
    pub fn reading(name: &str, parameters: Value) -> Self {
        Self {
            id: ToolId::new(name),
            name: name.into(),
            source: String::new(),
            version: String::new(),
            domain: None,
            tags: Vec::new(),
            description: Description::default(),
            examples: Vec::new(),
            parameters,
            side_effect: SideEffect::Read,
            side_effect_declared: true,
            idempotent: true,
            execution: Execution::Caller,
            confirmation: None,
            scopes: Vec::new(),
            timeout: None,
            requires: Vec::new(),
            conflicts_with: Vec::new(),
            fallback: None,
            result_fields: Vec::new(),
            result_enums: BTreeMap::new(),
            idempotency_ttl: None,
            owner: None,
            run: None,
            tenants: Vec::new(),
        }
    }

    /// Whether the tool is known to change nothing.
    pub fn is_known_to_read(&self) -> bool {
        self.side_effect_declared && self.side_effect == SideEffect::Read
    }

    /// Whether the tool is known to change something. An undeclared class counts as destructive for gate and cache,
    /// never against being chosen.
    pub fn is_known_to_act(&self) -> bool {
        self.side_effect_declared && self.side_effect != SideEffect::Read
    }

    /// SHA-256 over the canonical JSON of everything in the card.
    pub fn hash(&self) -> CardHash {
        let value = serde_json::to_value(self).expect("a card holds only JSON-representable data");
        CardHash(hex(&Sha256::digest(canonical_json(&value))))
    }
}

/// JSON with object keys in byte order and no white space: equal values give equal bytes, whatever order they were
/// written in. Independent of serde_json's map type.
pub fn canonical_json(value: &Value) -> String {
    fn write(value: &Value, out: &mut String) {
        match value {
            Value::Object(map) => {
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort_unstable();
                out.push('{');
                for (i, key) in keys.into_iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::String(key.clone()).to_string());
                    out.push(':');
                    write(&map[key], out);
                }
                out.push('}');
            }
            Value::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write(item, out);
                }
                out.push(']');
            }
            leaf => out.push_str(&leaf.to_string()),
        }
    }
    let mut out = String::new();
    write(value, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_json_ignores_key_order_at_every_depth() {
        let a: Value = serde_json::from_str(r#"{"b":[{"y":1,"x":"退款"}],"a":null}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"a":null,"b":[{"x":"退款","y":1}]}"#).unwrap();
        assert_eq!(canonical_json(&a), canonical_json(&b));
        assert_eq!(canonical_json(&json!({"a": [1, 2.5]})), r#"{"a":[1,2.5]}"#);
    }
}
