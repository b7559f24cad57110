//! What may stand in a record: never a value a person gave.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::text::Query;
use crate::tool::canonical_json;
use crate::types::encoding::hex;

/// Secret of one installation: equal values give equal hashes within it, and nobody without it can try values out.
#[derive(Clone)]
pub struct Salt([u8; 16]);

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Salt {
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// 16 hex digits that stand for `text`.
    pub fn hash(&self, text: &str) -> String {
        let mut digest = Sha256::new();
        // The salt has a fixed length, so it cannot run into the text.
        digest.update(self.0);
        digest.update(text.as_bytes());
        hex(&digest.finalize()[..8])
    }
}

/// Each argument's name with the hash of its value; booleans stay, they identify nobody.
pub fn arguments(arguments: &Map<String, Value>, salt: &Salt) -> Map<String, Value> {
    arguments
        .iter()
        .map(|(name, value)| {
            let shown = match value {
                Value::Bool(_) | Value::Null => value.clone(),
                Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                    Value::String(format!("hash:{}", salt.hash(&canonical_json(value))))
                }
            };
            (argument_name(name, salt), shown)
        })
        .collect()
}

/// The same names and lists with the hash of each value; booleans stay.
pub fn body(value: &Value, salt: &Salt) -> Value {
    match value {
        Value::Bool(_) | Value::Null => value.clone(),
        Value::Number(_) | Value::String(_) => Value::String(format!("hash:{}", salt.hash(&canonical_json(value)))),
        Value::Array(items) => items.iter().map(|item| body(item, salt)).collect(),
        Value::Object(map) => map.iter().map(|(name, value)| (argument_name(name, salt), body(value, salt))).collect(),
    }
}

/// Longest argument name that is shown, and the digits from which on a name is taken for a value.
const MAX_NAME: usize = 64;
const MANY_DIGITS: usize = 4;

/// The name itself, or its hash: where a schema is open, a model writes the names as well.
pub fn argument_name(name: &str, salt: &Salt) -> String {
    let digits = name.chars().filter(char::is_ascii_digit).count();
    let plain = name.len() <= MAX_NAME && digits < MANY_DIGITS && !name.contains(['@', ' ']);
    if plain { name.to_owned() } else { format!("hash:{}", salt.hash(name)) }
}

/// Places people live at, as far as they can be told by their form: a street with a house number. In Chinese the words
/// before the street belong to it, up to a word that leads to an address.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?xi)
        [\p{Han}--[到成为在是寄往给]]{1,24}?(?:路|街|道|巷|弄|里|村|胡同|小区|花园|苑|大厦|镇|乡)
            \s?[0-9]{1,5}\s?(?:号|弄|栋|幢|座|室|楼|单元)
            (?:[0-9a-z\-]{1,5}(?:号楼|号|弄|栋|幢|座|室|楼|层|单元)?|[0-9a-z]{0,2}(?:号楼|栋|幢|座|室|楼|层|单元))*
        | (?:\b(?:room|apt\.?|apartment|unit|flat|suite)\s[0-9a-z\-]{1,6},?\s)?
            \b[0-9]{1,5}[a-z]?\s(?:[a-z'.\-]{2,20}\s){1,4}?
            (?:street|st|road|rd|avenue|ave|lane|ln|drive|boulevard|blvd)\b\.?(?:,\s?[a-z]{2,20}){0,2}",
    )
    .expect("the pattern is constant and tested")
});

/// Arguments shorter than this, in characters, say nothing about anybody.
const MIN_VALUE: usize = 2;

/// The utterance with its slots, with addresses, and with the text `values` found in it each replaced by what it is.
pub fn utterance<'a>(query: &Query, values: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    let text = query.text.as_str();
    let mut spans: Vec<(Range<usize>, &str)> =
        query.slots.iter().map(|slot| (slot.span.clone(), slot.kind.as_str())).collect();
    spans.extend(ADDRESS.find_iter(text).map(|found| (found.range(), "address")));
    for (name, value) in values {
        let Some(value) = value.as_str().filter(|value| value.chars().nth(MIN_VALUE - 1).is_some()) else { continue };
        spans.extend(text.match_indices(value).map(|(start, found)| (start..start + found.len(), name.as_str())));
    }
    // Of two spans that begin together the longer one comes first and covers the other.
    spans.sort_by_key(|(span, _)| (span.start, std::cmp::Reverse(span.end)));
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for (span, label) in spans {
        if span.start >= done {
            out.push_str(&text[done..span.start]);
            out.push_str(&format!("<{label}>"));
        }
        done = done.max(span.end);
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_disappear_and_equal_values_stay_linked() {
        let (a, b) = (Salt::new([1; 16]), Salt::new([2; 16]));
        let raw = json!({"order_id": "SO-20260418000736", "same": "SO-20260418000736", "address": "杭州市江南大道100号", "enabled": true});
        let shown = arguments(raw.as_object().unwrap(), &a);
        let text = Value::Object(shown.clone()).to_string();
        assert!(!text.contains("SO-2026") && !text.contains("江南"), "{text}");
        assert_eq!(shown["order_id"], shown["same"]);
        assert_eq!(shown["enabled"], true);
        assert_eq!(argument_name("收货地址", &a), "收货地址");
        assert!(argument_name("13800138000", &a).starts_with("hash:"));
        assert_ne!(shown["order_id"], arguments(raw.as_object().unwrap(), &b)["order_id"]);
        assert_eq!(format!("{a:?}"), "***");
    }

    #[track_caller]
    fn check(said: &str, arguments: Value, expect: &str) {
        let query = crate::text::normalise(said).unwrap();
        let arguments = arguments.as_object().unwrap().clone();
        assert_eq!(utterance(&query, arguments.iter()), expect);
    }

    #[test]
    fn addresses_leave_the_utterance_in_both_languages() {
        check("这单改寄到武汉市洪山区珞喻路152号吧", json!({}), "这单改寄到<address>吧");
        check("搬家啦,都寄到南京市玄武区珠江路88号5栋602", json!({}), "搬家啦,都寄到<address>");
        check("默认地址改成成都市锦江区东大街20号3单元1202室", json!({}), "默认地址改成成<address>");
        check("Set my address to Room 1203, 55 Huaihai Road, Shanghai", json!({}), "Set my address to <address>");
        check("ship it to 27 Garden Street, Ningbo", json!({}), "ship it to <address>");
        check("3 items are on the way", json!({}), "<number> items are on the way");
        check("退款要走哪些步骤", json!({}), "退款要走哪些步骤");
    }

    #[test]
    fn what_became_an_argument_leaves_the_utterance() {
        let arguments = json!({"content": "放门口就行", "order_id": "SO-20260418000736", "n": 3, "x": "行"});
        check("跟SO-20260418000736的快递说放门口就行", arguments, "跟<id>的快递说<content>");
        check("star trading star", json!({"title": "star trading"}), "<title> star");
        // Overlapping spans are one.
        check("to 5 north park road 7", json!({"a": "to 5 north"}), "<a> <number>");
    }
}
