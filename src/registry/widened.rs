//! Whether a schema accepts something that another did not.
//!
//! Owns: the comparison, keyword by keyword.
//! Does not know: tools, or what follows from the answer.
//!
//! The answer errs on one side: what cannot be shown to be as narrow as before counts as wider. Words (titles,
//! descriptions, examples, defaults) are not compared. A parameter that is new counts as wider even where the schema was
//! open before: a described parameter is filled by a model, one that is only let in is not.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::args::local;

/// Comparisons in one answer, far beyond any sound schema.
const MOST: usize = 50_000;
/// References followed one after the other.
const MOST_REFS: usize = 16;
/// Comparisons inside each other: deeper than a card may be nested.
const MOST_OPEN: usize = 150;

/// Whether `after` accepts, or may accept, something that `before` did not.
pub(super) fn is_widened(before: &Value, after: &Value) -> bool {
    let mut compare = Compare { before, after, left: MOST, open: Vec::new() };
    wordless(before) != wordless(after) && !compare.is_within(after, before)
}

/// Keywords that say nothing about what is accepted.
const WORDS: [&str; 17] = [
    "title",
    "description",
    "examples",
    "example",
    "default",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
    "$id",
    "id",
    "$anchor",
    "contentEncoding",
    "contentMediaType",
    "externalDocs",
    "xml",
];
/// Greater means narrower.
const LOWER: [&str; 3] = ["minLength", "minItems", "minProperties"];
/// Less means narrower.
const UPPER: [&str; 3] = ["maxLength", "maxItems", "maxProperties"];
/// Schemas that hold for parts of a value: narrower parts, narrower whole.
const PARTS: [&str; 6] =
    ["additionalProperties", "unevaluatedProperties", "items", "additionalItems", "unevaluatedItems", "propertyNames"];
/// Only the same counts as no wider.
const SAME: [&str; 16] = [
    "pattern",
    "format",
    "patternProperties",
    "prefixItems",
    "contains",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "$dynamicRef",
    "$recursiveRef",
    "contentSchema",
];
/// Keywords that take parts out of the reach of others: where a restriction rests on their absence, they must not
/// appear.
const EXEMPT: [(&str, &[&str]); 5] = [
    ("additionalProperties", &["patternProperties"]),
    ("items", &["prefixItems"]),
    ("contains", &["minContains", "maxContains"]),
    ("unevaluatedProperties", &["patternProperties", "anyOf", "allOf", "oneOf", "if", "dependentSchemas"]),
    ("unevaluatedItems", &["prefixItems", "items", "contains", "anyOf", "allOf", "oneOf", "if"]),
];

struct Compare<'a> {
    /// The roots, for references.
    before: &'a Value,
    after: &'a Value,
    left: usize,
    /// Pairs being compared, by address: a schema that refers to itself is as narrow as before if nothing else is wider.
    open: Vec<(*const Value, *const Value)>,
}

impl<'a> Compare<'a> {
    /// Whether everything that `inner`, a part of the schema after, accepts is accepted by `outer`, a part of the one
    /// before.
    fn is_within(&mut self, inner: &'a Value, outer: &'a Value) -> bool {
        let inner = followed(self.after, inner);
        let outer = followed(self.before, outer);
        let pair = (std::ptr::from_ref(inner), std::ptr::from_ref(outer));
        if self.open.contains(&pair) {
            return true;
        }
        if self.left == 0 || self.open.len() >= MOST_OPEN {
            return false;
        }
        self.left -= 1;
        self.open.push(pair);
        let within = match (inner, outer) {
            (_, Value::Bool(true)) | (Value::Bool(false), _) => true,
            (_, Value::Object(outer)) if accepts_all(outer) => true,
            (_, Value::Bool(false)) => false,
            (Value::Object(map), Value::Object(outer)) => self.object_is_within(inner, map, outer),
            _ => false,
        };
        self.open.pop();
        within
    }

