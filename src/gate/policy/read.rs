//! From YAML to a [`Policy`], or to all the reasons why not.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::limit::{Bounds, Limit};
use super::time::{self, DAYS, Window};
use super::{Match, Policy, PolicyError, Rule, Then};
use crate::registry::{Fields, RegistryError, Report, join, kind, read_yaml, shorten, suggest};
use crate::tool::{SideEffect, canonical_json};
use crate::types::Scope;
use crate::types::encoding::hex;

const MAX_RULES: usize = 500;
const MAX_ID_BYTES: usize = 64;

const TOP_KEYS: [&str; 3] = ["policy", "version", "rules"];
const RULE_KEYS: [&str; 15] = [
    "id",
    "about",
    "tools",
    "classes",
    "scopes",
    "without",
    "tenants",
    "callers",
    "arguments",
    "time",
    "limits",
    "then",
    "scope",
    "ask",
    "reason",
];
const BOUND_KEYS: [&str; 6] = ["min", "max", "max_length", "allowed", "forbidden", "present"];
const TIME_KEYS: [&str; 4] = ["days", "from", "to", "offset"];
const THENS: [&str; 4] = ["allow", "confirm", "second_person", "deny"];

/// # Errors
/// [`PolicyError`] with everything that is wrong.
pub(super) fn read(path: &Path) -> Result<Policy, PolicyError> {
    let faults = |faults: Vec<String>| PolicyError::Faults { path: path.into(), faults };
    let at = |line: Option<usize>, message: String| match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    };
    let (value, lines, flaws) = read_yaml(path).map_err(|error| match error {
        RegistryError::Read { path, source } => PolicyError::Read { path, source },
        RegistryError::Syntax { line, message, .. } => faults(vec![at(line, message)]),
        error @ RegistryError::TooMany { .. } => faults(vec![error.to_string()]),
    })?;
    let mut report = Report::new(&lines, flaws);
    let rules = match &value {
        Value::Object(map) => read_top(&Fields::new(map, ""), &mut report),
        other => {
            report.add("", format!("expected a mapping with `rules`, found {}", kind(other)));
            Vec::new()
        }
    };
    let problems = report.into_problems();
    if !problems.is_empty() {
        let told = problems.into_iter().map(|problem| {
            let place = if problem.pointer.is_empty() { String::new() } else { format!("{}: ", problem.pointer) };
            at(problem.line, format!("{place}{}", problem.message))
        });
        return Err(faults(told.collect()));
    }
    let version = hex(&Sha256::digest(canonical_json(&value).as_bytes())[..6]);
    Ok(Policy { path: path.into(), version, rules })
}

fn read_top(fields: &Fields<'_>, report: &mut Report<'_>) -> Vec<Rule> {
    known(fields, &TOP_KEYS, report);
    if fields.get("rules").is_none() {
        fields.missing(report, "rules", "a list of rules, [] for none");
    }
    let listed = fields.list(report, "rules", "a list of rules").flatten().map(Vec::as_slice).unwrap_or_default();
    if listed.len() > MAX_RULES {
        report.add("/rules", format!("{} rules; at most {MAX_RULES} are allowed", listed.len()));
        return Vec::new();
    }
    let mut ids = BTreeSet::new();
    let mut rules = Vec::with_capacity(listed.len());
    for (index, item) in listed.iter().enumerate() {
        let at = join("/rules", index);
        let Value::Object(map) = item else {
            report.add(&at, format!("expected a mapping, found {}", kind(item)));
            continue;
        };
        let fields = Fields::new(map, at);
        if let Some(rule) = read_rule(&fields, report) {
            if !ids.insert(rule.id.clone()) {
                report.add(&fields.pointer("id"), format!("another rule has the id `{}`", shorten(&rule.id)));
            }
            rules.push(rule);
        }
    }
    rules
}

