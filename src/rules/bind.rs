//! A rule file tied to one set of cards: names become ids, arguments are checked against the schema.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::check::check;
use super::condition::Text;
use super::file::{Argument, Rule, RuleFile, State, Targets, Then};
use super::{Modes, RuleProblem, RulesError};
use crate::args::ArgumentSchema;
use crate::registry::{Registry, shorten, suggest};
use crate::tool::ToolCard;
use crate::types::ToolId;

/// Unknown names for which a similar one is looked for: comparing with every name of a large registry costs.
const HINTS: usize = 5;

/// Rules ready to be applied to one version of the cards. Without a file there are none, and modes apply all the same.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// To be bound again when the cards change.
    pub file: Option<Arc<RuleFile>>,
    pub modes: Modes,
    /// What is odd without being wrong.
    pub notices: Vec<String>,
    /// In the order in which they are tried.
    pub(super) rules: Vec<BoundRule>,
    pub(super) states: Vec<BoundState>,
}

/// A tool and how a conversation may name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub id: ToolId,
    /// Without its source.
    pub name: String,
}

impl Named {
    pub fn is(&self, used: &str) -> bool {
        self.id.as_str() == used || self.name == used
    }
}

#[derive(Debug, Clone)]
pub(super) struct BoundRule {
    pub id: String,
    pub priority: i64,
    /// Whose mode decides whether the rule fires.
    pub domain: Option<String>,
    pub text: Text,
    pub session: Map<String, Value>,
    pub state: Option<String>,
    pub after: Vec<Named>,
    pub then: BoundThen,
}

#[derive(Debug, Clone)]
pub(super) enum BoundThen {
    Pin { tool: ToolId, arguments: BTreeMap<String, Argument> },
    Narrow { tools: BTreeSet<ToolId>, widen: bool },
    Refuse,
    HandOver,
}

#[derive(Debug, Clone)]
pub(super) struct BoundState {
    pub name: String,
    pub after: Vec<Named>,
    pub session: Map<String, Value>,
    pub when: Text,
    pub open: BTreeSet<ToolId>,
    /// Tools whose result ends the state; those open in it included.
    pub until: Vec<Named>,
    pub turns: usize,
}

impl Rules {
    /// Ties `file` to the cards of `registry`.
    ///
    /// # Errors
    /// [`RulesError`] with everything that is wrong: names nobody knows, arguments that do not fit, utterances on which
    /// rules contradict each other.
    pub fn bind(file: Option<Arc<RuleFile>>, modes: Modes, registry: &Registry) -> Result<Self, RulesError> {
        let mut binder = Binder::new(registry);
        let mut notices: Vec<String> = modes
            .by_domain
            .keys()
            .filter(|domain| !binder.domains.contains_key(domain.as_str()))
            .map(|domain| format!("rules.modes names the domain `{domain}`, which no tool has"))
            .collect();
        let Some(file) = file else { return Ok(Self { modes, notices, ..Self::default() }) };
        let mut rules = Vec::with_capacity(file.rules.len());
        for rule in &file.rules {
            rules.extend(binder.rule(rule, &file));
        }
        let states: Vec<BoundState> = file.states.iter().map(|state| binder.state(state, &file)).collect();
        let mut problems = binder.problems;
        notices.extend(binder.notices);
        let bound = Self { file: None, modes, notices: Vec::new(), rules, states };
        if problems.is_empty() {
            let found = check(&bound, &file);
            problems = found.problems;
            notices.extend(found.notices);
        }
        if !problems.is_empty() {
            problems.sort_by_key(|problem| problem.line);
            return Err(RulesError::Problems { path: file.path.clone(), problems });
        }
        Ok(Self { file: Some(file), notices, ..bound })
    }

    /// Digest of the file; empty without one.
    pub fn version(&self) -> &str {
        self.file.as_ref().map_or("", |file| &file.version)
    }

    /// Whether there is a rule file.
    pub fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Number of rules that can fire with these cards.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

struct Binder<'a> {
    registry: &'a Registry,
    /// Name without source → the cards that have it.
    by_name: BTreeMap<&'a str, Vec<&'a ToolCard>>,
    domains: BTreeMap<&'a str, Vec<&'a ToolCard>>,
    problems: Vec<RuleProblem>,
    notices: Vec<String>,
    hints: usize,
}

impl<'a> Binder<'a> {
    fn new(registry: &'a Registry) -> Self {
        let mut by_name: BTreeMap<&str, Vec<&ToolCard>> = BTreeMap::new();
        let mut domains: BTreeMap<&str, Vec<&ToolCard>> = BTreeMap::new();
        for card in registry.cards.values() {
            by_name.entry(&card.name).or_default().push(card);
            if let Some(domain) = &card.domain {
                domains.entry(domain).or_default().push(card);
            }
        }
        Self { registry, by_name, domains, problems: Vec::new(), notices: Vec::new(), hints: 0 }
    }

    fn fail(&mut self, file: &RuleFile, at: &str, message: impl Into<String>) {
        self.problems.push(file.problem(at, message));
    }

