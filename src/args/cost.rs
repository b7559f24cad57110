//! What it takes to check a value against a schema, known before anything is checked.
//!
//! Owns: how often the parts of a schema apply to one value, and the bounds on that.
//! Does not know: what keywords say, only which schemas they apply to the same value and which to its members.
//!
//! References multiply. A chain of `allOf` with two references to the next link checks a value 2^n times: such a schema is
//! refused. One that refers to itself twice for the same member checks the members at depth n 2^n times: it is sound for
//! values of the usual depth, so here the value is refused ([`Cost::affords`]).

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::{SchemaError, resolve};

/// Keywords checked on one value, beyond those of its members. Large unions of real schemas need some thousands.
const MOST_ON_ONE: u64 = 100_000;
/// Keywords visited to find that out, for all parts of a schema together.
const MOST_VISITS: u64 = 1_000_000;
/// Schemas inside each other that apply to the same value: each takes room on the stack.
const MOST_NESTED: usize = 100;
/// Keywords checked on a whole value: some tenths of a second.
const MOST_IN_ALL: u64 = 5_000_000;
/// Levels of a value that are told apart.
const LEVELS: usize = 40;

/// How often keywords are checked on a value of one schema.
#[derive(Debug)]
pub(super) struct Cost {
    /// On one value at most, by its depth. Deeper ones count like those of the last level.
    levels: Vec<u64>,
}

impl Cost {
    /// # Errors
    /// A schema that cannot be applied to any value in bounded time. No keyword of it is at fault alone, so the place is in
    /// the words and the pointer leads to the whole.
    pub(super) fn of(document: &Value) -> Result<Self, SchemaError> {
        let mut survey = Survey::new(document);
        let mut next = 0;
        while next < survey.parts.len() {
            if let Err(excess) = survey.visit_part(next) {
                let place = survey.place(next);
                return Err(SchemaError::new("", format!("{} (below `{place}`)", excess.words())));
            }
            next += 1;
        }
        Ok(Self { levels: levels(&survey.parts) })
    }

    /// Whether checking `value` stays within bounds.
    pub(super) fn affords(&self, value: &Value) -> bool {
        self.spend(value, 0, &mut { MOST_IN_ALL })
    }

    fn spend(&self, value: &Value, depth: usize, left: &mut u64) -> bool {
        let level = depth.min(self.levels.len().saturating_sub(1));
        let Some(rest) = left.checked_sub(self.levels.get(level).copied().unwrap_or(0)) else { return false };
        *left = rest;
        match value {
            Value::Array(items) => items.iter().all(|item| self.spend(item, depth + 1, left)),
            Value::Object(members) => members.values().all(|member| self.spend(member, depth + 1, left)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
}

enum Excess {
    Multiplied,
    Nested,
    /// A part with an address of its own resolves references otherwise than is assumed here.
    Embedded,
}

impl Excess {
    fn words(&self) -> String {
        match self {
            Self::Multiplied => format!("references multiply: one value would be checked over {MOST_ON_ONE} times"),
            Self::Nested => format!("more than {MOST_NESTED} references and alternatives inside each other"),
            Self::Embedded => "a reference leads into a schema with an `$id` of its own".to_owned(),
        }
    }
}

/// Which members of a value a schema applies to. Those that may be any come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step<'a> {
    AnyName,
    Name(&'a str),
    AnyPlace,
    Place(usize),
}

/// A schema that applies to the whole value or to members of one.
struct Part<'a> {
    schema: &'a Value,
    /// The part whose members it applies to, and how they are called there.
    from: Option<(usize, Step<'a>)>,
    /// Keywords checked on a value of its own.
    checks: u64,
    /// Parts for its members, by number, and how many times each applies. Less than none takes back what
    /// [`Step::AnyName`] counts for names it does not hold for.
    members: BTreeMap<(Step<'a>, usize), i64>,
}

struct Survey<'a> {
    document: &'a Value,
    draft4: bool,
    parts: Vec<Part<'a>>,
    by_address: HashMap<*const Value, usize>,
    /// Schemas by the name that a reference may use instead of a pointer; found when first asked for.
    anchors: Option<HashMap<&'a str, Vec<&'a Value>>>,
    /// Targets of the references met so far, by the address of their text.
    targets: HashMap<*const u8, Vec<&'a Value>>,
    visits: u64,
    /// Of the part being visited.
    current: usize,
    /// Targets of references being visited: the validator does not enter one again for the same value.
    open: Vec<*const Value>,
}

impl<'a> Survey<'a> {
    fn new(document: &'a Value) -> Self {
        let draft4 = document.get("$schema").and_then(Value::as_str).is_some_and(|uri| uri.contains("draft-04"));
        let mut survey = Self {
            document,
            draft4,
            parts: Vec::new(),
            by_address: HashMap::new(),
            anchors: None,
            targets: HashMap::new(),
            visits: 0,
            current: 0,
            open: Vec::new(),
        };
        survey.part(document, None);
        survey
    }

    /// The number of the part that `schema` is.
    fn part(&mut self, schema: &'a Value, from: Option<(usize, Step<'a>)>) -> usize {
        let parts = &mut self.parts;
        *self.by_address.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            parts.push(Part { schema, from, checks: 0, members: BTreeMap::new() });
            parts.len() - 1
        })
    }