    /// `whole` is the schema whose keywords are `inner`.
    fn object_is_within(
        &mut self,
        whole: &'a Value,
        inner: &'a Map<String, Value>,
        outer: &'a Map<String, Value>,
    ) -> bool {
        types_are_within(inner, outer)
            && values_are_within(inner, outer)
            && bounds_are_within(inner, outer)
            && required_is_within(inner, outer)
            && SAME.iter().all(|key| outer.get(*key).is_none_or(|rule| same(inner.get(*key), rule)))
            && nothing_is_exempt(inner, outer)
            && self.refs_are_within(inner, outer)
            && self.alternatives_are_within(whole, inner, outer)
            && self.properties_are_within(inner, outer)
            && PARTS.iter().all(|key| self.part_is_within(inner, outer, key))
    }

    fn part_is_within(&mut self, inner: &'a Map<String, Value>, outer: &'a Map<String, Value>, key: &str) -> bool {
        match (inner.get(key), outer.get(key)) {
            (_, None) => true,
            // The old form of `items`: one schema for each place.
            (Some(inner), Some(outer @ Value::Array(_))) => same(Some(inner), outer),
            (None, Some(outer)) => self.is_within(&ANYTHING, outer),
            (Some(inner), Some(outer)) => self.is_within(inner, outer),
        }
    }

    fn properties_are_within(&mut self, inner: &'a Map<String, Value>, outer: &'a Map<String, Value>) -> bool {
        let (of_inner, of_outer) = (properties(inner), properties(outer));
        let is_new = |name: &String| !of_outer.is_some_and(|known| known.contains_key(name));
        if of_inner.into_iter().flat_map(Map::keys).any(is_new) {
            return false;
        }
        of_outer.into_iter().flatten().all(|(name, schema)| match of_inner.and_then(|known| known.get(name)) {
            Some(now) => self.is_within(now, schema),
            // No longer described: what is let in now is what the schema says of any other name.
            None if inner.contains_key("patternProperties") => false,
            None => self.is_within(inner.get("additionalProperties").unwrap_or(&ANYTHING), schema),
        })
    }

    /// `anyOf` and `allOf`: every alternative now is one there was; every condition there was still holds.
    fn alternatives_are_within(
        &mut self,
        whole: &'a Value,
        inner: &'a Map<String, Value>,
        outer: &'a Map<String, Value>,
    ) -> bool {
        let list = |schema: &'a Map<String, Value>, key| schema.get(key).and_then(Value::as_array);
        let any = match (list(inner, "anyOf"), list(outer, "anyOf")) {
            (_, None) => true,
            (None, Some(were)) => were.iter().any(|was| self.is_within(whole, was)),
            (Some(now), Some(were)) => now.iter().all(|one| were.iter().any(|was| self.is_within(one, was))),
        };
        any && match (list(inner, "allOf"), list(outer, "allOf")) {
            (_, None) => true,
            (None, Some(were)) => were.iter().all(|was| self.is_within(whole, was)),
            (Some(now), Some(were)) => were.iter().all(|was| now.iter().any(|one| self.is_within(one, was))),
        }
    }

    /// References that stand beside other keywords.
    fn refs_are_within(&mut self, inner: &'a Map<String, Value>, outer: &'a Map<String, Value>) -> bool {
        match (inner.get("$ref"), outer.get("$ref")) {
            (None, None) => true,
            (Some(inner), Some(outer)) => match (target(self.after, inner), target(self.before, outer)) {
                (Some(inner), Some(outer)) => self.is_within(inner, outer),
                _ => false,
            },
            // In older drafts nothing beside a reference counts, so one that is new may also widen.
            _ => false,
        }
    }
}

static ANYTHING: Value = Value::Bool(true);

