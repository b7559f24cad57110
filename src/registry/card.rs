//! From a raw entry to a checked [`ToolCard`], or to all the reasons why not.

use serde_json::{Value, json};

use super::CardProblem;
use super::fields::{Fields, Report, kind, shorten};
use super::import::{Format, MAX_DEPTH, RawCard};
use super::positions::{Lines, join, push};
use super::run;
use crate::args::{ArgumentSchema, object_type};
use crate::tool::{Boundary, Confirmation, ConfirmedBy, Description, Execution, SideEffect, ToolCard};
use crate::types::encoding::unescape_pointer;
use crate::types::{Scope, ToolId};

pub(super) const KEYS: [&str; 22] = [
    "name",
    "version",
    "domain",
    "tags",
    "description",
    "examples",
    "parameters",
    "side_effect",
    "idempotent",
    "execution",
    "confirmation",
    "permissions",
    "timeout_ms",
    "requires",
    "conflicts_with",
    "fallback",
    "result_fields",
    "result_enums",
    "idempotency_ttl_s",
    "owner",
    "run",
    "tenants",
];
const DESCRIPTION_KEYS: [&str; 4] = ["what", "when_to_use", "when_not_to_use", "returns"];
const BOUNDARY_KEYS: [&str; 2] = ["case", "use"];
const CONFIRMATION_KEYS: [&str; 3] = ["by", "tool", "token_param"];

const MAX_NAME_BYTES: usize = 256;
/// Keywords left out of one flat schema before it counts as broken.
const MAX_RELAXED: usize = 16;
/// Longer texts are documents, not descriptions.
const MAX_TEXT_BYTES: usize = 32 * 1024;
/// Values in one card: far more than the largest real schema has.
const MAX_VALUES: usize = 100_000;

/// A card read from one entry.
#[derive(Debug)]
pub(super) struct Entry {
    /// Usable name, also of a card that is otherwise broken: others may point to it.
    pub name: Option<String>,
    pub position: String,
    pub lines: Lines,
    pub outcome: Result<Box<ToolCard>, Vec<CardProblem>>,
    pub remarks: Remarks,
}

/// What does not keep a card from being served.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    /// Dotted keys nobody reads.
    pub unknown: Vec<String>,
    /// Parts of a flat card's schema that cannot be applied and were left out: pointer and reason.
    pub relaxed: Vec<(String, String)>,
    /// What the translation of an imported card left out or changed: pointer and words.
    pub notes: Vec<(String, String)>,
    /// What an imported card leaves open of what the owner of a native one has to state.
    pub unstated: Vec<&'static str>,
}

impl Entry {
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.position)
    }
}

/// Reads one entry; `source` becomes the card's source.
pub(super) fn read(raw: RawCard, format: Format, source: &str) -> Entry {
    let RawCard { value, lines, position, flaws, notes } = raw;
    let unreadable = flaws.iter().any(|flaw| flaw.pointer.is_empty());
    let mut report = Report::new(&lines, flaws);
    let mut remarks = Remarks { notes, ..Remarks::default() };
    let mut name = None;
    let mut card = None;
    match &value {
        // Already reported as a whole.
        _ if unreadable => {}
        Value::Object(map) => {
            if within_bounds(&value, &mut report) {
                let fields = Fields::new(map, "");
                name = read_name(&fields, &mut report);
                card = Some(read_card(&fields, format, source, name.as_deref(), &mut report, &mut remarks));
            } else {
                name = read_name(&Fields::new(map, ""), &mut Report::new(&lines, Vec::new()));
            }
        }
        other => report.add("", format!("expected a mapping with the fields of a tool, found {}", kind(other))),
    }
    let outcome = match card {
        Some(card) if report.is_empty() => Ok(Box::new(card)),
        _ => Err(report.into_problems()),
    };
    Entry { name, position, outcome, remarks, lines }
}

