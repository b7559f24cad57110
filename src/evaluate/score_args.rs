//! When arguments equal the labelled ones.
//!
//! Owns: numbers by value, free text, optional arguments the label lacks, accepted values, objects in any key order.
//! Does not know: outcomes or figures; [`super::score_route`] asks about one call at a time.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::rows::{Arguments, Row};
use crate::text::to_nfkc;

/// Arguments whose value is wording rather than a fixed value, at any depth.
const FREE_TEXT: [&str; 7] = ["keyword", "question", "content", "address", "title", "product_name", "variant"];
/// Of those, the ones where a part of the wording says the same.
const BY_CONTAINMENT: [&str; 2] = ["keyword", "question"];

/// Whether `given` is right for `row`: equal to `args` or one of `args_also_ok`, or accepted by `args_accept`.
/// `schema` is the called tool's.
pub fn arguments_right(row: &Row, given: &Arguments, schema: &Value) -> bool {
    let judge = Judge::new(row);
    row.args.iter().chain(&row.args_also_ok).any(|gold| judge.same_object(gold, given, schema))
        || row.args_accept.as_ref().is_some_and(|accept| judge.accepted(accept, given, schema))
}

/// Whether `given` equals `gold`, one wanted call of a row that wants several.
pub fn arguments_equal(row: &Row, gold: &Arguments, given: &Arguments, schema: &Value) -> bool {
    Judge::new(row).same_object(gold, given, schema)
}

/// Compares values of one row.
struct Judge {
    /// What the user could have taken a value from, as [`bare`] text.
    said: Vec<String>,
}

impl Judge {
    fn new(row: &Row) -> Self {
        let history = row.history.iter().map(|turn| turn.content.as_str());
        Self { said: std::iter::once(row.query.as_str()).chain(history).map(bare).collect() }
    }

    fn same_object(&self, gold: &Arguments, given: &Arguments, schema: &Value) -> bool {
        let all_given = gold.iter().all(|(name, value)| {
            given.get(name).is_some_and(|found| self.same(name, value, found, property(schema, name)))
        });
        all_given
            && given
                .iter()
                .filter(|(name, _)| !gold.contains_key(*name))
                .all(|(name, value)| harmless(schema, name, value))
    }

    fn same(&self, name: &str, gold: &Value, given: &Value, schema: &Value) -> bool {
        match (gold, given) {
            (Value::Object(gold), Value::Object(given)) => self.same_object(gold, given, schema),
            (Value::Array(gold), Value::Array(given)) => {
                let items = schema.get("items").unwrap_or(&Value::Null);
                gold.len() == given.len() && gold.iter().zip(given).all(|(a, b)| self.same(name, a, b, items))
            }
            (Value::Number(gold), Value::Number(given)) => same_number(gold, given),
            (Value::String(gold), Value::String(given)) => {
                gold == given || (FREE_TEXT.contains(&name) && self.same_wording(name, gold, given))
            }
            _ => gold == given,
        }
    }

    /// Free text after NFKC and without punctuation. A part counts where the argument allows it, unless the given
    /// wording stands nowhere in what was said: then the rest of it is made up.
    fn same_wording(&self, name: &str, gold: &str, given: &str) -> bool {
        let (gold, given) = (bare(gold), bare(given));
        if gold == given {
            return !gold.is_empty();
        }
        BY_CONTAINMENT.contains(&name)
            && !gold.is_empty()
            && !given.is_empty()
            && (gold.contains(&given) || (given.contains(&gold) && self.said.iter().any(|text| text.contains(&given))))
    }

    fn accepted(
        &self,
        accept: &std::collections::BTreeMap<String, Vec<Value>>,
        given: &Arguments,
        schema: &Value,
    ) -> bool {
        let each_accepted = accept.iter().all(|(name, values)| match given.get(name) {
            None => may_be_absent(values),
            Some(found) => {
                values.iter().any(|value| self.accepts(name, value, found, property(schema, name)))
                    || (may_be_absent(values) && is_default(property(schema, name), found))
            }
        });
        each_accepted
            && given
                .iter()
                .filter(|(name, _)| !accept.contains_key(*name))
                .all(|(name, value)| harmless(schema, name, value))
    }

    /// An accepted object lists the accepted values of each of its keys, at any depth.
    fn accepts(&self, name: &str, accepted: &Value, given: &Value, schema: &Value) -> bool {
        match (accepted, given) {
            (Value::Object(accepted), Value::Object(given)) => {
                let known = given.keys().all(|key| accepted.contains_key(key));
                known
                    && accepted.iter().all(|(key, values)| self.accepts_key(key, values, given, property(schema, key)))
            }
            (Value::Array(accepted), Value::Array(given)) => {
                let items = schema.get("items").unwrap_or(&Value::Null);
                accepted.len() == given.len()
                    && accepted.iter().zip(given).all(|(a, b)| self.accepts(name, a, b, items))
            }
            _ => self.same(name, accepted, given, schema),
        }
    }