fn read_rule(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Rule> {
    known(fields, &RULE_KEYS, report);
    for (key, expected) in [("id", "a name for denials"), ("then", "one of allow, confirm, second_person, deny")] {
        if fields.get(key).is_none() {
            fields.missing(report, key, expected);
        }
    }
    let id = fields.text(report, "id");
    if id.as_ref().is_some_and(|id| id.trim().is_empty() || id.len() > MAX_ID_BYTES) {
        report.add(&fields.pointer("id"), format!("expected 1 to {MAX_ID_BYTES} bytes"));
    }
    let scopes =
        |report: &mut Report<'_>, key: &str| texts(fields, key, report).into_iter().map(Scope).collect::<Vec<_>>();
    let matches = Match {
        tools: texts(fields, "tools", report),
        classes: read_classes(fields, report),
        scopes: scopes(report, "scopes"),
        without: scopes(report, "without"),
        tenants: texts(fields, "tenants", report),
        callers: texts(fields, "callers", report),
        arguments: read_limits(fields, "arguments", report),
        time: read_time(fields, report),
    };
    let limits = read_limits(fields, "limits", report);
    let then = read_then(fields, report);
    let (ask, reason) = (fields.text(report, "ask"), read_reason(fields, report));
    Some(Rule { id: id?, matches, limits, then: then?, ask, reason })
}

/// A list that is there and empty would match nothing, or everything.
fn texts(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> Vec<String> {
    let texts = fields.texts(report, key).unwrap_or_default();
    let empty = matches!(fields.get(key), Some(Value::Array(items)) if items.is_empty());
    if empty || texts.iter().any(|text| text.trim().is_empty()) {
        report.add(&fields.pointer(key), "an empty list or name; leave it out to match all");
    }
    texts
}

fn read_classes(fields: &Fields<'_>, report: &mut Report<'_>) -> Vec<SideEffect> {
    let mut classes = Vec::new();
    for name in texts(fields, "classes", report) {
        match SideEffect::parse(&name) {
            Some(class) => classes.push(class),
            None => report.add(
                &fields.pointer("classes"),
                format!("`{}` is none of {}", shorten(&name), SideEffect::NAMES.join(", ")),
            ),
        }
    }
    classes
}

fn read_then(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Then> {
    let scope = fields.text(report, "scope");
    let then = fields.choice(report, "then", &THENS, |name| THENS.contains(&name).then(|| name.to_owned()))?;
    if scope.is_some() != (then == "second_person") {
        report.add(&fields.pointer("scope"), "`scope` goes with `then: second_person`: what the second person holds");
        return None;
    }
    Some(match (then.as_str(), scope) {
        ("allow", _) => Then::Allow,
        ("confirm", _) => Then::Confirm,
        (_, Some(scope)) => Then::SecondPerson(Scope(scope)),
        (_, None) => Then::Deny,
    })
}

/// One text, or `{en, zh}`: a denial says both.
fn read_reason(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<String> {
    match fields.get("reason")? {
        Value::Object(map) => {
            let inner = Fields::new(map, fields.pointer("reason"));
            known(&inner, &["en", "zh"], report);
            let told: Vec<String> = ["en", "zh"].iter().filter_map(|locale| inner.text(report, locale)).collect();
            (!told.is_empty()).then(|| told.join(" / "))
        }
        _ => fields.text(report, "reason"),
    }
}

fn read_limits(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> Vec<Limit> {
    let Some(value) = fields.get(key) else { return Vec::new() };
    let Value::Object(map) = value else {
        fields.wrong(report, key, "a mapping from arguments to what they may be");
        return Vec::new();
    };
    let mut limits = Vec::with_capacity(map.len());
    for (name, bounds) in map {
        let at = format!("{}/{name}", fields.pointer(key));
        let path: Vec<String> = name.split('.').map(str::to_owned).collect();
        match bounds {
            Value::Object(bounds) if !bounds.is_empty() && path.iter().all(|part| !part.is_empty()) => {
                limits.push(Limit { path, bounds: read_bounds(bounds, at, report) });
            }
            _ => report.add(&at, format!("expected a mapping with {}", BOUND_KEYS.join(", "))),
        }
    }
    if map.is_empty() {
        report.add(&fields.pointer(key), "no argument is named");
    }
    limits
}

fn read_bounds(map: &Map<String, Value>, at: String, report: &mut Report<'_>) -> Bounds {
    let fields = Fields::new(map, at);
    known(&fields, &BOUND_KEYS, report);
    let number = |key: &str, report: &mut Report<'_>| {
        let value = fields.get(key)?;
        let number = value.as_f64().filter(|number| number.is_finite());
        if number.is_none() {
            fields.wrong(report, key, "a number");
        }
        number
    };
    let values = |key: &str, report: &mut Report<'_>| {
        let list = fields.list(report, key, "a list of values").flatten()?;
        if list.is_empty() || list.iter().any(|value| value.is_array() || value.is_object() || value.is_null()) {
            fields.wrong(report, key, "a list of texts, numbers or flags");
        }
        Some(list.clone())
    };
    let (min, max) = (number("min", report), number("max", report));
    let length = number("max_length", report);
    if length.is_some_and(|length| length < 0.0 || length.fract() != 0.0) {
        fields.wrong(report, "max_length", "a number of characters");
    }
    Bounds {
        min,
        max,
        max_length: length.map(|length| length as usize),
        allowed: values("allowed", report),
        forbidden: values("forbidden", report),
        present: fields.flag(report, "present"),
    }
}

fn read_time(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Window> {
    let Value::Object(map) = fields.get("time")? else {
        fields.wrong(report, "time", "a mapping with days, from, to, offset");
        return None;
    };
    let inner = Fields::new(map, fields.pointer("time"));
    known(&inner, &TIME_KEYS, report);
    let mut days = Vec::new();
    for name in texts(&inner, "days", report) {
        match DAYS.iter().position(|day| *day == name) {
            Some(day) => days.push(day),
            None => report.add(&inner.pointer("days"), format!("`{}` is none of {}", shorten(&name), DAYS.join(", "))),
        }
    }
    let mut read = |key: &str, default: &str, parse: fn(&str) -> Option<i64>, expected: &str| {
        let text = inner.text(report, key).unwrap_or_else(|| default.to_owned());
        let parsed = parse(&text);
        if parsed.is_none() {
            inner.wrong(report, key, expected);
        }
        parsed
    };
    let from = read("from", "00:00", time::minute_of_day, "a time such as \"22:00\"");
    let to = read("to", "24:00", time::minute_of_day, "a time such as \"07:00\"");
    let offset = read("offset", "+00:00", time::offset, "an offset from UTC such as \"+08:00\"");
    let window = Window { days, from: from?, to: to?, offset_minutes: offset? };
    if window.from == window.to {
        report.add(&inner.pointer("to"), "the time ends where it begins");
    }
    Some(window)
}

fn known(fields: &Fields<'_>, keys: &[&str], report: &mut Report<'_>) {
    for key in fields.unknown(keys) {
        let hint = suggest(key, keys.iter().copied());
        report.add(&fields.pointer(key), format!("there is no key `{}` here{hint}", shorten(key)));
    }
}
