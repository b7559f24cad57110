//! From YAML to a [`RuleFile`], or to all the reasons why not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::condition::{self, Text};
use super::file::{Argument, Condition, Rule, RuleFile, State, Targets, Then};
use super::{RuleProblem, RulesError};
use crate::registry::{Fields, RegistryError, Report, join, kind, read_yaml, shorten, suggest};
use crate::tool::canonical_json;
use crate::types::encoding::hex;

/// A skeleton is small; larger ones are a catalog of their own, and ids become labels of metrics.
const MAX_RULES: usize = 500;
const MAX_PATTERNS: usize = 1_000;
/// Utterances in all rules: each is tried with every rule.
const MAX_UTTERANCES: usize = 2_000;
const MAX_ID_BYTES: usize = 64;
const DEFAULT_TURNS: usize = 3;
const MAX_TURNS: u64 = 50;

const TOP_KEYS: [&str; 4] = ["registry", "version", "states", "rules"];
const RULE_KEYS: [&str; 7] = ["id", "about", "priority", "domain", "when", "then", "utterances"];
const TEXT_KEYS: [&str; 4] = ["patterns", "any", "all", "none"];
const WHEN_KEYS: [&str; 7] = ["patterns", "any", "all", "none", "session", "state", "after"];
const THEN_KEYS: [&str; 7] = ["pin", "arguments", "domains", "tools", "widen", "refuse", "hand_over"];
const STATE_KEYS: [&str; 8] = ["name", "about", "after", "session", "when", "open", "until", "turns"];
const TARGET_KEYS: [&str; 2] = ["domains", "tools"];

/// Reads and checks a rule file. What needs the tools is checked later, by [`super::Rules::bind`].
///
/// # Errors
/// [`RulesError`] with everything that is wrong.
pub fn read(path: &Path) -> Result<RuleFile, RulesError> {
    let (value, lines, flaws) = read_yaml(path).map_err(unreadable)?;
    let mut report = Report::new(&lines, flaws);
    let (rules, states) = match &value {
        Value::Object(map) => read_top(&Fields::new(map, ""), &mut report),
        other => {
            report.add("", format!("expected a mapping with `rules`, found {}", kind(other)));
            (Vec::new(), Vec::new())
        }
    };
    let problems: Vec<RuleProblem> = report
        .into_problems()
        .into_iter()
        .map(|problem| {
            let place = if problem.pointer.is_empty() { String::new() } else { format!("{}: ", problem.pointer) };
            RuleProblem { line: problem.line, message: format!("{place}{}", problem.message) }
        })
        .collect();
    if !problems.is_empty() {
        return Err(RulesError::Problems { path: path.into(), problems });
    }
    let version = hex(&Sha256::digest(canonical_json(&value).as_bytes())[..6]);
    Ok(RuleFile { path: path.into(), version, rules, states, lines })
}

fn unreadable(error: RegistryError) -> RulesError {
    match error {
        RegistryError::Read { path, source } => RulesError::Read { path, source },
        RegistryError::Syntax { path, line, message } => {
            RulesError::Problems { path, problems: vec![RuleProblem { line, message }] }
        }
        RegistryError::TooMany { .. } => RulesError::Problems {
            path: "".into(),
            problems: vec![RuleProblem { line: None, message: error.to_string() }],
        },
    }
}

fn read_top(fields: &Fields<'_>, report: &mut Report<'_>) -> (Vec<Rule>, Vec<State>) {
    refuse_unknown(fields, &TOP_KEYS, report);
    let states: Vec<State> =
        mappings(fields, "states", report).into_iter().map(|fields| read_state(&fields.0, fields.1, report)).collect();
    if fields.get("rules").is_none() {
        fields.missing(report, "rules", "a list of rules, [] for none");
    }
    let mut rules: Vec<Rule> =
        mappings(fields, "rules", report).into_iter().map(|fields| read_rule(&fields.0, fields.1, report)).collect();
    unique(rules.iter().map(|rule| (rule.id.as_str(), format!("{}/id", rule.at))), report);
    unique(states.iter().map(|state| (state.name.as_str(), format!("{}/name", state.at))), report);
    for rule in &rules {
        if let Some(state) = &rule.when.state
            && !states.iter().any(|known| known.name == *state)
        {
            let hint = suggest(state, states.iter().map(|state| state.name.as_str()));
            report.add(&format!("{}/when/state", rule.at), format!("there is no state `{}`{hint}", shorten(state)));
        }
    }
    let count = |what: &str, found: usize, most: usize, report: &mut Report<'_>| {
        if found > most {
            report.add("/rules", format!("{found} {what}; at most {most} are allowed"));
        }
    };
    count("rules", rules.len(), MAX_RULES, report);
    let patterns = rules.iter().map(|rule| rule.when.text.patterns.len());
    let patterns = patterns.chain(states.iter().map(|state| state.when.patterns.len())).sum();
    count("patterns", patterns, MAX_PATTERNS, report);
    count("utterances", rules.iter().map(|rule| rule.tests.len()).sum(), MAX_UTTERANCES, report);
    rules.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.id.cmp(&b.id)));
    (rules, states)
}