fn read_card(
    fields: &Fields<'_>,
    format: Format,
    source: &str,
    name: Option<&str>,
    report: &mut Report<'_>,
    remarks: &mut Remarks,
) -> ToolCard {
    match format {
        Format::Native => check_stated(fields, report),
        Format::Imported => remarks.unstated.extend(unstated(fields).map(|(key, _)| key)),
        Format::Flat => {}
    }
    if format != Format::Flat {
        remarks.unknown.extend(fields.unknown(&KEYS).cloned());
    }
    let side_effect = fields.choice(report, "side_effect", &SideEffect::NAMES, SideEffect::parse);
    let class = side_effect.unwrap_or(SideEffect::Destructive);
    let name = name.unwrap_or_default();
    let mut card = ToolCard {
        id: ToolId::new(name),
        name: name.to_owned(),
        source: source.to_owned(),
        version: fields.text_or_number(report, "version").unwrap_or_default(),
        domain: fields.text(report, "domain").filter(|domain| !domain.trim().is_empty()),
        tags: fields.texts(report, "tags").unwrap_or_default(),
        description: read_description(fields, report, &mut remarks.unknown),
        examples: fields.texts(report, "examples").unwrap_or_default(),
        parameters: read_parameters(fields, format, report, remarks),
        side_effect: class,
        side_effect_declared: side_effect.is_some(),
        idempotent: fields.flag(report, "idempotent").unwrap_or(class == SideEffect::Read),
        execution: fields.choice(report, "execution", &EXECUTIONS, parse_execution).unwrap_or_default(),
        confirmation: read_confirmation(fields, report, &mut remarks.unknown),
        scopes: fields.texts(report, "permissions").unwrap_or_default().into_iter().map(Scope).collect(),
        timeout: fields.duration(report, "timeout_ms", 1),
        requires: fields.texts(report, "requires").unwrap_or_default(),
        conflicts_with: fields.texts(report, "conflicts_with").unwrap_or_default(),
        fallback: fields.text(report, "fallback"),
        result_fields: fields.texts(report, "result_fields").unwrap_or_default(),
        result_enums: fields.enum_texts(report, "result_enums"),
        idempotency_ttl: fields.duration(report, "idempotency_ttl_s", 1000),
        owner: fields.text(report, "owner"),
        run: None,
        tenants: fields.texts(report, "tenants").unwrap_or_default(),
    };
    // A card that somebody else exported has no say in which of our targets is called. That of an imported one is the
    // operator's: no form that is translated has the key.
    if format != Format::Flat {
        card.run = run::read(fields, &card.parameters, report, &mut remarks.unknown);
    }
    card
}

/// What only the owner of a tool can know, and what to state.
const STATED: [(&str, &str); 4] = [
    ("description", "what the tool does"),
    ("side_effect", "one of read, write, destructive"),
    ("timeout_ms", "how long a call may take, in milliseconds"),
    ("permissions", "the scopes a caller needs, [] for none"),
];

fn unstated(fields: &Fields<'_>) -> impl Iterator<Item = (&'static str, &'static str)> {
    STATED.into_iter().filter(|(key, _)| fields.get(key).is_none())
}

fn check_stated(fields: &Fields<'_>, report: &mut Report<'_>) {
    for (key, expected) in unstated(fields) {
        fields.missing(report, key, expected);
    }
}