/// The schema behind references that stand alone; what cannot be followed stays as it is.
fn followed<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..MOST_REFS {
        let Some(map) = schema.as_object() else { break };
        let alone = map.keys().all(|key| key == "$ref" || is_words(key));
        match map.get("$ref").filter(|_| alone).and_then(|reference| target(root, reference)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

fn target<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    local(root, reference.as_str()?)
}

fn nothing_is_exempt(inner: &Map<String, Value>, outer: &Map<String, Value>) -> bool {
    let agree = |key: &&str| match (inner.get(*key), outer.get(*key)) {
        (None, None) => true,
        (now, Some(was)) => same(now, was),
        (Some(_), None) => false,
    };
    let restricts = |key: &str| outer.get(key).is_some_and(|rule| *rule != ANYTHING);
    EXEMPT.iter().all(|(key, others)| !restricts(key) || others.iter().all(agree))
}

fn is_words(key: &str) -> bool {
    WORDS.contains(&key) || key.starts_with("x-")
}

/// Whether no keyword restricts anything.
fn accepts_all(schema: &Map<String, Value>) -> bool {
    schema.keys().all(|key| is_words(key) || key == "$defs" || key == "definitions")
}

fn types_are_within(inner: &Map<String, Value>, outer: &Map<String, Value>) -> bool {
    let Some(of_outer) = types(outer) else { return true };
    // An enum alone says which types there are.
    let Some(of_inner) = types(inner).or_else(|| Some(values(inner)?.into_iter().map(kind).collect())) else {
        return false;
    };
    let known = |name: &&str| of_outer.contains(name) || (*name == "integer" && of_outer.contains("number"));
    of_inner.iter().all(known)
}

/// `None`: any type.
fn types(schema: &Map<String, Value>) -> Option<BTreeSet<&str>> {
    let mut types: BTreeSet<&str> = match schema.get("type")? {
        Value::String(name) => BTreeSet::from([name.as_str()]),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        types.insert("null");
    }
    Some(types)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `None`: any value.
fn values(schema: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(only), _) => Some(vec![only]),
        (None, Some(values)) => Some(values.iter().collect()),
        (None, None) => None,
    }
}

fn values_are_within(inner: &Map<String, Value>, outer: &Map<String, Value>) -> bool {
    let Some(of_outer) = values(outer) else { return true };
    values(inner).is_some_and(|now| now.iter().all(|value| of_outer.contains(value)))
}

fn bounds_are_within(inner: &Map<String, Value>, outer: &Map<String, Value>) -> bool {
    let number = |schema: &Map<String, Value>, key: &str| schema.get(key).and_then(Value::as_f64);
    let at_least = |key: &&str| number(outer, key).is_none_or(|was| number(inner, key).is_some_and(|now| now >= was));
    let at_most = |key: &&str| number(outer, key).is_none_or(|was| number(inner, key).is_some_and(|now| now <= was));
    let step = |was: f64| number(inner, "multipleOf").is_some_and(|now| was > 0.0 && now % was == 0.0);
    LOWER.iter().all(at_least)
        && UPPER.iter().all(at_most)
        && end_is_within(inner, outer, ["minimum", "exclusiveMinimum"], 1.0)
        && end_is_within(inner, outer, ["maximum", "exclusiveMaximum"], -1.0)
        && number(outer, "multipleOf").is_none_or(step)
        && (outer.get("uniqueItems") != Some(&Value::Bool(true))
            || inner.get("uniqueItems") == outer.get("uniqueItems"))
}

/// One end of a range; `sign` turns the upper end into a lower one.
fn end_is_within(inner: &Map<String, Value>, outer: &Map<String, Value>, keys: [&str; 2], sign: f64) -> bool {
    // The greatest of what is stated, and whether the value itself is left out.
    let end = |schema: &Map<String, Value>| {
        let plain = schema.get(keys[0]).and_then(Value::as_f64).map(|value| value * sign);
        match schema.get(keys[1]) {
            Some(Value::Number(value)) => {
                let exclusive = value.as_f64().map(|value| value * sign);
                match (plain, exclusive) {
                    (Some(plain), Some(exclusive)) if plain > exclusive => Some((plain, false)),
                    (_, Some(exclusive)) => Some((exclusive, true)),
                    (plain, None) => plain.map(|value| (value, false)),
                }
            }
            // As draft 4 has it.
            Some(Value::Bool(true)) => plain.map(|value| (value, true)),
            Some(_) | None => plain.map(|value| (value, false)),
        }
    };
    let Some((was, left_out)) = end(outer) else { return true };
    end(inner).is_some_and(|(now, out)| now > was || (now == was && (out || !left_out)))
}

fn required_is_within(inner: &Map<String, Value>, outer: &Map<String, Value>) -> bool {
    let names = |schema: &'_ Map<String, Value>| -> BTreeSet<String> {
        let listed = schema.get("required").and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    names(outer).is_subset(&names(inner))
}

