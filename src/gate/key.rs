//! Arguments in one form, and the key that is made of them.
//!
//! Owns: which spellings of arguments mean the same call.
//! Does not know: who asks, or what became of an earlier call.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

use crate::args::ArgumentSchema;
use crate::text::to_nfkc;
use crate::tool::canonical_json;
use crate::types::ToolId;
use crate::types::encoding::hex;

/// SHA-256 over `parts`, each with its length before it, so that no part can run into the next.
pub(super) fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

/// Digest of one value in its canonical form.
pub(super) fn value_digest(value: &Value) -> String {
    digest(&[&canonical_json(value)])
}

/// The key of a call for which the caller gave none: the same tool with the same arguments in the same conversation.
pub(super) fn derived(tool: &ToolId, arguments: &str, conversation: &str, turn: &str) -> String {
    format!("k_{}", digest(&["key", tool.as_str(), arguments, conversation, turn]))
}

/// Arguments in the one form that all equal spellings share: numbers by value, texts composed (NFC), outer blanks and
/// width only where an enum or a pattern says that they mean nothing, case only where it cannot tell two values apart.
/// Free text keeps everything. What stands under `without` at any depth is left out.
pub(super) fn canonical(
    schema: &ArgumentSchema,
    args: &Map<String, Value>,
    without: Option<&str>,
) -> Map<String, Value> {
    let listed = args.iter().filter(|(name, _)| without != Some(name.as_str()));
    let form = |(name, value): (&String, &Value)| {
        let own = schema.property(name).map(|property| property.schema);
        (name.clone(), form(value, own, without))
    };
    listed.map(form).collect()
}

fn form(value: &Value, schema: Option<&Value>, without: Option<&str>) -> Value {
    match value {
        Value::Null | Value::Bool(_) => value.clone(),
        Value::Number(number) => Value::Number(by_value(number)),
        Value::String(text) => Value::String(text_form(text, schema)),
        Value::Array(items) => {
            let placed = |at: usize| schema.and_then(|schema| schema.get("prefixItems")?.get(at));
            let item =
                |(at, item)| form(item, placed(at).or_else(|| schema.and_then(|schema| schema.get("items"))), without);
            Value::Array(items.iter().enumerate().map(item).collect())
        }
        Value::Object(members) => {
            let named = |name: &str| schema.and_then(|schema| schema.get("properties")?.get(name));
            let kept = members.iter().filter(|(name, _)| without != Some(name.as_str()));
            Value::Object(kept.map(|(name, member)| (name.clone(), form(member, named(name), without))).collect())
        }
    }
}

/// 1, 1.0 and 1e0 are one number.
fn by_value(number: &Number) -> Number {
    let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
    match whole {
        // Both bounds are powers of two, so that the comparison and the conversion are exact.
        Some(float) if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float) => {
            Number::from(float as i64)
        }
        Some(float) if (0.0..18_446_744_073_709_551_616.0).contains(&float) => Number::from(float as u64),
        Some(_) | None => number.clone(),
    }
}

fn text_form(text: &str, schema: Option<&Value>) -> String {
    let choices = schema.map(choices).unwrap_or_default();
    let pattern = schema.and_then(|schema| schema.get("pattern")?.as_str());
    if !choices.is_empty() {
        let folded: BTreeSet<String> = choices.iter().map(|choice| fold(choice)).collect();
        // Where case or width tells two choices apart, it means something.
        if folded.len() == choices.len() { fold(text) } else { text.nfc().collect() }
    } else if let Some(pattern) = pattern {
        let plain = to_nfkc(text);
        if has_capitals_alone(pattern) { plain.trim().to_ascii_uppercase() } else { plain_pattern(text) }
    } else {
        text.nfc().collect()
    }
}

/// A pattern that may tell width or case apart: outer blanks alone mean nothing.
fn plain_pattern(text: &str) -> String {
    text.trim().nfc().collect()
}

fn fold(text: &str) -> String {
    to_nfkc(text).trim().to_lowercase()
}

fn choices(schema: &Value) -> BTreeSet<&str> {
    let listed = schema.get("enum").and_then(Value::as_array).map(|values| values.iter().collect::<Vec<_>>());
    let values = listed.or_else(|| schema.get("const").map(|value| vec![value])).unwrap_or_default();
    values.into_iter().filter_map(Value::as_str).collect()
}

