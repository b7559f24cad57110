//! JSON in which no object gives one name two values: of two amounts nobody knows which one was meant.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value all of whose objects are unambiguous. Equal values under one name are one.
pub(super) struct Distinct(pub Value);

/// All of `text`.
pub(super) fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().map(|Distinct(value)| value)
}

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything).map(Distinct)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("no finite number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Distinct(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Distinct(value))) = members.next_entry::<String, Distinct>()? {
            if map.get(&name).is_some_and(|other| *other != value) {
                return Err(A::Error::custom("one name has two values"));
            }
            map.insert(name, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn two_values_under_one_name_are_refused_at_any_depth() {
        assert_eq!(
            parse(r#"{"a":1,"a":1,"b":[null,true,-2,0.5,"退款"]}"#),
            Some(json!({"a": 1, "b": [null, true, -2, 0.5, "退款"]}))
        );
        for text in [r#"{"a":1,"a":2}"#, r#"{"x":{"金额":82,"金额":820}}"#, r#"[{"a":"1","a":1}]"#, "{", "1 2"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(5_000)), None);
    }

    proptest! {
        #[test]
        fn what_has_one_reading_is_read_as_it_is(names in prop::collection::btree_map("[a-c退]{1,2}", any::<i32>(), 0..6)) {
            let value = json!({"inner": names});
            prop_assert_eq!(parse(&value.to_string()), Some(value));
        }
    }
}