    fn visit_part(&mut self, number: usize) -> Result<(), Excess> {
        self.current = number;
        self.open.clear();
        self.visit(self.parts[number].schema, 0, false)
    }

    /// `marks`: the visit that finds out for `unevaluatedProperties` and `unevaluatedItems` which members others have
    /// seen. It checks each schema below before it asks that one the same.
    fn visit(&mut self, schema: &'a Value, depth: usize, marks: bool) -> Result<(), Excess> {
        let weight = weight(schema);
        self.visits += weight;
        let part = &mut self.parts[self.current];
        part.checks += weight;
        if part.checks > MOST_ON_ONE || self.visits > MOST_VISITS {
            return Err(Excess::Multiplied);
        }
        if depth > MOST_NESTED {
            return Err(Excess::Nested);
        }
        let Value::Object(map) = schema else { return Ok(()) };
        if !std::ptr::eq(schema, self.document) && self.is_embedded(map) {
            return Err(Excess::Embedded);
        }
        if !marks {
            self.members(map);
        }
        for (keyword, value) in map {
            match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    self.reference(reference, depth, marks)?;
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                    branches.iter().try_for_each(|branch| self.branch(branch, depth, marks))?;
                }
                ("not" | "if" | "then" | "else", _) => self.branch(value, depth, marks)?,
                ("dependentSchemas" | "dependencies", Value::Object(named)) => {
                    let schemas = named.values().filter(|schema| !schema.is_array());
                    schemas.into_iter().try_for_each(|branch| self.branch(branch, depth, marks))?;
                }
                _ => {}
            }
        }
        if !marks && (map.contains_key("unevaluatedProperties") || map.contains_key("unevaluatedItems")) {
            self.visit(schema, depth + 1, true)?;
        }
        Ok(())
    }

    /// A schema that applies to the same value.
    fn branch(&mut self, schema: &'a Value, depth: usize, marks: bool) -> Result<(), Excess> {
        self.visit(schema, depth + 1, false)?;
        if marks { self.visit(schema, depth + 1, true) } else { Ok(()) }
    }

    fn reference(&mut self, reference: &'a str, depth: usize, marks: bool) -> Result<(), Excess> {
        if !self.targets.contains_key(&reference.as_ptr()) {
            let found = self.look_up(reference)?;
            self.targets.insert(reference.as_ptr(), found);
        }
        // Which of several schemas with the same name is meant may depend on the way to it: all count.
        let targets = self.targets.get(&reference.as_ptr()).cloned().unwrap_or_default();
        for target in targets {
            let address = std::ptr::from_ref(target);
            if !self.open.contains(&address) {
                self.open.push(address);
                self.branch(target, depth, marks)?;
                self.open.pop();
            }
        }
        Ok(())
    }

    fn look_up(&mut self, reference: &'a str) -> Result<Vec<&'a Value>, Excess> {
        let Some(fragment) = reference.strip_prefix('#') else { return Ok(Vec::new()) };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let document = self.document;
            let anchors = self.anchors.get_or_insert_with(|| anchors(document));
            return Ok(anchors.get(fragment).cloned().unwrap_or_default());
        }
        let Some(target) = resolve::target(self.document, fragment) else { return Ok(Vec::new()) };
        if self.leads_into_embedded(fragment) { Err(Excess::Embedded) } else { Ok(vec![target]) }
    }

    fn leads_into_embedded(&self, fragment: &str) -> bool {
        let inner = fragment.match_indices('/').skip(1).map(|(end, _)| &fragment[..end]);
        let mut passed = inner.filter_map(|pointer| resolve::target(self.document, pointer)?.as_object());
        passed.any(|map| self.is_embedded(map))
    }

    fn is_embedded(&self, map: &Map<String, Value>) -> bool {
        let own = map.get(if self.draft4 { "id" } else { "$id" }).and_then(Value::as_str);
        own.is_some_and(|address| !address.starts_with('#'))
    }

    fn members(&mut self, map: &'a Map<String, Value>) {
        let named = |keyword| map.get(keyword).and_then(Value::as_object).into_iter().flatten();
        let listed = |keyword| map.get(keyword).and_then(Value::as_array).into_iter().flatten().enumerate();
        // Both apply to what the other lists leave over.
        let other_names = map.get("additionalProperties").filter(|schema| schema.is_object());
        let other_places = map.get("items").filter(|schema| schema.is_object());
        for (name, schema) in named("properties") {
            self.member(Step::Name(name), schema, 1);
            other_names.into_iter().for_each(|schema| self.member(Step::Name(name), schema, -1));
        }
        for (place, schema) in listed("prefixItems").chain(listed("items")) {
            self.member(Step::Place(place), schema, 1);
            other_places.into_iter().for_each(|schema| self.member(Step::Place(place), schema, -1));
        }
        let anyhow = ["unevaluatedProperties", "propertyNames"].into_iter().filter_map(|keyword| map.get(keyword));
        for schema in anyhow.chain(other_names).chain(named("patternProperties").map(|(_, schema)| schema)) {
            self.member(Step::AnyName, schema, 1);
        }
        let anywhere = ["unevaluatedItems", "additionalItems", "contains"];
        for schema in anywhere.into_iter().filter_map(|keyword| map.get(keyword)).chain(other_places) {
            self.member(Step::AnyPlace, schema, 1);
        }
    }

    fn member(&mut self, step: Step<'a>, schema: &'a Value, times: i64) {
        let number = self.part(schema, Some((self.current, step)));
        *self.parts[self.current].members.entry((step, number)).or_insert(0) += times;
    }

    /// Names of the members that lead to a part, for a message.
    fn place(&self, number: usize) -> String {
        const LONGEST: usize = 100;
        let mut steps = Vec::new();
        let mut from = self.parts[number].from;
        while let Some((parent, step)) = from {
            steps.push(match step {
                Step::Name(name) => name.chars().take(LONGEST).collect(),
                Step::Place(place) => place.to_string(),
                Step::AnyName | Step::AnyPlace => "*".to_owned(),
            });
            from = self.parts[parent].from;
        }
        steps.reverse();
        steps.iter().fold(String::new(), |path, step| format!("{path}/{step}")).chars().take(3 * LONGEST).collect()
    }
}