/// Whether every text that fits is an id in capital letters, digits and signs: the pattern is anchored and holds only
/// such letters, classes of them and counts.
fn has_capitals_alone(pattern: &str) -> bool {
    let Some(body) = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')) else { return false };
    let plain = body.replace("\\d", "").replace("\\-", "-");
    let mut in_count = false;
    let allowed = plain.chars().all(|c| {
        let fits = match c {
            '{' => !in_count,
            ',' => in_count,
            '}' => in_count,
            'A'..='Z' | '0'..='9' | '-' | '_' | '[' | ']' | '(' | ')' | '?' => true,
            _ => false,
        };
        match c {
            '{' => in_count = true,
            '}' => in_count = false,
            _ => {}
        }
        fits
    });
    // `[A-z]` and `[^A]` hold small letters, `(?i)` folds; the characters above leave none of them.
    allowed && !plain.contains("(?") && body.contains(|c: char| c.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::args::validate;

    fn schema() -> &'static ArgumentSchema {
        static SCHEMA: OnceLock<ArgumentSchema> = OnceLock::new();
        let compile = || {
            ArgumentSchema::compile(&json!({
            "type": "object",
            "properties": {
                "order_id": {"type": "string", "pattern": r"^SO-\d{14}$"},
                "token": {"type": "string", "pattern": "^ct_[a-z0-9]{4}$"},
                "reason": {"type": "string", "enum": ["changed_mind", "wrong_item", "不想要了"]},
                "grade": {"type": "string", "enum": ["a", "A"]},
                "note": {"type": "string"},
                "amount": {"type": "number"},
                "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string", "pattern": "^[A-Z]{2}\\d{3}$"}, "n": {"type": "number"}}}}
            }
        }))
        .unwrap()
        };
        SCHEMA.get_or_init(compile)
    }

    fn form_of(args: &Value) -> String {
        canonical_json(&Value::Object(canonical(schema(), args.as_object().unwrap(), None)))
    }

    #[track_caller]
    fn same(a: Value, b: Value) {
        assert_eq!(form_of(&a), form_of(&b));
    }

    #[track_caller]
    fn differ(a: Value, b: Value) {
        assert_ne!(form_of(&a), form_of(&b));
    }

    #[test]
    fn equal_spellings_share_one_form() {
        same(
            json!({"order_id": "SO-20260418000736", "reason": "wrong_item"}),
            json!({"reason": " Wrong_Item ", "order_id": " ｓｏ－２０２６０４１８０００７３６"}),
        );
        for number in ["1", "1.0", "1e0", "10e-1", "1.000"] {
            same(serde_json::from_str(&format!("{{\"amount\": {number}}}")).unwrap(), json!({"amount": 1}));
        }
        same(json!({"amount": -0.0}), json!({"amount": 0}));
        same(json!({"amount": 1e19}), json!({"amount": 10_000_000_000_000_000_000u64}));
        same(json!({"note": "cafe\u{301} 退款"}), json!({"note": "café 退款"}));
        same(json!({"token": " ct_ab12"}), json!({"token": "ct_ab12"}));
        same(json!({"reason": "不想要了 "}), json!({"reason": "不想要了"}));
        same(json!({"lines": [{"sku": "ab123 ", "n": 2.0}]}), json!({"lines": [{"n": 2, "sku": "AB123"}]}));
    }

    #[test]
    fn what_may_mean_something_is_kept() {
        differ(json!({"note": "Fragile"}), json!({"note": "fragile"}));
        differ(json!({"note": " a"}), json!({"note": "a"}));
        differ(json!({"note": "ＡＢＣ"}), json!({"note": "ABC"}));
        differ(json!({"note": "放门口"}), json!({"note": "放門口"}));
        differ(json!({"note": "1"}), json!({"note": 1}));
        differ(json!({"grade": "a"}), json!({"grade": "A"}));
        differ(json!({"amount": 82_000}), json!({"amount": 820_000}));
        differ(json!({"amount": 9_007_199_254_740_993i64}), json!({"amount": 9_007_199_254_740_992i64}));
        differ(json!({"amount": null}), json!({}));
        differ(json!({"token": "ct_ab12"}), json!({"token": "CT_AB12"}));
        differ(json!({"other": "X "}), json!({"other": "X"}));
    }

    #[test]
    fn only_patterns_of_capitals_fold_case() {
        for (pattern, folds) in [
            (r"^SO-\d{14}$", true),
            (r"^[A-Z]{2}\d{10}$", true),
            (r"^[0-9A-Z]{15,20}$", true),
            (r"^(SF|YT)-?\d{3}$", false),
            (r"^ct_[a-z0-9]{16}$", false),
            (r"^[A-Za-z0-9_-]{8,64}$", false),
            (r"^\w+$", false),
            (r"^[^A]$", false),
            (r"^(?i)SO$", false),
            (r"SO-\d+", false),
            (r"\S", false),
            (r"^.{1,9}$", false),
            (r"^\d{4}$", false),
            ("^退款$", false),
        ] {
            assert_eq!(has_capitals_alone(pattern), folds, "{pattern}");
        }
    }

    #[test]
    fn what_is_left_out_is_left_out_at_any_depth() {
        let args = json!({"note": "x", "token": "ct_ab12", "more": {"token": "y", "z": [{"token": 1, "a": 2}]}});
        let left = canonical(schema(), args.as_object().unwrap(), Some("token"));
        assert_eq!(Value::Object(left), json!({"note": "x", "more": {"z": [{"a": 2}]}}));
    }

    #[test]
    fn keys_depend_on_tool_arguments_and_conversation() {
        let key =
            |tool: &str, arguments: &str, conversation: &str| derived(&ToolId::new(tool), arguments, conversation, "");
        let first = key("refund", "{}", "c1");
        assert_eq!(key("refund", "{}", "c1"), first);
        for other in [key("refunds", "{}", "c1"), key("refund", "{} ", "c1"), key("refund", "{}", "c2")] {
            assert_ne!(other, first);
        }
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }

    fn any_args() -> impl Strategy<Value = Map<String, Value>> {
        let text = prop::sample::select(vec![
            "SO-20260418000736",
            " so-20260418000736",
            "wrong_item",
            "WRONG_ITEM ",
            "退款",
            "ＡＢ",
            "cafe\u{301}",
            "",
            " ",
        ]);
        let leaf = prop_oneof![
            text.prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-5i64..5).prop_map(|n| Value::from(n as f64)),
            Just(Value::Null),
        ];
        let names = prop::sample::select(vec!["order_id", "reason", "note", "amount", "lines", "else"]);
        let nested = leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map(names, nested, 0..5)
            .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    proptest! {
        #[test]
        fn the_form_of_a_form_is_itself(args in any_args()) {
            let once = canonical(schema(), &args, None);
            prop_assert_eq!(canonical(schema(), &once, None), once);
        }

        #[test]
        fn the_order_of_keys_does_not_matter(args in any_args()) {
            let reversed: Map<String, Value> = args.iter().rev().map(|(name, value)| (name.clone(), value.clone())).collect();
            prop_assert_eq!(form_of(&Value::Object(args)), form_of(&Value::Object(reversed)));
        }

        /// Whatever the validator makes of a spelling has the form of the spelling.
        #[test]
        fn validating_keeps_the_form_of_ids(digits in "[0-9]{14}", blanks in "[ \u{3000}]{0,2}", small in any::<bool>()) {
            let id = format!("SO-{digits}");
            let spelt = format!("{blanks}{}{blanks}", if small { id.to_lowercase() } else { id.clone() });
            let checked = validate(schema(), &json!({"order_id": spelt})).unwrap();
            prop_assert_eq!(form_of(&Value::Object(checked.args.as_map().clone())), form_of(&json!({"order_id": spelt})));
            prop_assert_eq!(&checked.args.as_map()["order_id"], &json!(id));
        }

        #[test]
        fn numbers_of_one_value_have_one_form(whole in -9_007_199_254_740_992i64..=9_007_199_254_740_992) {
            prop_assert_eq!(form_of(&json!({"amount": whole})), form_of(&json!({"amount": whole as f64})));
        }
    }
}
