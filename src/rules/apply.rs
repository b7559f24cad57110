//! Which rules fire for one request, and what they make of it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::bind::{BoundRule, BoundThen, Rules};
use super::condition::{Captures, Said};
use super::file::Argument;
use super::state::{equal, in_force, last_result};
use super::{Mode, Modes};
use crate::args::{Origin, Origins};
use crate::text::Query;
use crate::types::{ToolId, Turn};

/// What rules look at.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    pub query: &'a Query,
    /// Oldest first.
    pub history: &'a [Turn],
    pub session: &'a Map<String, Value>,
}

/// What a rule says is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// This tool, with these of its arguments; they are not validated yet.
    Pin {
        tool: ToolId,
        arguments: Map<String, Value>,
        origins: Origins,
    },
    /// One of these tools. `widen`: all of them are looked at after all when none of these fits.
    Narrow {
        tools: BTreeSet<ToolId>,
        widen: bool,
    },
    Refuse,
    HandOver,
}

/// A rule that fires.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling<'a> {
    pub rule: &'a str,
    pub domain: Option<&'a str>,
    pub action: Action,
}

/// The limits that states put on what may be chosen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct States {
    pub names: Vec<String>,
    /// Tools that are open; all without a state that binds this utterance.
    pub open: Option<BTreeSet<ToolId>>,
}

impl Rules {
    /// The states of the conversation that bind this utterance. Several states together open what all of them open.
    pub fn states(&self, situation: &Situation<'_>) -> States {
        let said = Said::new(&situation.query.text);
        let mut states = States::default();
        for state in in_force(self, situation.history, situation.session) {
            if state.when.matches(&said).is_some() {
                states.names.push(state.name.clone());
                let open = match states.open.take() {
                    Some(open) => open.intersection(&state.open).cloned().collect(),
                    None => state.open.clone(),
                };
                states.open = Some(open);
            }
        }
        states
    }

    /// The rules that fire, first the one to try first: by priority, then by id. Rules of a domain that is dynamic by
    /// `modes` rest; these are [`Rules::modes`] unless an operator has set others for the moment.
    pub fn rulings<'a>(&'a self, situation: &Situation<'_>, modes: &'a Modes) -> impl Iterator<Item = Ruling<'a>> {
        let said = Said::new(&situation.query.text);
        let states: Vec<&str> = match self.states.is_empty() {
            true => Vec::new(),
            false => in_force(self, situation.history, situation.session)
                .into_iter()
                .map(|state| state.name.as_str())
                .collect(),
        };
        let last = last_result(situation.history);
        let rests = |rule: &BoundRule| rule.domain.is_some() && modes.of(rule.domain.as_deref()) == Mode::Dynamic;
        self.rules.iter().filter(move |rule| !rests(rule)).filter_map(move |rule| {
            let circumstances =
                Circumstances { said: &said, session: situation.session, states: &states, last: last.as_deref() };
            rule.fires(&circumstances)
        })
    }
}

/// Everything a condition is compared with.
pub(super) struct Circumstances<'a> {
    pub said: &'a Said<'a>,
    pub session: &'a Map<String, Value>,
    /// Names of the states in force.
    pub states: &'a [&'a str],
    /// The tool whose successful result came last.
    pub last: Option<&'a str>,
}

impl BoundRule {
    pub(super) fn fires(&self, circumstances: &Circumstances<'_>) -> Option<Ruling<'_>> {
        let Circumstances { said, session, states, last } = circumstances;
        let stands = self.state.as_deref().is_none_or(|state| states.contains(&state))
            && (self.after.is_empty() || last.is_some_and(|last| self.after.iter().any(|named| named.is(last))))
            && equal(&self.session, session);
        let captures = if stands { self.text.matches(said)? } else { return None };
        let action = match &self.then {
            BoundThen::Pin { tool, arguments } => {
                let mut given = Map::new();
                let mut origins = Origins::new();
                for (name, argument) in arguments {
                    if let Some((value, origin)) = value(argument, &captures, said.text()) {
                        given.insert(name.clone(), value);
                        origins.insert(name.clone(), origin);
                    }
                }
                Action::Pin { tool: tool.clone(), arguments: given, origins }
            }
            BoundThen::Narrow { tools, widen } => Action::Narrow { tools: tools.clone(), widen: *widen },
            BoundThen::Refuse => Action::Refuse,
            BoundThen::HandOver => Action::HandOver,
        };
        Some(Ruling { rule: &self.id, domain: self.domain.as_deref(), action })
    }
}

/// `None` for a group that took no part in the match.
fn value(argument: &Argument, captures: &Captures, text: &str) -> Option<(Value, Origin)> {
    match argument {
        Argument::Constant(value) => Some((value.clone(), Origin::Rule)),
        Argument::Capture(group) => {
            let span = captures.get(group).filter(|span| !span.is_empty())?;
            let origin = Origin::Utterance { start: span.start, end: span.end };
            Some((text[span.clone()].into(), origin))
        }
    }
}