    fn accepts_key(&self, key: &str, values: &Value, given: &Map<String, Value>, schema: &Value) -> bool {
        match (values, given.get(key)) {
            (Value::Array(values), None) => may_be_absent(values),
            (Value::Array(values), Some(found)) => values.iter().any(|value| self.accepts(key, value, found, schema)),
            (_, None) => false,
            (single, Some(found)) => self.same(key, single, found, schema),
        }
    }
}

fn may_be_absent(values: &[Value]) -> bool {
    values.iter().any(|value| value == "")
}

/// An argument the label lacks does no harm if it is optional and holds the default or a choice from a closed set.
/// Everything else the label does not have is one too many: an id, an amount, a text.
fn harmless(schema: &Value, name: &str, value: &Value) -> bool {
    let property = property(schema, name);
    is_default(property, value) || (!is_required(schema, name) && is_choice(property, value))
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema.get("required").and_then(Value::as_array).is_some_and(|required| required.iter().any(|entry| entry == name))
}

fn is_default(property: &Value, value: &Value) -> bool {
    property.get("default").is_some_and(|default| same_value(default, value))
}

/// A value of an enum, or a list of them.
fn is_choice(property: &Value, value: &Value) -> bool {
    if let Some(choices) = property.get("enum").and_then(Value::as_array) {
        return choices.iter().any(|choice| same_value(choice, value));
    }
    match (property.get("items"), value) {
        (Some(items), Value::Array(values)) => {
            items.get("enum").is_some() && values.iter().all(|value| is_choice(items, value))
        }
        _ => false,
    }
}

fn property<'a>(schema: &'a Value, name: &str) -> &'a Value {
    schema.get("properties").and_then(|properties| properties.get(name)).unwrap_or(&Value::Null)
}

/// Equal with numbers by value and objects in any order.
fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b)))
        }
        _ => a == b,
    }
}

/// Whole numbers are compared exactly, since long ones do not fit a float.
fn same_number(a: &serde_json::Number, b: &serde_json::Number) -> bool {
    let whole = |n: &serde_json::Number| n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from));
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a.as_f64() == b.as_f64(),
    }
}

