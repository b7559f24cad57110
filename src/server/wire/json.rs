//! `google.protobuf.Struct` and JSON.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as ProtoValue};
use serde_json::{Map, Number, Value};

/// Objects and lists inside each other. Protobuf libraries stop at 100 nested messages, and a level of JSON takes up to
/// three of them.
pub const MAX_DEPTH: usize = 32;

/// Integers up to here are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Why a value of the wire is no JSON: where, in dotted form, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotJson {
    pub(super) path: String,
    pub(super) expected: String,
}

impl NotJson {
    /// Paths are put together on the way out: most values are fine and need none.
    fn below(self, parent: &str) -> Self {
        Self { path: format!("{parent}{}", self.path), ..self }
    }
}

/// `path` names the value in errors.
pub(super) fn from_struct(value: Struct, path: &str) -> Result<Map<String, Value>, NotJson> {
    object(value, 1).map_err(|error| error.below(path))
}

fn object(value: Struct, depth: usize) -> Result<Map<String, Value>, NotJson> {
    check_depth(depth)?;
    let member = |(key, value)| match from_value(value, depth) {
        Ok(value) => Ok((key, value)),
        Err(error) => Err(error.below(&format!(".{key}"))),
    };
    value.fields.into_iter().map(member).collect()
}

fn from_value(value: ProtoValue, depth: usize) -> Result<Value, NotJson> {
    Ok(match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(value),
        Some(Kind::StringValue(value)) => Value::String(value),
        Some(Kind::NumberValue(value)) => Value::Number(
            number(value).ok_or_else(|| NotJson { path: String::new(), expected: "a finite number".into() })?,
        ),
        Some(Kind::StructValue(value)) => Value::Object(object(value, depth + 1)?),
        Some(Kind::ListValue(list)) => {
            check_depth(depth + 1)?;
            let item = |(i, value)| from_value(value, depth + 1).map_err(|error| error.below(&format!("[{i}]")));
            Value::Array(list.values.into_iter().enumerate().map(item).collect::<Result<_, _>>()?)
        }
    })
}

/// A whole number comes back as an integer: protobuf only has doubles, and a card's `version: 1` must not become 1.0.
fn number(value: f64) -> Option<Number> {
    if value.fract() == 0.0 && value.abs() <= EXACT {
        // In range and without a fraction, so the cast is exact.
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

fn check_depth(depth: usize) -> Result<(), NotJson> {
    if depth > MAX_DEPTH {
        return Err(NotJson { path: String::new(), expected: format!("at most {MAX_DEPTH} levels of nesting") });
    }
    Ok(())
}

/// Integers beyond 2^53 lose digits, and what is nested deeper than [`MAX_DEPTH`] becomes JSON text: both are exact in
/// the JSON text that travels beside a struct.
pub fn to_struct(map: &Map<String, Value>) -> Struct {
    to_struct_at(map, 1)
}

fn to_struct_at(map: &Map<String, Value>, depth: usize) -> Struct {
    Struct { fields: map.iter().map(|(key, value)| (key.clone(), to_value(value, depth))).collect() }
}

fn to_value(value: &Value, depth: usize) -> ProtoValue {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(value) => Kind::NumberValue(value.as_f64().unwrap_or_default()),
        Value::String(value) => Kind::StringValue(value.clone()),
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => Kind::StringValue(value.to_string()),
        Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(|item| to_value(item, depth + 1)).collect() })
        }
        Value::Object(map) => Kind::StructValue(to_struct_at(map, depth + 1)),
    };
    ProtoValue { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use serde_json::json;

    use super::*;
    use crate::server::proto;

    fn nested(levels: usize) -> Map<String, Value> {
        let mut map = Map::new();
        for _ in 1..levels {
            map = Map::from_iter([("a".to_owned(), Value::Object(map))]);
        }
        map
    }

    fn proto_nested(levels: usize) -> Struct {
        let mut value = Struct::default();
        for _ in 1..levels {
            let kind = Some(Kind::StructValue(value));
            value = Struct { fields: [("a".to_owned(), ProtoValue { kind })].into() };
        }
        value
    }

    #[test]
    fn json_survives_the_round_trip() {
        let value = json!({"订单": "SO-1", "n": 3, "x": 2.5, "neg": -7, "list": [1, [true, null]], "o": {"": {}}});
        let map = value.as_object().unwrap();
        assert_eq!(from_struct(to_struct(map), "p").as_ref(), Ok(map));
    }

    #[test]
    fn depth_is_bounded_both_ways() {
        assert!(from_struct(proto_nested(MAX_DEPTH), "session_state").is_ok());
        let error = from_struct(proto_nested(MAX_DEPTH + 1), "session_state").unwrap_err();
        assert!(error.path.starts_with("session_state.a.a"), "{}", error.path);
        // What we send can be decoded by a protobuf library with the usual limit of 100.
        let call = proto::PlannedCall { arguments: Some(to_struct(&nested(100))), ..Default::default() };
        let outcome = Some(proto::route_response::Outcome::Call(proto::Call { calls: vec![call] }));
        let bytes = proto::RouteResponse { outcome, ..Default::default() }.encode_to_vec();
        assert!(proto::RouteResponse::decode(bytes.as_slice()).is_ok());
        let most = proto::PutRequest { cards: vec![proto_nested(MAX_DEPTH)] }.encode_to_vec();
        assert!(proto::PutRequest::decode(most.as_slice()).is_ok());
    }

    #[test]
    fn numbers_that_are_none_are_refused_with_their_place() {
        let list = ListValue { values: vec![ProtoValue { kind: Some(Kind::NumberValue(f64::NAN)) }] };
        let fields = [("a".to_owned(), ProtoValue { kind: Some(Kind::ListValue(list)) })];
        let error = from_struct(Struct { fields: fields.into() }, "session_state").unwrap_err();
        assert_eq!(error.path, "session_state.a[0]");
    }

    #[test]
    fn long_keys_do_not_multiply_with_what_lies_below_them() {
        let values = vec![ProtoValue { kind: Some(Kind::BoolValue(true)) }; 200_000];
        let list = ProtoValue { kind: Some(Kind::ListValue(ListValue { values })) };
        let fields = [("k".repeat(1024 * 1024), list)].into();
        assert!(from_struct(Struct { fields }, "session_state").is_ok());
    }

    #[test]
    fn whole_numbers_stay_integers() {
        assert_eq!(number(3.0), Some(Number::from(3)));
        assert_eq!(number(-0.0), Some(Number::from(0)));
        assert_eq!(number(1e300), Number::from_f64(1e300));
        assert_eq!(number(f64::INFINITY), None);
    }
}
