//! One tool's argument schema, compiled once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, ValidationError, ValidationOptions, Validator};
use regex::Regex;
use serde_json::{Map, Value, json};

use super::property::Property;
use super::{cost, explain, pattern, repair, resolve};
use crate::types::FieldProblem;
use crate::types::encoding::escape_pointer;

/// Steps a pattern may backtrack before it counts as not matching.
const BACKTRACK_LIMIT: usize = 50_000;
/// Largest compiled pattern, in bytes.
const PATTERN_SIZE: usize = 1 << 20;

/// A schema that can be applied: always an object schema at the root. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ArgumentSchema(Arc<Inner>);

struct Inner {
    raw: Value,
    validator: Validator,
    cost: cost::Cost,
    required: Vec<String>,
    /// The same, to find names by.
    needed: BTreeSet<String>,
    properties: BTreeMap<String, Value>,
    closed: bool,
    notices: Vec<String>,
    /// Patterns to look for, by property; compiled when first asked for.
    searchers: OnceLock<BTreeMap<String, Regex>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema").field("raw", &self.raw).field("notices", &self.notices).finish()
    }
}

/// Why a schema cannot be used. `pointer` is a JSON pointer into the schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at `{pointer}`)")]
pub struct SchemaError {
    pub pointer: String,
    pub message: String,
}