    /// The card that `name` means; `None` with a problem, or with a notice when the card is known and not served.
    fn tool(&mut self, name: &str, owner: &str, file: &RuleFile, at: &str) -> Option<&'a ToolCard> {
        if let Some(card) = self.registry.cards.get(name) {
            return Some(card);
        }
        match self.by_name.get(name).map(Vec::as_slice) {
            Some([only]) => return Some(only),
            Some(several) => {
                let ids: Vec<&str> = several.iter().map(|card| card.id.as_str()).collect();
                let message = format!("{owner} names `{name}`, which is any of {}; write one of them", ids.join(", "));
                self.fail(file, at, message);
                return None;
            }
            None => {}
        }
        let unserved = self.registry.quarantined.iter().any(|card| card.card == name);
        if unserved {
            self.notices.push(format!("{owner} names `{name}`, whose card cannot be served; that part rests"));
        } else {
            let hint = self.hint(name, self.registry.cards.keys().map(ToolId::as_str));
            self.fail(file, at, format!("{owner} names the tool `{}`, which is in no registry{hint}", shorten(name)));
        }
        None
    }

    fn hint<'n>(&mut self, word: &str, known: impl Iterator<Item = &'n str>) -> String {
        self.hints += 1;
        if self.hints > HINTS { String::new() } else { suggest(word, known) }
    }

    fn named(&mut self, names: &[String], owner: &str, file: &RuleFile, at: &str) -> Vec<Named> {
        let cards: Vec<&ToolCard> = names.iter().filter_map(|name| self.tool(name, owner, file, at)).collect();
        cards.into_iter().map(|card| Named { id: card.id.clone(), name: card.name.clone() }).collect()
    }

    fn targets(&mut self, targets: &Targets, owner: &str, file: &RuleFile, at: &str) -> BTreeSet<ToolId> {
        let mut tools = BTreeSet::new();
        for domain in &targets.domains {
            if self.known_domain(domain, owner, file, &format!("{at}/domains")) {
                tools.extend(self.domains[domain.as_str()].iter().map(|card| card.id.clone()));
            }
        }
        tools.extend(self.named(&targets.tools, owner, file, &format!("{at}/tools")).into_iter().map(|named| named.id));
        tools
    }

    fn known_domain(&mut self, domain: &str, owner: &str, file: &RuleFile, at: &str) -> bool {
        let is_known = self.domains.contains_key(domain);
        if !is_known {
            let hint = suggest(domain, self.domains.keys().copied());
            self.fail(file, at, format!("{owner} names the domain `{}`, which no tool has{hint}", shorten(domain)));
        }
        is_known
    }

    /// `None` when the rule cannot fire with these cards.
    fn rule(&mut self, rule: &Rule, file: &RuleFile) -> Option<BoundRule> {
        let owner = format!("rule `{}`", rule.id);
        if let Some(domain) = &rule.domain {
            self.known_domain(domain, &owner, file, &format!("{}/domain", rule.at));
        }
        let after = self.named(&rule.when.after, &owner, file, &format!("{}/when/after", rule.at));
        let at = format!("{}/then", rule.at);
        let (then, domain) = match &rule.then {
            Then::Pin { tool, arguments } => {
                let card = self.tool(tool, &owner, file, &format!("{at}/pin"))?;
                self.arguments(card, arguments, &owner, file, &at);
                if let (Some(stated), Some(own)) = (&rule.domain, &card.domain)
                    && stated != own
                {
                    let message = format!("{owner} states the domain `{stated}`, its tool belongs to `{own}`");
                    self.fail(file, &format!("{}/domain", rule.at), message);
                }
                let domain = rule.domain.clone().or_else(|| card.domain.clone());
                (BoundThen::Pin { tool: card.id.clone(), arguments: arguments.clone() }, domain)
            }
            Then::Narrow { targets, widen } => {
                let tools = self.targets(targets, &owner, file, &at);
                (BoundThen::Narrow { tools, widen: *widen }, rule.domain.clone())
            }
            Then::Refuse => (BoundThen::Refuse, rule.domain.clone()),
            Then::HandOver => (BoundThen::HandOver, rule.domain.clone()),
        };
        // Every tool it waits for rests, so it does too.
        if after.is_empty() && !rule.when.after.is_empty() {
            return None;
        }
        Some(BoundRule {
            id: rule.id.clone(),
            priority: rule.priority,
            domain,
            text: rule.when.text.clone(),
            session: rule.when.session.clone(),
            state: rule.when.state.clone(),
            after,
            then,
        })
    }

    fn arguments(
        &mut self,
        card: &ToolCard,
        arguments: &BTreeMap<String, Argument>,
        owner: &str,
        file: &RuleFile,
        at: &str,
    ) {
        // A card whose schema cannot be compiled is not served.
        let Ok(schema) = ArgumentSchema::compile(&card.parameters) else { return };
        for (name, argument) in arguments {
            let at = format!("{at}/arguments/{name}");
            if schema.property(name).is_none() {
                let known: Vec<&str> = schema.properties().into_iter().map(|(name, _)| name).collect();
                let hint = suggest(name, known);
                self.fail(file, &at, format!("{owner} fills `{name}`, which is no argument of `{}`{hint}", card.id));
            } else if let Argument::Constant(value) = argument
                && !schema.fits(name, value)
            {
                let expected = schema
                    .form_of(name)
                    .map(|form| format!("; expected {}", form.expected.trim_start_matches("required: ")))
                    .unwrap_or_default();
                self.fail(file, &at, format!("{owner} fills `{name}` with a value that does not fit{expected}"));
            }
        }
    }

    fn state(&mut self, state: &State, file: &RuleFile) -> BoundState {
        let owner = format!("state `{}`", state.name);
        let after = self.named(&state.after, &owner, file, &format!("{}/after", state.at));
        let mut until = self.named(&state.until, &owner, file, &format!("{}/until", state.at));
        let open = self.targets(&state.open, &owner, file, &format!("{}/open", state.at));
        let cards = open.iter().filter_map(|id| self.registry.cards.get(id));
        until.extend(cards.map(|card| Named { id: card.id.clone(), name: card.name.clone() }));
        BoundState {
            name: state.name.clone(),
            after,
            session: state.session.clone(),
            when: state.when.clone(),
            open,
            until,
            turns: state.turns,
        }
    }
}