fn read_name(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<String> {
    if fields.get("name").is_none() {
        fields.missing(report, "name", "a name that is unique in this registry");
        return None;
    }
    let name = fields.text(report, "name")?;
    let fault = if name.trim().is_empty() {
        "the name is empty".to_owned()
    } else if name.len() > MAX_NAME_BYTES {
        format!("the name is {} bytes long; at most {MAX_NAME_BYTES} are allowed", name.len())
    } else if name.chars().any(char::is_control) {
        "the name holds a control character".to_owned()
    } else {
        return Some(name);
    };
    report.add("/name", fault);
    None
}

fn read_description(fields: &Fields<'_>, report: &mut Report<'_>, unknown: &mut Vec<String>) -> Description {
    match fields.get("description") {
        None => Description::default(),
        // Split when the names of the other tools are known.
        Some(Value::String(text)) => {
            Description { what: text.clone(), plain: Some(text.clone()), ..Description::default() }
        }
        Some(Value::Object(parts)) => {
            let parts = Fields::new(parts, "/description");
            unknown.extend(parts.unknown(&DESCRIPTION_KEYS).map(|key| format!("description.{key}")));
            let what = parts.text(report, "what");
            if parts.get("what").is_none() {
                parts.missing(report, "what", "what the tool does");
            }
            Description {
                what: what.unwrap_or_default(),
                when_to_use: parts.texts(report, "when_to_use").unwrap_or_default(),
                when_not_to_use: read_boundaries(&parts, report, unknown),
                returns: parts.text(report, "returns"),
                plain: None,
            }
        }
        Some(_) => {
            fields.wrong(report, "description", "a text or a mapping with what, when_to_use, when_not_to_use, returns");
            Description::default()
        }
    }
}

fn read_boundaries(parts: &Fields<'_>, report: &mut Report<'_>, unknown: &mut Vec<String>) -> Vec<Boundary> {
    const KEY: &str = "when_not_to_use";
    let listed = parts.list(report, KEY, "a list of {case, use}").flatten().map(Vec::as_slice).unwrap_or_default();
    let mut boundaries = Vec::with_capacity(listed.len());
    for (index, item) in listed.iter().enumerate() {
        let at = join(&parts.pointer(KEY), index);
        let Value::Object(map) = item else {
            report.add(&at, format!("expected a mapping with case and use, found {}", kind(item)));
            continue;
        };
        let fields = Fields::new(map, at);
        unknown.extend(fields.unknown(&BOUNDARY_KEYS).map(|key| format!("description.{KEY}.{key}")));
        if fields.get("case").is_none() {
            fields.missing(report, "case", "the case in words");
        }
        let case = fields.text(report, "case").unwrap_or_default();
        boundaries.push(Boundary { case, use_tool: fields.text(report, "use") });
    }
    boundaries
}

fn read_confirmation(fields: &Fields<'_>, report: &mut Report<'_>, unknown: &mut Vec<String>) -> Option<Confirmation> {
    let Value::Object(map) = fields.get("confirmation")? else {
        fields.wrong(report, "confirmation", "a mapping with by, tool, token_param");
        return None;
    };
    let inner = Fields::new(map, "/confirmation");
    unknown.extend(inner.unknown(&CONFIRMATION_KEYS).map(|key| format!("confirmation.{key}")));
    if inner.get("by").is_none() {
        inner.missing(report, "by", "one of preview_tool, gate");
    }
    let by = inner.choice(report, "by", &["preview_tool", "gate"], |name| match name {
        "preview_tool" => Some(ConfirmedBy::PreviewTool),
        "gate" => Some(ConfirmedBy::Gate),
        _ => None,
    });
    if by == Some(ConfirmedBy::PreviewTool) {
        for (key, expected) in
            [("tool", "the tool that hands out the token"), ("token_param", "the parameter it goes to")]
        {
            if inner.get(key).is_none() {
                inner.missing(report, key, expected);
            }
        }
    }
    let tool = inner.text(report, "tool");
    let token_param = inner.text(report, "token_param");
    by.map(|by| Confirmation { by, tool, token_param })
}

/// The argument schema with `type: object` at its root, which is what arguments always are.
///
/// The owner of a native card can mend it. Other ones were mostly exported by somebody else, so what cannot be applied in
/// its schema is left out instead.
fn read_parameters(fields: &Fields<'_>, format: Format, report: &mut Report<'_>, remarks: &mut Remarks) -> Value {
    let empty = || json!({"type": "object", "properties": {}});
    let Some(value) = fields.get("parameters") else { return empty() };
    let Value::Object(map) = value else {
        fields.wrong(report, "parameters", "a JSON Schema object, or null for no parameters");
        return empty();
    };
    let mut schema = map.clone();
    match schema.get("type").map_or(Some(false), object_type) {
        Some(false) => {}
        Some(true) => {
            let written = schema.get("type").map(ToString::to_string).unwrap_or_default();
            let message = format!("type {} is read as \"object\"", shorten(&written));
            remarks.notes.push(("/parameters/type".into(), message));
        }
        None => {
            report.add("/parameters/type", "arguments are an object; the root of the schema must have `type: object`");
            return empty();
        }
    }
    schema.insert("type".into(), "object".into());
    let mut schema = Value::Object(schema);
    while let Err(error) = ArgumentSchema::compile(&schema) {
        let pointer = format!("/parameters{}", error.pointer);
        let leave_out = format.is_lenient() && remarks.relaxed.len() < MAX_RELAXED;
        if leave_out && remove(&mut schema, &error.pointer) {
            remarks.relaxed.push((pointer, error.message));
        } else {
            report.add(&pointer, error.message);
            break;
        }
    }
    schema
}

/// Removes the keyword at `pointer`; false if there is none.
fn remove(schema: &mut Value, pointer: &str) -> bool {
    let Some((parent, keyword)) = pointer.rsplit_once('/') else { return false };
    let keyword = unescape_pointer(keyword);
    let map = schema.pointer_mut(parent).and_then(Value::as_object_mut);
    map.and_then(|map| map.remove(&keyword)).is_some()
}

const EXECUTIONS: [&str; 3] = ["caller", "gate", "propose_only"];

fn parse_execution(name: &str) -> Option<Execution> {
    match name {
        "caller" => Some(Execution::Caller),
        "gate" => Some(Execution::Gate),
        "propose_only" => Some(Execution::ProposeOnly),
        _ => None,
    }
}

/// Reports texts that are too long; false if the card cannot be read at all: nested too deeply, with endless keys or
/// without end.
fn within_bounds(card: &Value, report: &mut Report<'_>) -> bool {
    // In a file a card stands in a list in a mapping, and what is read here may be written there.
    const DEPTH_IN_FILE: usize = 3;
    if !is_countable(card, &mut { MAX_VALUES }) {
        report.add("", format!("more than {MAX_VALUES} values in one card"));
        return false;
    }
    bounded(card, &mut String::new(), DEPTH_IN_FILE, report)
}

fn is_countable(value: &Value, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| is_countable(item, left)),
        Value::Object(map) => map.values().all(|item| is_countable(item, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// One pointer for the whole walk: with one for each value, long keys would multiply with what lies below them.
fn bounded(value: &Value, pointer: &mut String, depth: usize, report: &mut Report<'_>) -> bool {
    if depth > MAX_DEPTH {
        report.add("", format!("nested deeper than {MAX_DEPTH} levels"));
        return false;
    }
    let length = pointer.len();
    let mut inner = |token: &str, item: &Value, report: &mut Report<'_>| {
        push(pointer, token);
        let fits = bounded(item, pointer, depth + 1, report);
        pointer.truncate(length);
        fits
    };
    match value {
        Value::String(text) if text.len() > MAX_TEXT_BYTES => {
            let limit = MAX_TEXT_BYTES / 1024;
            report.add(pointer, format!("a text of {} bytes; at most {limit} KiB are allowed", text.len()));
            true
        }
        Value::Array(items) => items.iter().enumerate().all(|(i, item)| inner(&i.to_string(), item, report)),
        Value::Object(map) => match map.keys().find(|key| key.len() > MAX_TEXT_BYTES) {
            Some(key) => {
                report.add(pointer, format!("a key of {} bytes (`{}`)", key.len(), shorten(key)));
                false
            }
            None => map.iter().all(|(key, item)| inner(key, item, report)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    fn read_value(value: Value, format: Format) -> Entry {
        let raw = RawCard::new(value, Lines::unknown(), "tools/0".into());
        read(raw, format, "test")
    }

    #[track_caller]
    fn problems(value: Value, format: Format) -> Vec<String> {
        let entry = read_value(value, format);
        let found = entry.outcome.expect_err("the card should be quarantined");
        found.into_iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect()
    }

    fn native() -> Value {
        json!({"name": "get_order", "description": {"what": "Read one order.", "when_to_use": ["查订单"]},
            "side_effect": "read", "timeout_ms": 1500, "permissions": ["orders:read"]})
    }

    #[test]
    fn a_native_card_has_to_state_class_timeout_and_permissions() {
        assert!(read_value(native(), Format::Native).outcome.is_ok());
        let found = problems(json!({"name": "x", "description": "y"}), Format::Native);
        let keys: Vec<&str> = found.iter().map(|p| p.split(':').next().unwrap()).collect();
        assert_eq!(keys, ["/side_effect", "/timeout_ms", "/permissions"]);
    }

    #[test]
    fn long_keys_do_not_multiply_with_what_lies_below_them() {
        let mut inner: Value = (0..200_000).map(Value::from).collect();
        for _ in 0..40 {
            inner = json!({"k".repeat(30_000): inner});
        }
        let mut card = native();
        card["result_enums"] = json!({"a": inner});
        assert!(read_value(card, Format::Native).outcome.is_err());
        let mut card = native();
        card["extra"] = json!({"k".repeat(40_000): {"deeper": "x".repeat(40_000)}});
        assert_eq!(problems(card, Format::Native).len(), 1);
    }

    #[test]
    fn sb_104_an_unknown_class_names_the_three_values() {
        let mut card = native();
        card["side_effect"] = "update".into();
        let found = problems(card, Format::Native);
        assert_eq!(found, ["/side_effect: expected one of read, write, destructive, found `update`"]);
    }

    #[test]
    fn a_flat_card_without_class_is_destructive_but_served() {
        let card = json!({"name": "metar", "description": "天气", "parameters": null, "domain": null, "source": 7});
        let entry = read_value(card, Format::Flat);
        assert!(entry.remarks.unknown.is_empty());
        let card = entry.outcome.unwrap();
        assert_eq!(card.side_effect, SideEffect::Destructive);
        assert!(!card.side_effect_declared && !card.idempotent);
        assert_eq!(card.description.what, "天气");
        assert_eq!(card.parameters, json!({"type": "object", "properties": {}}));
        assert_eq!(card.timeout, None);
    }

    #[test]
    fn all_wrong_types_are_reported_at_once() {
        let card = json!({"name": "  ", "version": [], "domain": 1, "tags": "a", "description": {"what": 1,
            "when_to_use": ["a", 2, ""], "when_not_to_use": ["x", {"use": "y"}]}, "parameters": [], "side_effect": 1,
            "idempotent": "yes", "execution": "me", "confirmation": {"by": "preview_tool"}, "permissions": [1],
            "timeout_ms": 0, "fallback": [], "result_enums": {"a": 1}, "idempotency_ttl_s": 1.5, "owner": {}});
        let found = problems(card, Format::Native);
        let pointers: Vec<&str> = found.iter().map(|p| p.split(':').next().unwrap()).collect();
        assert_eq!(
            pointers,
            [
                "/name",
                "/side_effect",
                "/version",
                "/domain",
                "/tags",
                "/description/what",
                "/description/when_to_use/1",
                "/description/when_to_use/2",
                "/description/when_not_to_use/0",
                "/description/when_not_to_use/1/case",
                "/parameters",
                "/idempotent",
                "/execution",
                "/confirmation/tool",
                "/confirmation/token_param",
                "/permissions/0",
                "/timeout_ms",
                "/fallback",
                "/result_enums/a",
                "/idempotency_ttl_s",
                "/owner",
            ]
        );
    }

    #[test]
    fn names_texts_and_depth_are_bounded() {
        for name in [json!("a\u{7}b"), json!("名".repeat(90)), json!(3), Value::Null] {
            let mut card = native();
            card["name"] = name;
            assert_eq!(read_value(card, Format::Native).label(), "tools/0");
        }
        let mut card = native();
        card["description"]["what"] = "长".repeat(20_000).into();
        assert!(problems(card, Format::Native)[0].starts_with("/description/what: a text of 60000 bytes"));
        let mut deep = json!(1);
        for _ in 0..150 {
            deep = json!([deep]);
        }
        let mut card = native();
        card["parameters"] = json!({ "default": deep });
        assert!(problems(card, Format::Native)[0].contains("nested deeper"));
        assert!(problems(json!("text"), Format::Flat)[0].contains("expected a mapping"));
    }

    #[test]
    fn the_root_of_a_schema_is_an_object() {
        for (given, fits) in [
            (json!({"type": "object"}), true),
            (json!({"properties": {"a": {}}}), true),
            (json!({"type": ["object", "null"]}), true),
            (json!({"type": "dict"}), true),
            (json!({"type": ["Map", "null"]}), true),
            (json!({"type": "any"}), true),
            (json!({"type": "string"}), false),
            (json!({"type": "list"}), false),
            (json!({"type": 1}), false),
        ] {
            let mut card = native();
            card["parameters"] = given;
            let outcome = read_value(card, Format::Native).outcome;
            assert_eq!(outcome.is_ok(), fits);
            assert!(outcome.is_err() || outcome.unwrap().parameters["type"] == "object");
        }
    }

    #[test]
    fn a_root_that_names_an_object_otherwise_is_put_right_and_told() {
        for (given, told) in [(json!("dict"), 1), (json!("object"), 0), (json!(["object", "null"]), 0)] {
            let card = json!({"name": "x", "description": "y", "parameters": {"type": given, "properties": {"n": {"type": "float"}}}});
            let entry = read_value(card, Format::Flat);
            assert_eq!(entry.remarks.notes.len(), told, "{:?}", entry.remarks.notes);
            assert!(
                entry
                    .remarks
                    .notes
                    .iter()
                    .all(|(pointer, words)| pointer == "/parameters/type" && words.contains("dict"))
            );
            let parameters = &entry.outcome.unwrap().parameters;
            assert_eq!(parameters, &json!({"type": "object", "properties": {"n": {"type": "float"}}}));
        }
    }

    #[test]
    fn references_that_multiply_quarantine_a_lenient_card_too() {
        let mut defs: serde_json::Map<String, Value> = (0..40)
            .map(|link| {
                let next = json!({"$ref": format!("#/$defs/a{}", link + 1)});
                (format!("a{link}"), json!({"allOf": [next, next]}))
            })
            .collect();
        defs.insert("a40".into(), json!({"minLength": 1}));
        let card = json!({"name": "x", "description": "y", "parameters": {"$defs": defs, "properties": {
            "order_id": {"type": "string", "allOf": [{"$ref": "#/$defs/a0"}]}}}});
        let found = problems(card, Format::Flat);
        assert!(found[0].starts_with("/parameters: references multiply"), "{found:?}");
    }

    #[test]
    fn unknown_keys_are_only_remarked() {
        let mut card = native();
        card["expect_lint"] = json!(["x"]);
        card["description"]["when"] = json!("y");
        let entry = read_value(card, Format::Native);
        assert!(entry.outcome.is_ok());
        assert_eq!(entry.remarks.unknown, ["expect_lint", "description.when"]);
    }

    #[test]
    fn what_cannot_be_applied_breaks_a_native_schema_and_is_left_out_of_a_flat_one() {
        let mut card = native();
        card["parameters"] = json!({"properties": {
            "mail": {"type": "string", "pattern": "[a-"},
            "part": {"$ref": "#/$defs/absent", "description": "x"},
        }});
        assert!(problems(card.clone(), Format::Native)[0].starts_with("/parameters/properties/"));
        let entry = read_value(card, Format::Flat);
        let pointers: Vec<&str> = entry.remarks.relaxed.iter().map(|(pointer, _)| pointer.as_str()).collect();
        assert_eq!(pointers.len(), 2, "{pointers:?}");
        assert!(pointers.contains(&"/parameters/properties/mail/pattern"));
        assert!(pointers.contains(&"/parameters/properties/part/$ref"));
        let properties = &entry.outcome.unwrap().parameters["properties"];
        assert_eq!(properties, &json!({"mail": {"type": "string"}, "part": {"description": "x"}}));
    }
}
