//! Choosing one tool among the candidates and filling its arguments.
//!
//! Owns: the LLM decider, the local decider, plans of several calls, what stands in for an answer that cannot be used,
//! grounding of values, confidence.
//! Does not know: how candidates were found or whether an answer gets cached.

pub mod confidence;
mod fallback;
mod finish;
pub mod ground;
pub mod handoff;
pub mod llm;
pub mod local;
mod made;
mod plan;
mod question;

pub use fallback::follow;
pub use finish::{is_done, needs_confirmation, settle};
pub use question::question;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::args::{Checked, Origins, validate};
use crate::catalog::Tool;
use crate::decision::{DecidedBy, Degraded, HandoffReason, NoToolReason, Repair, TokenUse};
use crate::text::Query;
use crate::types::{Candidate, Confidence, Evidence, FieldProblem, Problem, ToolId, Turn};

/// What a decider gets to see.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub query: &'a Query,
    /// Whose quota a question to the LLM counts against.
    pub tenant: &'a str,
    /// Oldest first.
    pub history: &'a [Turn],
    /// Values the session supplies, by argument name.
    pub session: &'a Map<String, Value>,
    /// The tools on the shortlist in stable order; never empty.
    pub tools: &'a [&'a Tool],
    /// The same tools with their scores, best first.
    pub candidates: &'a [Candidate],
    /// What the ranking shows besides them.
    pub evidence: &'a Evidence,
    /// How the local decider's confidence is computed from it.
    pub model: confidence::Model,
    /// Most calls the answer may hold; at least 1.
    pub max_calls: usize,
}

impl<'a> Request<'a> {
    pub fn tool(&self, id: &ToolId) -> Option<&'a Tool> {
        self.tools.iter().copied().find(|tool| tool.id() == id)
    }

    /// The tool on the shortlist that the card of `tool` calls `name`.
    pub(crate) fn related(&self, tool: &Tool, name: &str) -> Option<&'a Tool> {
        related(self.tools, tool, name)
    }
}

/// The one of `tools` that the card of `tool` calls `name`: of its own source by name, of any source by id.
pub(crate) fn related<'a>(tools: &[&'a Tool], tool: &Tool, name: &str) -> Option<&'a Tool> {
    let same_source = tools.iter().find(|other| other.card.source == tool.card.source && other.card.name == name);
    same_source.or_else(|| tools.iter().find(|other| other.id().as_str() == name)).copied()
}

/// One proposed call whose arguments satisfy the schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub tool: ToolId,
    pub checked: Checked,
    pub origins: Origins,
}

impl Proposal {
    /// # Errors
    /// The problem to tell whoever gave the arguments, when they do not satisfy the schema.
    pub(crate) fn of(tool: &Tool, arguments: Map<String, Value>, request: &Request<'_>) -> Result<Self, Box<Problem>> {
        let checked = validate(&tool.schema, &Value::Object(arguments))?;
        let (query, history, session) = (request.query, request.history, request.session);
        let origins = ground::trace(checked.args.as_map(), &tool.schema, query, history, session, &checked.defaulted);
        Ok(Self { tool: tool.id().clone(), checked, origins })
    }
}

/// What a decider concludes.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Never empty, at most `max_calls`, in running order.
    Call(Vec<Proposal>),
    Clarify {
        tool: Option<ToolId>,
        arguments: Map<String, Value>,
        /// Required arguments nobody gave, or gave in a form that does not fit; in schema order.
        missing: Vec<String>,
        /// What is expected of them, where something was given that does not fit.
        fields: Vec<FieldProblem>,
        /// The decider's own wording; made from `missing` when absent.
        question: Option<String>,
    },
    NoTool(NoToolReason),
    Handoff(HandoffReason),
}

/// A verdict and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub verdict: Verdict,
    pub decided_by: DecidedBy,
    pub confidence: Confidence,
    pub degraded: BTreeSet<Degraded>,
    pub tokens: TokenUse,
    pub llm_calls: u32,
    pub repairs: Vec<Repair>,
    /// First 16 hex digits of the SHA-256 of the first prompt; empty without one.
    pub prompt_hash: String,
    pub prompt_version: String,
    pub model: String,
    /// Probability the model gave the chosen name among all it was offered; `None` where the endpoint does not tell.
    pub choice_probability: Option<f32>,
    /// Constant texts.
    pub notes: Vec<String>,
    /// The tool of the last call that could not be repaired; what stands in for it is looked up by it.
    pub failed: Option<ToolId>,
}

impl Answer {
    /// What the local decider says: no model, no tokens, nothing repaired.
    pub fn local(verdict: Verdict, confidence: Confidence) -> Self {
        Self {
            verdict,
            decided_by: DecidedBy::Local,
            confidence,
            degraded: BTreeSet::new(),
            tokens: TokenUse::default(),
            llm_calls: 0,
            repairs: Vec::new(),
            prompt_hash: String::new(),
            prompt_version: String::new(),
            model: String::new(),
            choice_probability: None,
            notes: Vec::new(),
            failed: None,
        }
    }
}