/// Keywords of one schema, the long ones by what they hold.
fn weight(schema: &Value) -> u64 {
    const LISTED_AT_ONCE: usize = 8;
    let Value::Object(map) = schema else { return 1 };
    let length = |keyword| match map.get(keyword) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    };
    let long = length("properties") + length("required") + length("enum") / LISTED_AT_ONCE;
    (1 + map.len() + long) as u64
}

/// All values that carry a name for references, wherever they stand.
fn anchors(document: &Value) -> HashMap<&str, Vec<&Value>> {
    let mut found: HashMap<&str, Vec<&Value>> = HashMap::new();
    let mut open = vec![document];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(map) => {
                for keyword in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                    if let Some(name) = map.get(keyword).and_then(Value::as_str) {
                        found.entry(name.trim_start_matches('#')).or_default().push(value);
                    }
                }
                open.extend(map.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

/// Keywords checked at most on one value at each depth below a value of the first part.
fn levels(parts: &[Part<'_>]) -> Vec<u64> {
    let mut deep: Vec<u64> = parts.iter().map(|part| part.checks).collect();
    let mut levels = vec![deep[0]];
    while levels.len() < LEVELS && deep[0] <= MOST_IN_ALL {
        let deeper: Vec<u64> = parts.iter().map(|part| on_members(part, &deep)).collect();
        levels.push(deeper[0]);
        if deeper == deep {
            break;
        }
        deep = deeper;
    }
    levels
}

/// At most on one member, if `checks` are those of each part.
fn on_members(part: &Part<'_>, checks: &[u64]) -> u64 {
    // Far beyond any bound, and small enough to count on with.
    const MOST: i128 = 1 << 50;
    let sum_of = |wanted: Step<'_>| -> i128 {
        let these = part.members.range((wanted, 0)..=(wanted, usize::MAX));
        these.map(|((_, number), times)| i128::from(*times) * i128::from(checks[*number])).sum()
    };
    let (any_name, any_place) = (sum_of(Step::AnyName), sum_of(Step::AnyPlace));
    let mut most = any_name.max(any_place);
    let mut entries = part.members.iter().peekable();
    while let Some(((step, number), times)) = entries.next() {
        let mut sum = i128::from(*times) * i128::from(checks[*number]);
        while let Some(((_, number), times)) = entries.next_if(|((next, _), _)| next == step) {
            sum += i128::from(*times) * i128::from(checks[*number]);
        }
        match step {
            Step::AnyName | Step::AnyPlace => {}
            Step::Name(_) => most = most.max(any_name + sum),
            Step::Place(_) => most = most.max(any_place + sum),
        }
    }
    u64::try_from(most.clamp(0, MOST)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::args::{ArgumentSchema, validate};

    /// `order_id` with a chain of `links` definitions, each of which applies the next one twice by `twice`.
    fn chain(links: usize, twice: impl Fn(Value) -> Value) -> Value {
        let mut defs = Map::new();
        for link in 0..links {
            defs.insert(format!("a{link}"), twice(json!({"$ref": format!("#/$defs/a{}", link + 1)})));
        }
        defs.insert(format!("a{links}"), json!({"minLength": 1}));
        json!({"type": "object", "$defs": defs, "properties": {
            "order_id": {"type": "string", "pattern": "^SO-\\d{14}$", "allOf": [{"$ref": "#/$defs/a0"}]}}})
    }

    #[track_caller]
    fn refused(schema: &Value) -> SchemaError {
        let start = Instant::now();
        let error = ArgumentSchema::compile(schema).expect_err("the schema should be refused");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        error
    }

    #[test]
    fn references_that_multiply_are_refused_by_whatever_keyword() {
        let error = refused(&chain(40, |next| json!({"allOf": [next, next]})));
        assert_eq!(error.pointer, "", "nothing that could be left out is at fault alone");
        assert!(error.message.contains("multiply") && error.message.contains("/order_id"), "{error}");
        for keyword in ["anyOf", "oneOf"] {
            refused(&chain(40, |next| json!({keyword: [next, next]})));
        }
        refused(&chain(40, |next| json!({"not": next, "if": next})));
        refused(&chain(40, |next| json!({"$ref": next["$ref"], "then": next, "if": true})));
        refused(&chain(40, |next| json!({"dependentSchemas": {"a": next, "b": next}})));
        refused(&chain(40, |next| json!({"dependencies": {"a": next, "b": next}})));
        refused(&chain(40, |next| json!({"$dynamicRef": next["$ref"], "allOf": [next]})));
        refused(&chain(40, |next| json!({"anyOf": [next], "unevaluatedProperties": false})));
        // Each refers to all others: there are as many ways through as orders of them.
        let all: Vec<Value> = (0..14).map(|link| json!({"$ref": format!("#/$defs/a{link}")})).collect();
        let defs: Map<String, Value> = (0..14).map(|link| (format!("a{link}"), json!({"allOf": all}))).collect();
        refused(&json!({"type": "object", "$defs": defs, "allOf": [{"$ref": "#/$defs/a0"}]}));
    }

    #[test]
    fn names_places_and_other_spellings_of_a_target_are_no_way_around() {
        let mut by_name = chain(40, |next| json!({"allOf": [next, next]}));
        let text = by_name.to_string();
        by_name = serde_json::from_str(&text.replace("#/$defs/a", "#a")).unwrap();
        for (name, schema) in by_name["$defs"].as_object_mut().unwrap() {
            schema["$anchor"] = json!(name);
        }
        refused(&by_name);
        // Where no keyword expects a schema, nothing is repaired, but a reference may lead there.
        refused(&serde_json::from_str(&text.replace("$defs", "x-parts")).unwrap());
        // `%61` is `a`: the member whose name is spelled out is a decoy.
        let mut decoys = serde_json::from_str::<Value>(&text.replace("#/$defs/a", "#/$defs/%61")).unwrap();
        for link in 0..=40 {
            decoys["$defs"][format!("%61{link}")] = json!({});
        }
        refused(&decoys);
        // A part with an address of its own would resolve the same references within itself.
        let mut embedded = chain(1, |next| json!({"allOf": [next, next]}));
        let inner = serde_json::from_str::<Value>(&text).unwrap();
        embedded["x-inner"] =
            json!({"$id": "http://a.example/", "part": {"$ref": "#/$defs/a0"}, "$defs": inner["$defs"]});
        embedded["properties"]["b"] = json!({"$ref": "#/x-inner/part"});
        refused(&embedded);
        let mut told = chain(40, |next| json!({"allOf": [next]}));
        told["properties"]["b"] = json!({"$id": "http://a.example/", "$ref": "#/$defs/a0", "$defs": inner["$defs"]});
        let told = ArgumentSchema::compile(&told).unwrap();
        assert!(told.notices().iter().any(|notice| notice.contains("$id")), "{:?}", told.notices());
        assert!(told.fits("b", &json!("x")) && !told.fits("b", &json!("")));
    }

    #[test]
    fn chains_end_before_the_stack_does() {
        let long = chain(5_000, |next| next);
        assert!(refused(&long).message.contains("inside each other"));
        let next = json!({"properties": {"n": {"$ref": "#/$defs/a0"}}});
        let mut looped = chain(45, |next| json!({"allOf": [next]}));
        looped["$defs"]["a45"] = next;
        looped["properties"]["n"] = json!({"$ref": "#/$defs/a0"});
        let schema = ArgumentSchema::compile(&looped).unwrap();
        let value = (0..30).fold(json!({}), |inner, _| json!({"n": inner}));
        // As small as the stack of a thread of the runtime.
        let apply = move || validate(&schema, &value).is_ok();
        assert!(std::thread::Builder::new().stack_size(2 << 20).spawn(apply).unwrap().join().unwrap());
    }

    #[test]
    fn what_multiplies_with_the_depth_of_a_value_bounds_the_value() {
        let again = json!({"properties": {"n": {"$ref": "#/$defs/T"}}});
        let schema = ArgumentSchema::compile(&json!({"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}},
            "$defs": {"T": {"type": "object", "allOf": [again, again]}}}))
        .unwrap();
        let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({"n": inner}));
        assert!(schema.fits("t", &nested(10)) && validate(&schema, &json!({"t": nested(10)})).is_ok());
        let start = Instant::now();
        let problem = validate(&schema, &json!({"t": nested(30)})).unwrap_err();
        assert!(problem.message.contains("nested"), "{}", problem.message);
        assert!(!schema.fits("t", &nested(60)));
        // As a text, read on the way.
        assert!(validate(&schema, &json!({"t": nested(30).to_string()})).is_err());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }

    #[test]
    fn what_real_schemas_do_costs_no_more_than_it_holds() {
        let pet = |of: &str| json!({"allOf": [{"$ref": "#/$defs/Pet"}, {"properties": {"kind": {"const": of}}}]});
        let kinds: Vec<String> = (0..60).map(|kind| format!("Kind{kind}")).collect();
        let one_of: Vec<Value> = kinds.iter().map(|kind| json!({"$ref": format!("#/$defs/{kind}")})).collect();
        let mut defs: Map<String, Value> = kinds.iter().map(|kind| (kind.clone(), pet(kind))).collect();
        defs.insert("Pet".into(), json!({"type": "object", "anyOf": one_of}));
        // As inheritance in OpenAPI has it: each kind is all of the pet, which is one of the kinds.
        let pets = json!({"type": "object", "$defs": defs, "properties": {"pet": {"$ref": "#/$defs/Pet"}}});
        assert!(ArgumentSchema::compile(&pets).is_ok());

        let node = json!({"type": "object", "properties": {"left": {"$ref": "#/$defs/N"}, "right": {"$ref": "#/$defs/N"},
            "others": {"type": "array", "items": {"$ref": "#/$defs/N"}}}, "additionalProperties": {"$ref": "#/$defs/N"}});
        let tree = json!({"type": "object", "$defs": {"N": node}, "properties": {"n": {"$ref": "#/$defs/N"}}});
        let cost = Cost::of(&tree).unwrap();
        assert!(cost.levels.iter().all(|checks| *checks < 40), "{:?}", cost.levels);

        let filter = |op: &str| {
            json!({"type": "object", "required": ["op"], "properties": {"op": {"const": op},
            "args": {"type": "array", "items": {"$ref": "#/$defs/F"}}}})
        };
        let filters = json!({"type": "object", "properties": {"where": {"$ref": "#/$defs/F"}},
            "$defs": {"F": {"oneOf": [filter("and"), filter("or"), filter("not"), {"type": "string"}]}}});
        let schema = ArgumentSchema::compile(&filters).unwrap();
        let query = (0..6).fold(json!("a"), |inner, _| json!({"op": "or", "args": [inner, "b"]}));
        assert!(validate(&schema, &json!({"where": query})).is_ok());
    }

    /// Definitions that refer to each other, mostly onwards, twice and more, by several keywords at once.
    fn tangled() -> impl Strategy<Value = Value> {
        const DEFINITIONS: usize = 30;
        let keyword = prop::sample::select(vec![
            "allOf",
            "anyOf",
            "oneOf",
            "properties",
            "prefixItems",
            "not",
            "if",
            "then",
            "items",
            "$ref",
            "contains",
            "additionalProperties",
            "unevaluatedProperties",
            "unevaluatedItems",
            "dependentSchemas",
            "$dynamicRef",
        ]);
        let target = prop_oneof![4 => 1..3_usize, 1 => 0..DEFINITIONS];
        let keywords = prop::collection::vec((keyword, prop::collection::vec(target, 1..4)), 1..4);
        prop::collection::vec(keywords, DEFINITIONS).prop_map(|definitions| {
            let mut defs = Map::new();
            for (number, keywords) in definitions.into_iter().enumerate() {
                let name = |onwards: &usize| format!("#/$defs/d{}", (number + onwards) % DEFINITIONS);
                let to = |onwards: &usize| json!({"$ref": name(onwards)});
                let under = |(keyword, targets): (&'static str, Vec<usize>)| match keyword {
                    "$ref" | "$dynamicRef" => (keyword.to_owned(), json!(name(&targets[0]))),
                    "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                        (keyword.to_owned(), targets.iter().map(to).collect())
                    }
                    "properties" | "dependentSchemas" => {
                        let named = targets.iter().enumerate().map(|(n, target)| (format!("p{n}"), to(target)));
                        (keyword.to_owned(), named.collect())
                    }
                    _ => (keyword.to_owned(), to(&targets[0])),
                };
                defs.insert(format!("d{number}"), keywords.into_iter().map(under).collect());
            }
            json!({"type": "object", "$defs": defs, "properties": {"p0": {"$ref": "#/$defs/d0"}}})
        })
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), Just(json!(3)), Just(json!("a"))];
        leaf.prop_recursive(6, 40, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map("p[0-5]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn what_is_let_through_is_checked_soon(schema in tangled(), value in value()) {
            let start = Instant::now();
            if let Ok(schema) = ArgumentSchema::compile(&schema) {
                let _ = validate(&schema, &json!({"p0": value}));
                let _ = schema.fits("p0", &value);
            }
            prop_assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        }
    }
}
