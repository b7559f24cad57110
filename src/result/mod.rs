//! Results made fit for a model: whitelisted, in words, short, with their source; errors in the one body.
//!
//! Owns: what of an answer passes, how it is shortened, what a failure is called.
//! Does not know: who ran the tool, or what follows.

mod body;
mod cut;
mod empty;
mod failure;
mod fields;
mod safe;
#[cfg(test)]
mod tests;
mod words;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::telemetry::names;
use crate::text::estimate_tokens;
use crate::tool::{SideEffect, ToolCard};
use crate::types::{Problem, ToolAnswer, UnixMs};

use body::Found;
pub use cut::fitting;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Most characters of a result's data as JSON.
    pub max_chars: usize,
    /// Most rows of a list.
    pub max_rows: usize,
}

/// What the answer belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub card: &'a ToolCard,
    pub arguments: &'a Map<String, Value>,
    pub fetched_at: UnixMs,
    /// `zh` or `en`: notices and suggestions.
    pub locale: &'a str,
}

impl Context<'_> {
    /// The wording in the locale.
    fn say(&self, en: impl Into<String>, zh: impl Into<String>) -> String {
        if self.locale == "zh" { zh.into() } else { en.into() }
    }

    /// Whether the tool is known, or has to be assumed, to change something.
    fn acts(&self) -> bool {
        !self.card.side_effect_declared || self.card.side_effect != SideEffect::Read
    }
}

/// A result as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shaped {
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// Why there is nothing (`no_match`), and what to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// Of the tool's own paging, or ours (`Gate.NextPage`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub source: Source,
}

/// Where a result comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub tool: String,
    pub args: Map<String, Value>,
    /// RFC 3339, UTC.
    pub fetched_at: String,
    /// Another tool stood in for the one that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<String>,
}

/// How large it was and what was left out: for metrics and the record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    pub raw_chars: usize,
    pub shaped_chars: usize,
    pub estimated_tokens: usize,
    pub rows: usize,
    pub dropped_rows: usize,
    pub dropped_fields: usize,
}

/// A shaped result and what did not fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    pub shaped: Shaped,
    pub sizes: Sizes,
    /// Shaped rows that were left out, for later pages.
    pub rest: Vec<Value>,
}

/// Makes an answer fit for a model. Never fails: what cannot be understood is a failure in the error body.
pub fn shape(answer: &ToolAnswer, context: &Context<'_>, settings: &Settings) -> Shape {
    let raw_chars = body::chars(&answer.body);
    let mut shape = match body::read(answer, context) {
        Ok(found) => success(found, context, settings),
        Err(problem) => failed(*problem, context),
    };
    let text = shape.shaped.data.as_ref().map(Value::to_string).unwrap_or_default();
    shape.sizes.raw_chars = raw_chars;
    shape.sizes.shaped_chars = text.chars().count();
    shape.sizes.estimated_tokens = estimate_tokens(&text);
    measure(&shape.sizes);
    shape
}

fn success(found: Found, context: &Context<'_>, settings: &Settings) -> Shape {
    let mut sizes = Sizes::default();
    let mut notices = Vec::new();
    let Found { data, is_list, next_cursor, reason } = found;
    let kept = fields::keep(data, context.card, &mut sizes.dropped_fields);
    let kept = words::put(kept, context, &mut notices);
    let kept = safe::data(kept, context, &mut notices);
    let (data, rest) = if is_list {
        let rows = match kept {
            Value::Array(rows) => rows,
            other => vec![other],
        };
        sizes.rows = rows.len();
        cut::rows(rows, context, settings, &mut notices)
    } else {
        (cut::single(kept, context, settings, &mut notices), Vec::new())
    };
    sizes.dropped_rows = rest.len();
    let is_empty = is_list && sizes.rows == 0;
    let (reason, hint) = if is_empty { empty::explain(reason, context, &mut notices) } else { (None, None) };
    empty::effect(&data, context, &mut notices);
    let data = (!data.is_null()).then_some(data);
    let shaped = Shaped { ok: true, data, error: None, reason, hint, notices, next_cursor, source: source(context) };
    Shape { shaped, sizes, rest }
}

fn failed(problem: Problem, context: &Context<'_>) -> Shape {
    let shaped = Shaped {
        ok: false,
        data: None,
        error: Some(problem),
        reason: None,
        hint: None,
        notices: Vec::new(),
        next_cursor: None,
        source: source(context),
    };
    Shape { shaped, sizes: Sizes::default(), rest: Vec::new() }
}

fn source(context: &Context<'_>) -> Source {
    let millis = u64::try_from(context.fetched_at.0).unwrap_or_default();
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    Source {
        tool: context.card.id.to_string(),
        args: without_token(context),
        fetched_at: humantime::format_rfc3339_seconds(at).to_string(),
        instead_of: None,
    }
}

/// A confirm token says nothing of where a result comes from, and is nobody's to read again.
fn without_token(context: &Context<'_>) -> Map<String, Value> {
    let token = context.card.confirmation.as_ref().and_then(|confirmation| confirmation.token_param.as_deref());
    let kept = context.arguments.iter().filter(|(name, _)| Some(name.as_str()) != token);
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn measure(sizes: &Sizes) {
    metrics::histogram!(names::RESULT_CHARS).record(sizes.shaped_chars as f64);
    metrics::histogram!(names::RESULT_TOKENS).record(sizes.estimated_tokens as f64);
    metrics::counter!(names::RESULT_DROPPED, "part" => "rows").increment(sizes.dropped_rows as u64);
    metrics::counter!(names::RESULT_DROPPED, "part" => "fields").increment(sizes.dropped_fields as u64);
}