fn unique<'a>(names: impl Iterator<Item = (&'a str, String)>, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (name, at) in names {
        if !name.is_empty() && !seen.insert(name) {
            report.add(&at, format!("`{name}` is used twice; rename one"));
        }
    }
}

/// The entries of a list that are mappings, with their pointers.
fn mappings<'a>(fields: &Fields<'a>, key: &str, report: &mut Report<'_>) -> Vec<(Fields<'a>, String)> {
    let items = fields.list(report, key, "a list of mappings").flatten().map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let at = join(&fields.pointer(key), index);
        match item {
            Value::Object(map) => found.push((Fields::new(map, at.clone()), at)),
            other => report.add(&at, format!("expected a mapping, found {}", kind(other))),
        }
    }
    found
}

/// A misspelt key would change a rule in silence.
fn refuse_unknown(fields: &Fields<'_>, known: &[&str], report: &mut Report<'_>) {
    for key in fields.unknown(known) {
        let hint = suggest(key, known.iter().copied());
        report.add(&fields.pointer(key), format!("there is no key `{}` here{hint}", shorten(key)));
    }
}

fn read_name(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> String {
    if fields.get(key).is_none() {
        fields.missing(report, key, "a name that is unique in this file");
        return String::new();
    }
    let Some(name) = fields.text(report, key) else { return String::new() };
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_ID_BYTES || !name.chars().all(plain) {
        let message = format!("expected 1 to {MAX_ID_BYTES} bytes of letters, digits, `-`, `_` and `.`");
        report.add(&fields.pointer(key), message);
    }
    name
}

fn read_rule(fields: &Fields<'_>, at: String, report: &mut Report<'_>) -> Rule {
    refuse_unknown(fields, &RULE_KEYS, report);
    let id = read_name(fields, "id", report);
    let priority = match fields.get("priority") {
        None => 0,
        Some(value) => value.as_i64().unwrap_or_else(|| {
            fields.wrong(report, "priority", "a whole number; higher ones are tried first");
            0
        }),
    };
    let when = match inner(fields, "when", "a mapping with the conditions of the rule", report) {
        Some(inner) => read_condition(&inner, report),
        None => Condition::default(),
    };
    let then = match inner(fields, "then", "a mapping with pin, domains, tools, refuse or hand_over", report) {
        Some(inner) => read_then(&inner, &when, report),
        None => Then::Refuse,
    };
    let tests = fields.texts(report, "utterances").unwrap_or_default();
    if tests.is_empty() && !when.text.is_empty() {
        fields.missing(report, "utterances", "at least one utterance that this rule is for");
    }
    Rule { id, priority, domain: fields.text(report, "domain"), when, then, tests, at }
}

/// The mapping under a required key.
fn inner<'a>(fields: &Fields<'a>, key: &str, expected: &str, report: &mut Report<'_>) -> Option<Fields<'a>> {
    match fields.get(key) {
        Some(Value::Object(map)) => Some(Fields::new(map, fields.pointer(key))),
        Some(_) => {
            fields.wrong(report, key, expected);
            None
        }
        None => {
            fields.missing(report, key, expected);
            None
        }
    }
}

fn read_condition(fields: &Fields<'_>, report: &mut Report<'_>) -> Condition {
    refuse_unknown(fields, &WHEN_KEYS, report);
    let condition = Condition {
        text: read_text(fields, report),
        session: read_session(fields, report),
        state: fields.text(report, "state"),
        after: one_or_more(fields, "after", report),
    };
    let elsewhere = condition.state.is_some() || !condition.session.is_empty() || !condition.after.is_empty();
    if condition.text.only_excludes() && !elsewhere {
        report.add(
            fields.at(),
            "the rule would fire for nearly everything; state patterns, any, all, session, state or after",
        );
    }
    condition
}

fn read_text(fields: &Fields<'_>, report: &mut Report<'_>) -> Text {
    let patterns: Vec<(usize, String)> = one_or_more(fields, "patterns", report).into_iter().enumerate().collect();
    let mut compiled: Vec<Regex> = Vec::with_capacity(patterns.len());
    for (index, text) in &patterns {
        match condition::pattern(text) {
            Ok(pattern) => compiled.push(pattern),
            Err(message) => report.add(&join(&fields.pointer("patterns"), index), message),
        }
    }
    let mut words = |key: &str| -> Vec<String> {
        one_or_more(fields, key, report)
            .iter()
            .map(|text| condition::word(text))
            .filter(|word| !word.is_empty())
            .collect()
    };
    Text { patterns: compiled, any: words("any"), all: words("all"), none: words("none") }
}

/// A text, or a list of texts.
fn one_or_more(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> Vec<String> {
    match fields.get(key) {
        Some(Value::String(text)) if text.trim().is_empty() => {
            report.add(&fields.pointer(key), "an empty text");
            Vec::new()
        }
        Some(Value::String(text)) => vec![text.clone()],
        Some(_) | None => fields.texts(report, key).unwrap_or_default(),
    }
}

fn read_session(fields: &Fields<'_>, report: &mut Report<'_>) -> Map<String, Value> {
    match fields.get("session") {
        Some(Value::Object(map)) => {
            for (key, value) in map.iter().filter(|(_, value)| value.is_array() || value.is_object()) {
                let at = join(&fields.pointer("session"), key);
                report.add(&at, format!("expected a text, a number, true or false, found {}", kind(value)));
            }
            map.clone()
        }
        Some(_) => {
            fields.wrong(report, "session", "a mapping from a key of the session to its value");
            Map::new()
        }
        None => Map::new(),
    }
}

fn read_then(fields: &Fields<'_>, when: &Condition, report: &mut Report<'_>) -> Then {
    refuse_unknown(fields, &THEN_KEYS, report);
    let yes = |key: &str, report: &mut Report<'_>| match fields.get(key) {
        None => false,
        Some(Value::Bool(true)) => true,
        Some(_) => {
            fields.wrong(report, key, "true");
            true
        }
    };
    let pin = fields.text(report, "pin");
    let targets = read_targets(fields, report);
    let narrows = fields.get("domains").is_some() || fields.get("tools").is_some();
    let (refuse, hand_over) = (yes("refuse", report), yes("hand_over", report));
    let stated = [pin.is_some(), narrows, refuse, hand_over].into_iter().filter(|is| *is).count();
    if stated != 1 {
        report.add(fields.at(), "state exactly one of pin, domains and tools, refuse, hand_over");
    }
    for (key, belongs, to) in [("arguments", pin.is_some(), "pin"), ("widen", narrows, "domains and tools")] {
        if fields.get(key).is_some() && !belongs {
            report.add(&fields.pointer(key), format!("`{key}` belongs to {to}"));
        }
    }
    match pin {
        Some(tool) => Then::Pin { tool, arguments: read_arguments(fields, when, report) },
        None if narrows => Then::Narrow { targets, widen: fields.flag(report, "widen").unwrap_or(true) },
        None if refuse => Then::Refuse,
        None => Then::HandOver,
    }
}

/// Every named group goes to the argument of its name unless `arguments` says otherwise.
fn read_arguments(fields: &Fields<'_>, when: &Condition, report: &mut Report<'_>) -> BTreeMap<String, Argument> {
    let groups: BTreeSet<&str> = when.text.groups().collect();
    let mut arguments = BTreeMap::new();
    let mut used = BTreeSet::new();
    match fields.get("arguments") {
        Some(Value::Object(map)) => {
            for (name, value) in map {
                let group = value.as_str().and_then(|text| text.strip_prefix('$'));
                let argument = match group {
                    Some(group) if groups.contains(group) => {
                        used.insert(group);
                        Argument::Capture(group.to_owned())
                    }
                    Some(group) => {
                        let hint = suggest(group, groups.iter().copied());
                        let at = join(&fields.pointer("arguments"), name);
                        report.add(&at, format!("no pattern has a group `{}`{hint}", shorten(group)));
                        continue;
                    }
                    None => Argument::Constant(value.clone()),
                };
                arguments.insert(name.clone(), argument);
            }
        }
        Some(_) => fields.wrong(report, "arguments", "a mapping from an argument to `$group` or a constant"),
        None => {}
    }
    for group in groups.into_iter().filter(|group| !used.contains(group)) {
        arguments.entry(group.to_owned()).or_insert_with(|| Argument::Capture(group.to_owned()));
    }
    arguments
}

fn read_targets(fields: &Fields<'_>, report: &mut Report<'_>) -> Targets {
    Targets { domains: one_or_more(fields, "domains", report), tools: one_or_more(fields, "tools", report) }
}

fn read_state(fields: &Fields<'_>, at: String, report: &mut Report<'_>) -> State {
    refuse_unknown(fields, &STATE_KEYS, report);
    let name = read_name(fields, "name", report);
    let (after, session) = (one_or_more(fields, "after", report), read_session(fields, report));
    if after.is_empty() && session.is_empty() {
        report.add(&at, "a state needs `after`, the tools whose result leads to it, or `session`");
    }
    let when = match fields.get("when") {
        Some(_) => inner(fields, "when", "a mapping with patterns, any, all, none", report).map(|inner| {
            refuse_unknown(&inner, &TEXT_KEYS, report);
            read_text(&inner, report)
        }),
        None => None,
    };
    let open = inner(fields, "open", "a mapping with tools or domains that stay open", report).map(|inner| {
        refuse_unknown(&inner, &TARGET_KEYS, report);
        read_targets(&inner, report)
    });
    let turns = match fields.get("turns") {
        None => DEFAULT_TURNS,
        Some(value) => match value.as_u64().filter(|turns| (1..=MAX_TURNS).contains(turns)) {
            Some(turns) => turns as usize,
            None => {
                fields.wrong(report, "turns", &format!("a whole number from 1 to {MAX_TURNS}"));
                DEFAULT_TURNS
            }
        },
    };
    let until = one_or_more(fields, "until", report);
    let (when, open) = (when.unwrap_or_default(), open.unwrap_or_default());
    State { name, after, session, when, open, until, turns, at }
}