impl SchemaError {
    pub(super) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

impl ArgumentSchema {
    /// Compiles `schema`. `null` and `{}` mean: an object without known properties. The draft is the one `$schema`
    /// names, else 2020-12. Known slips of real schemas are repaired for validation and told in [`Self::notices`];
    /// [`Self::raw`] stays as written.
    ///
    /// # Errors
    /// [`SchemaError`] for a root that is not an object schema, an invalid schema, an external reference, references that
    /// multiply.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let (repaired, notices) = match schema {
            Value::Null => (json!({"type": "object"}), Vec::new()),
            Value::Object(map) if map.is_empty() => (json!({"type": "object"}), Vec::new()),
            Value::Object(_) => repair::repair(schema)?,
            _ => return Err(SchemaError::new("", "the argument schema must be a JSON object")),
        };
        let cost = cost::Cost::of(&repaired)?;
        let validator = options().build(&repaired).map_err(|error| schema_error(&error))?;
        let root = resolve::root(&repaired);
        require_object(&root)?;
        let (properties, required) = resolve::properties(&root, &repaired);
        let closed = ["additionalProperties", "unevaluatedProperties"]
            .iter()
            .any(|keyword| root.get(*keyword) == Some(&Value::Bool(false)));
        let searchers = OnceLock::new();
        let raw = schema.clone();
        let needed = required.iter().cloned().collect();
        Ok(Self(Arc::new(Inner { raw, validator, cost, required, needed, properties, closed, notices, searchers })))
    }

    /// The schema as its owner wrote it.
    pub fn raw(&self) -> &Value {
        &self.0.raw
    }

    /// Names of required properties, in schema order.
    pub fn required(&self) -> Vec<&str> {
        self.0.required.iter().map(String::as_str).collect()
    }

    pub fn is_required(&self, name: &str) -> bool {
        self.0.needed.contains(name)
    }

    /// Name and schema of each property, `$ref`s resolved, ordered by name.
    pub fn properties(&self) -> Vec<(&str, &Value)> {
        self.0.properties.iter().map(|(name, schema)| (name.as_str(), schema)).collect()
    }

    /// One property, `$ref`s resolved.
    pub fn property(&self, name: &str) -> Option<Property<'_>> {
        let (name, schema) = self.0.properties.get_key_value(name)?;
        Some(Property::new(name, schema, self.is_required(name)))
    }

    /// Every property, ordered by name.
    pub fn views(&self) -> impl Iterator<Item = Property<'_>> {
        self.0.properties.iter().map(|(name, schema)| Property::new(name, schema, self.is_required(name)))
    }

    /// The form a property is expected in, with an example where the schema gives one. `None` for an unknown name.
    pub fn form_of(&self, name: &str) -> Option<FieldProblem> {
        self.property(name).map(|_| explain::required(self, "", name))
    }

    /// Whether names that are not listed are refused.
    pub fn is_closed(&self) -> bool {
        self.0.closed
    }

    /// What was repaired when compiling, in plain words.
    pub fn notices(&self) -> &[String] {
        &self.0.notices
    }

    /// Whether `value` is acceptable for the property `name`, whatever the other arguments are. A value that takes too long
    /// to check is not.
    pub fn fits(&self, name: &str, value: &Value) -> bool {
        let mut single = Map::new();
        single.insert(name.to_owned(), value.clone());
        let single = Value::Object(single);
        if !self.affords(&single) {
            return false;
        }
        let own = format!("/{}", escape_pointer(name));
        self.0.validator.iter_errors(&single).all(|error| {
            let path = error.instance_path().as_str();
            path != own && !path.strip_prefix(&own).is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// What to look for in a text to find values of a patterned property; `None` without a pattern or for one that is
    /// no regular language. A match still has to [fit](Self::fits).
    pub fn searcher(&self, name: &str) -> Option<&Regex> {
        let compile = || {
            let patterned = self.views().filter_map(|property| Some((property.name, property.pattern()?)));
            patterned.filter_map(|(name, source)| Some((name.to_owned(), pattern::searcher(source)?))).collect()
        };
        self.0.searchers.get_or_init(compile).get(name)
    }

    /// Whether checking these arguments ends soon. Schemas that multiply with the depth of a value let only shallow
    /// ones through.
    pub(super) fn affords(&self, arguments: &Value) -> bool {
        self.0.cost.affords(arguments)
    }

    pub(super) fn validator(&self) -> &Validator {
        &self.0.validator
    }
}

/// How every schema and every part of one is compiled: nothing is fetched, and no pattern runs away.
pub(super) fn options<'a>() -> ValidationOptions<'a> {
    let engine = PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT).size_limit(PATTERN_SIZE);
    jsonschema::options().offline().should_validate_formats(true).with_pattern_options(engine)
}

/// Whether `value` is acceptable for a part of a schema that was read, which may lack what it refers to.
pub(super) fn fits_part(part: &Value, value: &Value) -> bool {
    cost::Cost::of(part).is_ok_and(|cost| cost.affords(value))
        && options().build(part).is_ok_and(|part| part.is_valid(value))
}

fn require_object(root: &Map<String, Value>) -> Result<(), SchemaError> {
    let is_object = match root.get("type") {
        None => true,
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        Some(_) => false,
    };
    if is_object { Ok(()) } else { Err(SchemaError::new("/type", "the root of an argument schema must be an object")) }
}

fn schema_error(error: &ValidationError<'_>) -> SchemaError {
    const LONGEST: usize = 300;
    let message: String = error.to_string().chars().take(LONGEST).collect();
    SchemaError::new(error.instance_path().as_str(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(schema: Value) -> SchemaError {
        ArgumentSchema::compile(&schema).expect_err("the schema should be refused")
    }

    fn compiled(schema: Value) -> ArgumentSchema {
        ArgumentSchema::compile(&schema).unwrap()
    }

    #[test]
    fn nothing_means_an_open_object() {
        for schema in [Value::Null, json!({})] {
            let schema = compiled(schema);
            assert!(schema.required().is_empty() && schema.properties().is_empty() && !schema.is_closed());
        }
    }

    #[test]
    fn roots_that_are_no_object_are_refused_with_a_pointer() {
        assert_eq!(refused(json!({"type": "array", "items": {}})).pointer, "/type");
        assert_eq!(refused(json!([1])).pointer, "");
        assert_eq!(refused(json!({"properties": {"type": "object"}})).pointer, "/properties/type");
        assert_eq!(
            refused(json!({"type": "object", "properties": {"a": {"type": "wibble"}}})).pointer,
            "/properties/a/type"
        );
        assert_eq!(
            refused(json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}})).pointer,
            "/properties/a/pattern"
        );
    }

    #[test]
    fn external_references_are_never_fetched() {
        for target in ["https://schemas.example/a.json", "file:///etc/hostname", "other.json#/x", "#/$defs/Missing"] {
            let error = refused(json!({"type": "object", "properties": {"a": {"$ref": target}}}));
            assert_eq!(error.pointer, "/properties/a/$ref", "{target}");
        }
    }

    #[test]
    fn references_keep_their_siblings_and_recursion_ends() {
        let schema = compiled(json!({
            "type": "object",
            "$defs": {"Which": {"enum": ["all", "new"]}, "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
            "properties": {"which": {"$ref": "#/$defs/Which", "default": "all"}, "node": {"$ref": "#/$defs/Node"}, "self": {"$ref": "#"}}
        }));
        let which = schema.property("which").unwrap();
        assert_eq!(which.default(), Some(&json!("all")));
        assert_eq!(which.choices().len(), 2);
        assert_eq!(schema.property("node").unwrap().kinds(), ["object"]);
        assert!(schema.fits("node", &json!({"next": {"next": {}}})));
        assert!(!schema.fits("node", &json!({"next": {"next": 3}})));
    }

    #[test]
    fn properties_named_like_keywords_are_properties() {
        let schema = compiled(json!({
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["return", "exchange"]},
                "properties": {"type": "object"},
                "required": {"type": "boolean"}
            },
            "required": ["type"]
        }));
        assert_eq!(schema.required(), ["type"]);
        assert_eq!(schema.properties().len(), 3);
        assert!(schema.fits("type", &json!("return")) && !schema.fits("type", &json!("object")));
    }

    #[test]
    fn real_world_slips_are_repaired_and_told() {
        let schema = compiled(json!({
            "type": "dict",
            "properties": {
                "n": {"type": "float", "minimum": 0, "exclusiveMinimum": true},
                "s": {"type": "str", "required": true},
                "l": {"type": "list", "items": {"type": "int"}},
                "t": {"type": "tuple", "items": [{"type": "int"}, {"type": "int"}]},
                "o": {"type": "string", "nullable": true},
                "x": {"type": "any"},
                "m": {"type": "string", "pattern": r"^[\w-\.]+@x$"}
            }
        }));
        assert_eq!(schema.required(), ["s"]);
        assert!(!schema.fits("n", &json!(0)) && schema.fits("n", &json!(0.5)));
        assert!(schema.fits("l", &json!([1])) && !schema.fits("l", &json!(["a"])));
        assert!(schema.fits("o", &Value::Null) && schema.fits("x", &json!([1, "a"])));
        assert!(schema.fits("m", &json!("a-b.c@x")) && !schema.fits("m", &json!("a b@x")));
        assert!(schema.notices().len() >= 8, "{:?}", schema.notices());
        assert_eq!(schema.raw()["type"], "dict");
    }

    #[test]
    fn optional_unions_show_their_one_real_branch() {
        let schema = compiled(json!({
            "type": "object",
            "properties": {"limit": {"anyOf": [{"type": "integer", "maximum": 20}, {"type": "null"}], "default": null}}
        }));
        let limit = schema.property("limit").unwrap();
        assert_eq!((limit.kinds(), limit.maximum()), (vec!["integer"], Some(20.0)));
    }

    #[test]
    fn long_lists_of_names_are_read_soon() {
        let names: Vec<String> = (0..90_000).map(|n| format!("name{n}")).collect();
        let start = std::time::Instant::now();
        let asked = ArgumentSchema::compile(&json!({"type": "object", "required": names}));
        assert!(asked.is_ok_and(|schema| schema.required().len() == names.len()));
        let marked: Map<String, Value> =
            names.iter().take(15_000).map(|name| (name.clone(), json!({"required": true}))).collect();
        let marked = compiled(json!({"type": "object", "required": names[..40_000], "properties": marked}));
        assert_eq!((marked.required().len(), marked.views().filter(|view| view.required).count()), (40_000, 15_000));
        let branches: Vec<Value> = names.chunks(900).map(|some| json!({"required": some})).collect();
        assert_eq!(compiled(json!({"type": "object", "allOf": branches})).required().len(), names.len());
        let branches: Vec<Value> = names.chunks(60).map(|some| json!({"required": some})).collect();
        let nested = compiled(json!({"type": "object", "properties": {"p": {"allOf": branches}},
            "allOf": [{"properties": {"p": {"required": ["one more"]}}}]}));
        let shown = &nested.property("p").unwrap().schema["required"];
        assert_eq!(shown.as_array().map(Vec::len), Some(names.len() + 1));
        assert!(start.elapsed() < std::time::Duration::from_secs(5), "{:?}", start.elapsed());
    }

    #[test]
    fn deep_schemas_are_refused() {
        let mut schema = json!({"type": "string"});
        for _ in 0..200 {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        assert!(refused(schema).message.contains("deep"));
    }

    #[test]
    fn catastrophic_patterns_end() {
        let schema = compiled(
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=(a+)+$)(a|a)*b$"}}}),
        );
        assert!(!schema.fits("a", &json!("a".repeat(60))));
    }

    #[test]
    fn digits_of_patterns_are_ascii() {
        let schema =
            compiled(json!({"type": "object", "properties": {"a": {"type": "string", "pattern": r"^\d{2}$"}}}));
        assert!(schema.fits("a", &json!("12")) && !schema.fits("a", &json!("１２")));
    }
}
