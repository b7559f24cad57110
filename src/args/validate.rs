//! Coerce, then validate.

use serde_json::{Map, Value};

use super::{ArgumentSchema, coerce, explain, raw};
use crate::types::Problem;

/// Arguments that satisfy the tool's schema; only [`validate`] makes them.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "validated arguments still have to pass the side-effect gate"]
pub struct ValidArgs(Map<String, Value>);

impl ValidArgs {
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// A remark on what was changed: constant wording plus the field, fit to show to a user of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice(pub String);

/// Valid arguments and what was done to make them so.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub args: ValidArgs,
    pub notices: Vec<Notice>,
    /// Names of arguments that were filled from schema defaults.
    pub defaulted: Vec<String>,
}

/// Coerces and validates `raw`. Absent optional arguments get their schema default, where all arguments stay valid
/// with it. An optional number with a default that cannot be read as a number gives way to the default, with a notice;
/// a number out of its range is an error, so that whoever proposed it learns the range.
///
/// # Errors
/// A [`Problem`] with code `INVALID_ARGS` naming all fields at fault at once.
#[allow(clippy::result_large_err)] // The error is the answer to a model or a user; nothing here is hot enough to box it.
pub fn validate(schema: &ArgumentSchema, raw: &Value) -> Result<Checked, Problem> {
    let mut args = raw::read(raw)?;
    coerce::coerce(schema, &mut args);
    let notices = drop_unreadable_numbers(schema, &mut args);
    let whole = Value::Object(args);
    if !schema.affords(&whole) {
        return Err(raw::too_costly());
    }
    let fields = explain::explain(schema, schema.validator().iter_errors(&whole));
    if !fields.is_empty() {
        let named: Vec<&str> = fields.iter().map(|field| field.path.trim_start_matches('/')).collect();
        let message = match named.as_slice() {
            [""] => "the arguments do not satisfy the schema".to_owned(),
            names => format!("the arguments do not satisfy the schema: {}", names.join(", ")),
        };
        return Err(Problem::invalid_args(message, fields));
    }
    let args = match whole {
        Value::Object(args) => args,
        _ => Map::new(),
    };
    let (args, defaulted) = with_defaults(schema, args);
    Ok(Checked { args: ValidArgs(args), notices, defaulted })
}

fn drop_unreadable_numbers(schema: &ArgumentSchema, args: &mut Map<String, Value>) -> Vec<Notice> {
    let mut notices = Vec::new();
    for property in schema.views() {
        let gives_way = !property.required && property.is_numeric() && property.default().is_some();
        if gives_way
            && args.get(property.name).is_some_and(|value| !value.is_number() && !schema.fits(property.name, value))
        {
            args.remove(property.name);
            notices.push(Notice(format!("`{}` was not a number and was left out; its default applies", property.name)));
        }
    }
    notices
}

