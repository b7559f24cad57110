//! The operator's policy: which calls are allowed, which need consent, which need a second person.
//!
//! Owns: the scopes of a card at the moment of execution, the rules of the policy file and what they say of one call.
//! Does not know: whether consent was given, or whether the call was made before.

mod limit;
mod read;
#[cfg(test)]
mod tests;
mod time;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::registry::{Registry, suggest};
use crate::tool::{SideEffect, ToolCard};
use crate::types::{Caller, FieldProblem, Problem, ProblemCode, Scope, UnixMs};

use limit::Limit;
use time::Window;

/// The policy file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot read the policy {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Never empty; all of them, each with its line where there is one.
    #[error("the policy {} cannot be used:{}", path.display(), listed(faults))]
    Faults { path: PathBuf, faults: Vec<String> },
}

fn listed(faults: &[String]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}

/// What is asked of the policy.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    pub caller: &'a Caller,
    pub card: &'a ToolCard,
    pub registry: &'a Registry,
    pub arguments: &'a Map<String, Value>,
    pub conversation: &'a str,
    pub now: UnixMs,
}

/// What the policy says.
#[derive(Debug, Clone, PartialEq)]
pub enum Ruling {
    Allow,
    /// Consent is needed even where the card asks for none; with a scope, that of a second person who holds it.
    Confirm {
        second_person: Option<Scope>,
    },
    Deny(Problem),
}

/// Scopes, and the rules of a file in its order.
#[derive(Debug, Clone)]
pub struct Policy {
    path: PathBuf,
    version: String,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    id: String,
    matches: Match,
    /// With limits the rule applies to calls that break one of them, without to every call that matches.
    limits: Vec<Limit>,
    then: Then,
    /// Who can allow what it denies.
    ask: Option<String>,
    reason: Option<String>,
}

/// All of what is set has to hold.
#[derive(Debug, Clone, Default)]
struct Match {
    /// Names or ids; a trailing `*` stands for any ending.
    tools: Vec<String>,
    classes: Vec<SideEffect>,
    /// Held by the caller, all of them.
    scopes: Vec<Scope>,
    /// Not held by the caller, none of them.
    without: Vec<Scope>,
    tenants: Vec<String>,
    callers: Vec<String>,
    arguments: Vec<Limit>,
    time: Option<Window>,
}

#[derive(Debug, Clone)]
enum Then {
    Allow,
    Confirm,
    SecondPerson(Scope),
    Deny,
}

impl Policy {
    /// Without a file: scopes alone decide.
    pub fn none() -> Self {
        Self { path: PathBuf::new(), version: String::new(), rules: Vec::new() }
    }

    /// # Errors
    /// [`PolicyError`] with every fault of the file.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        read::read(path)
    }

    /// Changes with every change of the rules; empty without a file.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Checks that every tool the rules name is there: a misspelt name would guard nothing.
    ///
    /// # Errors
    /// [`PolicyError::Faults`] with all of them.
    pub fn check(&self, registry: &Registry) -> Result<(), PolicyError> {
        let mut faults = Vec::new();
        for rule in &self.rules {
            for name in &rule.matches.tools {
                if !registry.cards.values().any(|card| is_named(name, card)) {
                    let known = registry.cards.values().map(|card| card.name.as_str());
                    faults.push(format!("rule `{}` names no tool: `{name}`{}", rule.id, suggest(name, known)));
                }
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(PolicyError::Faults { path: self.path.clone(), faults }) }
    }

    /// Scopes first, then rules in the order of the file, the first that applies decides; a denial says which permission
    /// is missing and who grants it.
    pub fn judge(&self, question: &Question<'_>) -> Ruling {
        if !question.caller.belongs_to(&question.card.tenants) {
            // As of a tool that is not there: whose it is, is nobody's business.
            return Ruling::Deny(Problem::unknown_tool(question.card.id.as_str(), &[]));
        }
        let missing: Vec<&Scope> = question.card.scopes.iter().filter(|scope| !question.caller.holds(scope)).collect();
        if !missing.is_empty() {
            return Ruling::Deny(lacking(&missing, question.registry));
        }
        for rule in self.rules.iter().filter(|rule| rule.matches.holds(question)) {
            let broken: Vec<&Limit> = rule.limits.iter().filter(|limit| !limit.holds(question.arguments)).collect();
            if !rule.limits.is_empty() && broken.is_empty() {
                continue;
            }
            return match &rule.then {
                Then::Allow => Ruling::Allow,
                Then::Confirm => Ruling::Confirm { second_person: None },
                Then::SecondPerson(scope) => Ruling::Confirm { second_person: Some(scope.clone()) },
                Then::Deny => Ruling::Deny(rule.denial(&broken)),
            };
        }
        Ruling::Allow
    }
}

impl Match {
    fn holds(&self, question: &Question<'_>) -> bool {
        let Question { caller, card, arguments, now, .. } = question;
        let class = if card.side_effect_declared { card.side_effect } else { SideEffect::Destructive };
        let any = |list: &[String], name: &str| list.is_empty() || list.iter().any(|listed| listed == name);
        (self.tools.is_empty() || self.tools.iter().any(|name| is_named(name, card)))
            && (self.classes.is_empty() || self.classes.contains(&class))
            && self.scopes.iter().all(|scope| caller.holds(scope))
            && !self.without.iter().any(|scope| caller.holds(scope))
            && any(&self.tenants, &caller.tenant)
            && any(&self.callers, &caller.name)
            && self.arguments.iter().all(|limit| limit.holds(arguments))
            && self.time.as_ref().is_none_or(|window| window.contains(*now))
    }
}

impl Rule {
    fn denial(&self, broken: &[&Limit]) -> Problem {
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let problem = Problem::refused(
            "policy_denied",
            ProblemCode::PolicyDenied,
            format!("the policy does not allow this call (rule `{}`){reason}", self.id),
        );
        let field = |limit: &&Limit| FieldProblem { path: limit.pointer(), expected: limit.words(), example: None };
        Problem {
            fields: broken.iter().map(field).collect(),
            // Within the limits the same tool may be called.
            repairable: !broken.is_empty(),
            suggestion: self.ask.as_ref().map(|who| format!("{who} can allow it")),
            ..problem
        }
    }
}

fn is_named(name: &str, card: &ToolCard) -> bool {
    match name.strip_suffix('*') {
        Some(start) => card.name.starts_with(start) || card.id.as_str().starts_with(start),
        None => card.name == name || card.id.as_str() == name,
    }
}

fn lacking(missing: &[&Scope], registry: &Registry) -> Problem {
    let info = |scope: &Scope| registry.scopes.get(scope);
    let named = missing.iter().map(|scope| match info(scope).and_then(|info| info.about.as_ref()) {
        Some(about) => format!("`{}` ({about})", scope.0),
        None => format!("`{}`", scope.0),
    });
    let message = format!("the caller lacks {}", named.collect::<Vec<_>>().join(" and "));
    let granted = missing.iter().map(|scope| {
        let who = info(scope).and_then(|info| info.granted_by.as_deref());
        format!("{} can grant `{}`", who.unwrap_or("whoever administers the callers"), scope.0)
    });
    let suggestion = Some(granted.collect::<Vec<_>>().join("; "));
    Problem { suggestion, ..Problem::refused("permission_denied", ProblemCode::PermissionDenied, message) }
}
