//! A readable view of one property's schema.

use serde_json::Value;

use super::pattern;

/// One property of an argument schema, `$ref`s resolved.
#[derive(Debug, Clone, Copy)]
pub struct Property<'a> {
    pub name: &'a str,
    pub schema: &'a Value,
    pub required: bool,
}

impl<'a> Property<'a> {
    pub(super) fn new(name: &'a str, schema: &'a Value, required: bool) -> Self {
        Self { name, schema, required }
    }

    pub fn description(&self) -> &'a str {
        self.schema.get("description").and_then(Value::as_str).unwrap_or("")
    }

    /// Names of the allowed JSON types, without `null`; empty when anything goes.
    pub fn kinds(&self) -> Vec<&'a str> {
        kinds(self.schema)
    }

    pub fn is_kind(&self, kind: &str) -> bool {
        self.kinds() == [kind]
    }

    pub fn is_numeric(&self) -> bool {
        let kinds = self.kinds();
        !kinds.is_empty() && kinds.iter().all(|kind| matches!(*kind, "integer" | "number"))
    }

    /// The closed set of values, if there is one.
    pub fn choices(&self) -> Vec<&'a Value> {
        choices(self.schema)
    }

    /// Schema of the items of an array.
    pub fn items(&self) -> Option<&'a Value> {
        self.schema.get("items").filter(|items| items.is_object())
    }

    /// The closed set of values of an array's items, if there is one.
    pub fn item_choices(&self) -> Vec<&'a Value> {
        self.items().map(choices).unwrap_or_default()
    }

    pub fn pattern(&self) -> Option<&'a str> {
        self.text("pattern")
    }

    /// What every value that fits the pattern begins with: `SO-` of `^SO-\d{14}$`; empty when nothing is fixed.
    pub fn literal_prefix(&self) -> String {
        self.pattern().map(pattern::literal_prefix).unwrap_or_default()
    }

    pub fn format(&self) -> Option<&'a str> {
        self.text("format")
    }

    pub fn default(&self) -> Option<&'a Value> {
        self.schema.get("default")
    }

    pub fn minimum(&self) -> Option<f64> {
        self.number("minimum").or_else(|| self.number("exclusiveMinimum"))
    }

    pub fn maximum(&self) -> Option<f64> {
        self.number("maximum").or_else(|| self.number("exclusiveMaximum"))
    }

    pub fn max_length(&self) -> Option<usize> {
        self.schema.get("maxLength").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok())
    }

    pub fn max_items(&self) -> Option<usize> {
        self.schema.get("maxItems").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok())
    }

    fn text(&self, keyword: &str) -> Option<&'a str> {
        self.schema.get(keyword).and_then(Value::as_str)
    }

    fn number(&self, keyword: &str) -> Option<f64> {
        self.schema.get(keyword).and_then(Value::as_f64)
    }
}

/// See [`Property::kinds`]. Without `type`, the values of `enum` and the branches of a union tell.
pub(super) fn kinds(schema: &Value) -> Vec<&str> {
    let mut kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => {
            let values = choices(schema);
            let unions = [schema.get("anyOf"), schema.get("oneOf")];
            let branches = unions.into_iter().flatten().filter_map(Value::as_array).flatten();
            let mut kinds: Vec<&str> = values.into_iter().map(kind_of).collect();
            kinds.extend(branches.flat_map(self::kinds));
            kinds
        }
    };
    kinds.retain(|kind| *kind != "null");
    let mut seen: Vec<&str> = Vec::new();
    kinds.retain(|kind| {
        !seen.contains(kind) && {
            seen.push(kind);
            true
        }
    });
    kinds
}

/// Values of `enum` or `const`, without `null`.
pub(super) fn choices(schema: &Value) -> Vec<&Value> {
    let listed = schema.get("enum").and_then(Value::as_array).map(|values| values.iter().collect::<Vec<_>>());
    let mut values = listed.or_else(|| schema.get("const").map(|value| vec![value])).unwrap_or_default();
    values.retain(|value| !value.is_null());
    values
}

/// JSON type name of a value; whole numbers are `integer`.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