static PUNCTUATION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[\p{P}~`]+").expect("the pattern is constant and tested"));

/// NFKC without punctuation, blanks collapsed.
fn bare(text: &str) -> String {
    to_nfkc(&PUNCTUATION.replace_all(&to_nfkc(text), ""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rows::row;
    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["order_id"], "properties": {
            "order_id": {"type": "string"},
            "amount": {"type": "number"},
            "limit": {"type": "integer", "default": 10},
            "sort": {"type": "string", "enum": ["price_asc", "price_desc"]},
            "fields": {"type": "array", "items": {"type": "string", "enum": ["status", "amount"]}},
            "note": {"type": "string"},
            "where": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string", "default": "km"}}},
        }})
    }

    #[track_caller]
    fn check(label: Value, given: Value, expect: bool) {
        let mut full = json!({"query": "帮我找便宜的空气炸锅", "gold": ["t"]});
        full.as_object_mut().unwrap().extend(label.as_object().unwrap().clone());
        assert_eq!(arguments_right(&row(full), given.as_object().unwrap(), &schema()), expect, "{label} / {given}");
    }

    #[test]
    fn fixed_values_are_compared_exactly_and_numbers_by_value() {
        check(json!({"args": {"amount": 10}}), json!({"amount": 10.0}), true);
        check(json!({"args": {"amount": 10}}), json!({"amount": "10"}), false);
        check(
            json!({"args": {"amount": 9_007_199_254_740_993_u64}}),
            json!({"amount": 9_007_199_254_740_992_u64}),
            false,
        );
        check(json!({"args": {"order_id": "SO-1", "amount": 3}}), json!({"amount": 3, "order_id": "SO-1"}), true);
        check(json!({"args": {"order_id": "SO-1"}}), json!({"order_id": "so-1"}), false);
        check(json!({"args": {"note": "红色"}}), json!({"note": "红色。"}), false);
        check(json!({"args": {"fields": ["status", "amount"]}}), json!({"fields": ["amount", "status"]}), false);
        check(json!({"args": {"order_id": "SO-1"}}), json!({}), false);
        check(json!({"args": {}}), json!({}), true);
    }

    #[test]
    fn what_the_label_lacks_is_harmless_only_as_default_or_choice() {
        check(json!({"args": {}}), json!({"limit": 10}), true);
        check(json!({"args": {}}), json!({"limit": 10.0}), true);
        check(json!({"args": {}}), json!({"limit": 5}), false);
        check(json!({"args": {}}), json!({"sort": "price_asc"}), true);
        check(json!({"args": {}}), json!({"sort": "cheap"}), false);
        check(json!({"args": {}}), json!({"fields": ["status"]}), true);
        check(json!({"args": {}}), json!({"fields": ["id"]}), false);
        check(json!({"args": {}}), json!({"note": "便宜"}), false);
        check(json!({"args": {}}), json!({"order_id": "SO-1"}), false);
        check(json!({"args": {"sort": "price_asc"}}), json!({"sort": "price_desc"}), false);
        check(json!({"args": {"where": {"city": "上海"}}}), json!({"where": {"unit": "km", "city": "上海"}}), true);
        check(json!({"args": {"where": {"city": "上海"}}}), json!({"where": {"unit": "m", "city": "上海"}}), false);
    }

    #[test]
    fn free_text_ignores_width_and_punctuation() {
        check(json!({"args": {"content": "放门口,谢谢"}}), json!({"content": "放门口，谢谢！"}), true);
        check(json!({"args": {"content": "leave it at the door"}}), json!({"content": "Leave it"}), false);
        check(json!({"args": {"address": "Rd. 20"}}), json!({"address": "Ｒｄ ２０"}), true);
        check(json!({"args": {"where": {"address": "西安市。"}}}), json!({"where": {"address": "西安市"}}), true);
        check(json!({"args": {"title": "!"}}), json!({"title": "?"}), false);
    }

    #[test]
    fn keyword_and_question_may_be_a_part_but_not_more_than_was_said() {
        check(json!({"args": {"keyword": "空气炸锅"}}), json!({"keyword": "炸锅"}), true);
        check(json!({"args": {"keyword": "空气炸锅"}}), json!({"keyword": "便宜的空气炸锅"}), true);
        check(json!({"args": {"keyword": "空气炸锅"}}), json!({"keyword": "空气炸锅 5L"}), false);
        check(json!({"args": {"keyword": "空气炸锅"}}), json!({"keyword": "。"}), false);
        let english = json!({"query": "tell me your return policy, please", "args": {"question": "return policy"}});
        check(english.clone(), json!({"question": "your return policy"}), true);
        check(english.clone(), json!({"question": "return policy for shoes"}), false);
        check(english, json!({"question": "refund policy"}), false);
        let earlier = json!({"query": "有再便宜点的吗", "args": {"keyword": "空气炸锅"},
            "history": [{"role": "user", "content": "想买个白色空气炸锅"}]});
        check(earlier, json!({"keyword": "白色空气炸锅"}), true);
    }

    #[test]
    fn further_right_objects_and_accepted_values_count() {
        let also = json!({"args": {"limit": 20}, "args_also_ok": [{}]});
        check(also.clone(), json!({}), true);
        check(also, json!({"limit": 50}), false);
        let accept = json!({"args": {"note": "NYC"}, "args_accept": {"note": ["NYC", "New York"], "amount": [5, ""], "limit": [3, ""]}});
        check(accept.clone(), json!({"note": "New York"}), true);
        check(accept.clone(), json!({"note": "New York", "amount": 5.0}), true);
        check(accept.clone(), json!({"note": "New York", "amount": 6}), false);
        check(accept.clone(), json!({"note": "New York", "limit": 10, "sort": "price_asc"}), true);
        check(accept, json!({"amount": 5}), false);
    }

    #[test]
    fn accepted_objects_list_values_for_each_key() {
        let accept =
            json!({"args": null, "args_accept": {"where": [{"city": ["上海", "Shanghai"], "unit": ["km", ""]}]}});
        check(accept.clone(), json!({"where": {"city": "Shanghai"}}), true);
        check(accept.clone(), json!({"where": {"city": "上海", "unit": "km"}}), true);
        check(accept.clone(), json!({"where": {"city": "北京"}}), false);
        check(accept, json!({"where": {"city": "上海", "zip": 1}}), false);
        let list = json!({"args": null, "args_accept": {"rows": [[{"field": ["age"], "op": [">", "gt"]}]]}});
        check(list.clone(), json!({"rows": [{"field": "age", "op": "gt"}]}), true);
        check(list, json!({"rows": [{"field": "age", "op": "<"}]}), false);
    }
}
