//! What a tool answered, before anybody made sense of it.

use serde_json::Value;

/// The body of one answer, whoever ran the tool. Untrusted: shaped by `result` before anybody sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolAnswer {
    /// Of HTTP; `None` where the transport has none.
    pub status: Option<u16>,
    pub body: Body,
    /// The transport says that the tool failed (MCP `isError`).
    pub failed: bool,
    /// The body was longer than what is read.
    pub cut: bool,
    /// How long the tool asks to be left alone (`Retry-After`), in milliseconds.
    pub retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Empty,
    Json(Value),
    /// No JSON: a page, a trace, plain words.
    Text(String),
}

impl ToolAnswer {
    /// A sound answer without a status.
    pub fn json(value: Value) -> Self {
        Self { status: None, body: Body::Json(value), failed: false, cut: false, retry_after_ms: None }
    }
}