fn properties(schema: &Map<String, Value>) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

/// Whether `now` is `was` but for words.
fn same(now: Option<&Value>, was: &Value) -> bool {
    now.is_some_and(|now| wordless(now) == wordless(was))
}

/// Bounded, as cards are: their depth is limited where they are read.
fn wordless(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => map
            .iter()
            // A property may be called `title`; its schema is no text.
            .filter(|(key, value)| !is_words(key) || (value.is_object() && key.as_str() != "default"))
            .map(|(key, value)| (key.clone(), wordless(value)))
            .collect(),
        Value::Array(items) => items.iter().map(wordless).collect(),
        leaf => leaf.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::args::ArgumentSchema;

    #[track_caller]
    fn check(before: Value, after: Value, widened: bool) {
        assert_eq!(is_widened(&before, &after), widened, "{before} -> {after}");
    }

    fn object(properties: Value) -> Value {
        json!({"type": "object", "additionalProperties": false, "properties": properties})
    }

    #[test]
    fn words_are_no_change_and_the_same_is_not_wider() {
        let limit = |words: &str, maximum: u32| {
            object(json!({"limit": {"type": "integer", "maximum": maximum, "description": words, "default": 5}}))
        };
        check(limit("how many", 20), limit("最多多少条", 20), false);
        check(limit("how many", 20), limit("how many", 10), false);
        check(limit("how many", 20), limit("how many", 21), true);
        check(json!({"type": "object"}), json!({"type": "object"}), false);
    }

    #[test]
    fn what_was_taken_away_widens_and_what_was_added_narrows() {
        for (rule, narrower) in [
            (json!({"type": "string", "pattern": "^SO-\\d{14}$"}), None),
            (json!({"type": "string", "format": "date"}), None),
            (json!({"type": "string", "maxLength": 20}), Some(json!({"type": "string", "maxLength": 5}))),
            (json!({"enum": ["a", "b"]}), Some(json!({"const": "a"}))),
            (json!({"type": "number"}), Some(json!({"type": "integer"}))),
            (json!({"type": ["string", "null"]}), Some(json!({"type": "string"}))),
            (json!({"minimum": 1}), Some(json!({"exclusiveMinimum": 1}))),
            (json!({"multipleOf": 5}), Some(json!({"multipleOf": 10}))),
            (json!({"type": "array", "items": {"type": "string"}}), None),
            (json!({"not": {"const": "x"}}), None),
            (json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}), Some(json!({"anyOf": [{"type": "string"}]}))),
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), Some(json!({"type": "string"}))),
            (json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}), None),
        ] {
            let of = |rule: &Value| object(json!({ "x": rule }));
            check(of(&rule), of(&json!({})), true);
            check(of(&json!({})), of(&rule), false);
            if let Some(narrower) = narrower {
                check(of(&rule), of(&narrower), false);
                check(of(&narrower), of(&rule), true);
            }
        }
    }

    #[test]
    fn a_member_that_spells_out_an_escape_hides_no_wider_one() {
        let of = |meant: Value| {
            json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/%61"}},
                "$defs": {"%61": {"maxLength": 5}, "a": meant}})
        };
        check(of(json!({"maxLength": 5})), of(json!({"maxLength": 9})), true);
        check(of(json!({"maxLength": 5})), of(json!({"maxLength": 3})), false);
    }

    #[test]
    fn parameters_are_new_gone_required_or_let_in() {
        let one = object(json!({"id": {"type": "string"}}));
        let two = object(json!({"id": {"type": "string"}, "notes": {"type": "string"}}));
        check(one.clone(), two.clone(), true);
        check(two.clone(), one.clone(), false);
        let required = json!({"type": "object", "additionalProperties": false, "required": ["id"],
            "properties": {"id": {"type": "string"}}});
        check(required.clone(), one.clone(), true);
        check(one.clone(), required, false);
        let open = json!({"type": "object", "properties": {"id": {"type": "string"}}});
        check(one.clone(), open.clone(), true);
        check(open.clone(), one, false);
        // Let in before, filled by a model from now on.
        check(open, json!({"type": "object", "properties": {"id": {"type": "string"}, "notes": {}}}), true);
    }

    #[test]
    fn references_are_followed_and_loops_end() {
        let by_ref = |maximum: u32| {
            json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}},
            "$defs": {"n": {"type": "integer", "maximum": maximum}}})
        };
        let inline =
            |maximum: u32| json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": maximum}}});
        check(by_ref(5), by_ref(6), true);
        check(by_ref(5), by_ref(4), false);
        check(by_ref(5), inline(5), false);
        check(inline(5), by_ref(6), true);
        let tree = |kind: &str| {
            json!({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}}, "$defs":
            {"node": {"type": "object", "properties": {"value": {"type": kind}, "next": {"$ref": "#/$defs/node"}}}}})
        };
        check(tree("string"), tree("integer"), true);
        let mut narrower = tree("string");
        narrower["properties"]["root"]["description"] = "the top".into();
        narrower["$defs"]["node"]["properties"]["value"]["maxLength"] = 9.into();
        check(tree("string"), narrower.clone(), false);
        check(narrower, tree("string"), true);
        let itself = |words: &str| json!({"type": "object", "minProperties": words.len(), "properties": {"x": {"$ref": "#/properties/x"}}});
        check(itself("a"), itself("ab"), false);
        // Two that unfold differently, without end.
        let deep = |levels: usize| (0..levels).fold(json!({"$ref": "#"}), |inner, _| json!({"items": inner}));
        let _ = is_widened(&deep(7), &deep(11));
    }

    /// Small schemas over the same few parameters.
    fn rule() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({})),
            (prop::option::of(0..4i64), prop::option::of(0..4i64)).prop_map(|(low, high)| {
                let mut schema = json!({"type": "integer"});
                let map = schema.as_object_mut().unwrap();
                map.extend(low.map(|low| ("minimum".to_owned(), low.into())));
                map.extend(high.map(|high| ("exclusiveMaximum".to_owned(), high.into())));
                schema
            }),
            prop::sample::subsequence(vec![json!(1), json!(2), json!("a"), json!("退")], 1..4)
                .prop_map(|values| json!({ "enum": values })),
            (0..4u32).prop_map(|most| json!({"type": ["string", "null"], "maxLength": most})),
            Just(json!({"type": "string", "pattern": "^a"})),
        ];
        leaf.prop_recursive(2, 8, 2, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({ "anyOf": all })),
                prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({ "allOf": all })),
                inner.prop_map(|not| json!({ "not": not })),
            ]
        })
    }

    fn schema() -> impl Strategy<Value = Value> {
        (
            prop::collection::btree_map("[pq]", rule(), 0..3),
            prop::sample::subsequence(vec!["p", "q"], 0..2),
            prop::option::of(prop_oneof![Just(json!(false)), rule()]),
        )
            .prop_map(|(properties, required, rest)| {
                let mut schema = json!({"type": "object", "properties": properties, "required": required});
                schema.as_object_mut().unwrap().extend(rest.map(|rest| ("additionalProperties".to_owned(), rest)));
                schema
            })
    }

    fn arguments() -> impl Strategy<Value = Map<String, Value>> {
        let value = prop_oneof![
            (0..4i64).prop_map(Value::from),
            "[ab退]{0,3}".prop_map(Value::from),
            Just(Value::Null),
            Just(json!(1.5)),
        ];
        prop::collection::btree_map("[pqr]", value, 0..3).prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #[test]
        fn what_passes_accepts_nothing_that_was_not_accepted(
            before in schema(),
            after in schema(),
            samples in prop::collection::vec(arguments(), 24),
        ) {
            prop_assert!(!is_widened(&before, &before), "{before}");
            if !is_widened(&before, &after) {
                let (was, now) = (jsonschema::validator_for(&before).unwrap(), jsonschema::validator_for(&after).unwrap());
                for arguments in samples {
                    let value = Value::Object(arguments);
                    prop_assert!(was.is_valid(&value) || !now.is_valid(&value), "{value}: {before} -> {after}");
                }
            }
            let _ = ArgumentSchema::compile(&after);
        }
    }
}
