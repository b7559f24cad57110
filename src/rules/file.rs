//! What a rule file says, checked as far as that goes without knowing the tools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::RuleProblem;
use super::condition::Text;
use crate::registry::Lines;

/// A rule file that can be used with any registry that holds the tools it names.
#[derive(Debug, Clone)]
pub struct RuleFile {
    pub path: PathBuf,
    /// First 12 hex digits of the SHA-256 of its content.
    pub version: String,
    /// Higher priority first, then by id: the order in which they are tried.
    pub(super) rules: Vec<Rule>,
    /// In file order.
    pub(super) states: Vec<State>,
    pub(super) lines: Lines,
}

impl RuleFile {
    pub(super) fn problem(&self, pointer: &str, message: impl Into<String>) -> RuleProblem {
        RuleProblem { line: self.lines.line(pointer), message: message.into() }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub id: String,
    pub priority: i64,
    pub domain: Option<String>,
    pub when: Condition,
    pub then: Then,
    pub tests: Vec<String>,
    /// Pointer of the rule in the file.
    pub at: String,
}

/// Everything that is stated must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Condition {
    pub text: Text,
    /// The session's values that must be equal.
    pub session: Map<String, Value>,
    /// A state the conversation must be in.
    pub state: Option<String>,
    /// The conversation's last result must be one of these tools'.
    pub after: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Then {
    Pin { tool: String, arguments: BTreeMap<String, Argument> },
    Narrow { targets: Targets, widen: bool },
    Refuse,
    HandOver,
}

/// Where a pinned argument comes from.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Argument {
    /// A named group of the pattern.
    Capture(String),
    Constant(Value),
}

/// Tools by name or by domain; one list at least holds something.
#[derive(Debug, Clone, Default)]
pub(super) struct Targets {
    pub domains: Vec<String>,
    pub tools: Vec<String>,
}

/// A state of the conversation in which only some tools are open.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub name: String,
    /// Entered by a successful result of one of these tools.
    pub after: Vec<String>,
    /// In force while the session holds these values.
    pub session: Map<String, Value>,
    /// Utterances that the state binds; all without it.
    pub when: Text,
    pub open: Targets,
    /// Left by a result of one of these tools, or of one that is open in it.
    pub until: Vec<String>,
    /// For how many of the user's turns it lasts.
    pub turns: usize,
    pub at: String,
}