fn with_defaults(schema: &ArgumentSchema, args: Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let mut filled = args.clone();
    let mut defaulted = Vec::new();
    for property in schema.views() {
        let Some(default) = property.default().filter(|default| !default.is_null()) else { continue };
        if !args.contains_key(property.name) && schema.fits(property.name, default) {
            filled.insert(property.name.to_owned(), default.clone());
            defaulted.push(property.name.to_owned());
        }
    }
    let whole = Value::Object(filled);
    if defaulted.is_empty() || !schema.affords(&whole) || !schema.validator().is_valid(&whole) {
        return (args, Vec::new());
    }
    match whole {
        Value::Object(filled) => (filled, defaulted),
        _ => (args, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn shop_like() -> ArgumentSchema {
        ArgumentSchema::compile(&json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "order_id": {"type": "string", "pattern": r"^SO-\d{14}$", "description": "Copied, e.g. SO-20260418000736; never made up."},
                "tracking_no": {"type": "string", "pattern": r"^[A-Z]{2}\d{10}$"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 10},
                "status": {"type": "string", "enum": ["usable", "used", "expired"], "default": "usable"},
                "enabled": {"type": "boolean"},
                "fields": {"type": "array", "items": {"type": "string", "enum": ["amount", "items"]}},
                "name": {"type": "string", "maxLength": 60, "description": "Name as written, e.g. 云朵 X5 耳机."},
                "amount": {"type": "number"},
                "code": {"anyOf": [{"type": "string"}, {"type": "integer"}]}
            },
            "required": ["order_id"]
        }))
        .unwrap()
    }

    const ID: &str = "SO-20260418000736";

    #[track_caller]
    fn becomes(field: &str, given: Value, expect: Value) {
        let mut args = json!({"order_id": ID});
        args[field] = given;
        let checked = validate(&shop_like(), &args).unwrap();
        assert_eq!(checked.args.as_map().get(field), Some(&expect), "{field}");
    }

    #[track_caller]
    fn fields(args: Value) -> Vec<(String, String)> {
        let problem = validate(&shop_like(), &args).unwrap_err();
        assert!(problem.repairable && !problem.retryable);
        problem.fields.into_iter().map(|field| (field.path, field.expected)).collect()
    }

    #[test]
    fn harmless_slips_are_put_right() {
        becomes("limit", json!("3"), json!(3));
        becomes("limit", json!("３"), json!(3));
        becomes("limit", json!("3.0"), json!(3));
        becomes("limit", json!(3.0), json!(3));
        becomes("amount", json!("12.5"), json!(12.5));
        becomes("enabled", json!("False"), json!(false));
        becomes("fields", json!("[\"amount\"]"), json!(["amount"]));
        becomes("fields", json!("Amount"), json!(["amount"]));
        becomes("name", json!(365), json!("365"));
        becomes("status", json!(" ＵＳＥＤ "), json!("used"));
        becomes("order_id", json!(" ｓｏ－２０２６０４１８０００７３６"), json!(ID));
        becomes("tracking_no", json!("yt1852801997"), json!("YT1852801997"));
    }

    #[test]
    fn what_already_fits_stays() {
        becomes("name", json!("007"), json!("007"));
        becomes("name", json!("1e3"), json!("1e3"));
        becomes("name", json!(" a "), json!(" a "));
        becomes("code", json!("7"), json!("7"));
        becomes("code", json!(7), json!(7));
    }

    #[test]
    fn every_field_at_fault_is_named_at_once() {
        let found = fields(json!({"orderid": ID, "limit": 1000, "status": "apology", "enabled": "maybe"}));
        let expected = [
            ("/order_id", "required: SO- and 14 digits"),
            ("/enabled", "true or false"),
            ("/limit", "at most 20 (maximum 20)"),
            (
                "/orderid",
                "unknown field; allowed: amount, code, enabled, fields, limit, name, order_id, status, tracking_no; did you mean order_id?",
            ),
            ("/status", "one of usable, used, expired"),
        ];
        assert_eq!(found, expected.map(|(path, words)| (path.to_owned(), words.to_owned())));
        assert_eq!(fields(json!({"order_id": 12})), [("/order_id".to_owned(), "SO- and 14 digits".to_owned())]);
    }

    #[test]
    fn examples_come_from_the_description() {
        let problem =
            validate(&shop_like(), &json!({"order_id": "2026031", "name": 5.5, "fields": ["x"]})).unwrap_err();
        assert_eq!(problem.fields[1].path, "/order_id");
        assert_eq!(problem.fields[1].example.as_deref(), Some(ID));
    }

    #[test]
    fn alternatives_name_what_is_missing() {
        let schema = ArgumentSchema::compile(&json!({
            "type": "object",
            "properties": {"sku": {"type": "string"}, "product_name": {"type": "string"}},
            "anyOf": [{"required": ["sku"]}, {"required": ["product_name"]}]
        }))
        .unwrap();
        let paths: Vec<String> =
            validate(&schema, &json!({})).unwrap_err().fields.into_iter().map(|f| f.path).collect();
        assert_eq!(paths, ["/product_name", "/sku"]);
        assert!(validate(&schema, &json!({"sku": "A"})).is_ok());
    }

    #[test]
    fn defaults_fill_and_unreadable_counts_give_way() {
        let checked = validate(&shop_like(), &json!({"order_id": ID, "limit": "many", "status": null})).unwrap();
        assert_eq!(checked.args.as_map()["limit"], 10);
        assert_eq!(checked.defaulted, ["limit", "status"]);
        assert_eq!(checked.notices.len(), 1);
    }

    #[test]
    fn nothing_means_no_arguments_but_broken_json_does_not() {
        let open = ArgumentSchema::compile(&Value::Null).unwrap();
        for nothing in [json!(null), json!(""), json!(" "), json!("{}"), json!({})] {
            assert!(validate(&open, &nothing).unwrap().args.as_map().is_empty());
        }
        assert_eq!(validate(&open, &json!("{\"a\": 1}")).unwrap().args.as_map()["a"], 1);
        let huge = "x".repeat(70_000);
        let mut deep = json!(1);
        for _ in 0..40 {
            deep = json!([deep]);
        }
        for bad in [
            json!("{\"a\":"),
            json!("[1]"),
            json!([1]),
            json!(3),
            json!("\"{}\""),
            json!({"a": huge}),
            json!({"a": deep}),
        ] {
            assert_eq!(validate(&open, &bad).unwrap_err().fields.len(), 1);
        }
    }

    #[test]
    fn open_schemas_stay_open() {
        let schema =
            ArgumentSchema::compile(&json!({"type": "object", "properties": {"a": {"type": "integer"}}})).unwrap();
        assert_eq!(validate(&schema, &json!({"a": "1", "b": "2"})).unwrap().args.as_map()["b"], "2");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-30i64..30).prop_map(Value::from),
            (-30.0f64..30.0).prop_map(Value::from),
            "[0-9a-zA-Z０-９ \\[\\]{}\":.-]{0,8}".prop_map(Value::from),
            prop::sample::select(vec!["3", "3.0", "true", "[1]", "[\"2\"]", "SO-1", "so-1", "A B", "７"])
                .prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn small_schema() -> impl Strategy<Value = Value> {
        let leaf = prop::sample::select(vec![
            json!({}),
            json!({"type": "integer", "default": 2}),
            json!({"type": "number", "maximum": 20}),
            json!({"type": "boolean"}),
            json!({"type": "string"}),
            json!({"type": "string", "pattern": "^[A-Z]{2}-\\d+$"}),
            json!({"type": "string", "enum": ["a_b", "true", "3"], "default": "3"}),
            json!({"enum": [1, 2, "x"]}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null}),
            json!({"$ref": "#"}),
        ]);
        let member = leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
                prop::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|map| json!({"type": "object", "properties": map})),
            ]
        });
        let required = prop::collection::btree_set("[abc]", 0..3);
        (prop::collection::btree_map("[abc]", member, 0..4), required, any::<bool>()).prop_map(|(properties, required, open)| {
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": open})
        })
    }

    proptest! {
        #[test]
        fn valid_arguments_are_never_changed(schema in small_schema(), args in any_json()) {
            let schema = ArgumentSchema::compile(&schema).unwrap();
            if args.is_object() && schema.validator().is_valid(&args) {
                let checked = validate(&schema, &args).unwrap();
                for (name, value) in args.as_object().unwrap() {
                    let kept = &checked.args.as_map()[name];
                    // 3.0 and 3 are the same number.
                    prop_assert!(kept == value || kept.to_string().replace(".0", "") == value.to_string().replace(".0", ""));
                }
            }
        }

        #[test]
        fn validating_twice_changes_nothing(schema in small_schema(), args in any_json()) {
            let schema = ArgumentSchema::compile(&schema).unwrap();
            if let Ok(once) = validate(&schema, &args) {
                let again = validate(&schema, &Value::Object(once.args.as_map().clone())).unwrap();
                prop_assert_eq!(again.args, once.args);
                prop_assert!(again.notices.is_empty());
            }
        }

        #[test]
        fn any_json_is_a_schema_or_is_refused(schema in any_json(), args in any_json()) {
            if let Ok(schema) = ArgumentSchema::compile(&schema) {
                let _ = validate(&schema, &args);
            }
        }
    }
}
