//! Harmless slips of form put right: only where the schema says so and nothing is lost.
//!
//! Decided, in the order of what models get wrong most:
//! - a text that is exactly one number, `true`/`false`, or the JSON text of a list or object becomes that value where
//!   the schema wants it (`"3.0"` is the whole number 3); a number becomes its text where only a text fits;
//! - an enum value is found whatever its case, width, blanks, `-` or `_`, if that is unique;
//! - a patterned or closed text is tried without outer blanks, in ASCII width, in capitals, in small letters;
//! - a single value becomes a list of one where a list is wanted and the value fits its items;
//! - `null` for an optional argument that allows none means the argument is absent.
//!
//! A value that already fits is never touched, except that 3.0 for a whole number becomes 3.

use serde_json::{Map, Number, Value};

use super::{ArgumentSchema, property, schema};
use crate::text::to_nfkc;
use crate::types::encoding::unescape_pointer;

/// Nesting can hide a slip behind another one: a list as text whose items are numbers as text.
const ROUNDS: usize = 4;
/// Slips repaired per round.
const MAX_SLIPS: usize = 200;
/// Largest whole number a float holds without loss.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Repairs `args` in place as far as possible; what stays wrong is for the validator to tell.
pub(super) fn coerce(schema: &ArgumentSchema, args: &mut Map<String, Value>) {
    for _ in 0..ROUNDS {
        let whole = Value::Object(args.clone());
        if !schema.affords(&whole) {
            return; // Said by whoever validates.
        }
        let paths: Vec<String> = schema
            .validator()
            .iter_errors(&whole)
            .map(|error| error.instance_path().as_str().to_owned())
            .filter(|path| !path.is_empty())
            .take(MAX_SLIPS)
            .collect();
        let mut whole = whole;
        let mut changed = false;
        for path in paths {
            let Some(own) = schema_at(schema, &path) else { continue };
            let Some(slot) = whole.pointer_mut(&path) else { continue };
            if let Some(better) = convert(slot, own) {
                changed |= *slot != better;
                *slot = better;
            }
        }
        let Value::Object(next) = whole else { return };
        *args = next;
        if !changed {
            break;
        }
    }
    drop_nulls(schema, args);
    for (name, value) in args.iter_mut() {
        if let Some(property) = schema.property(name) {
            whole_numbers(value, property.schema);
        }
    }
}

/// The schema of the value at `path` (a JSON pointer into the arguments), as far as plain nesting leads.
pub(super) fn schema_at<'a>(schema: &'a ArgumentSchema, path: &str) -> Option<&'a Value> {
    let mut steps = path.strip_prefix('/')?.split('/').map(unescape_pointer);
    let mut current = schema.property(&steps.next()?)?.schema;
    for step in steps {
        let named = current.get("properties").and_then(|members| members.get(&step));
        let placed = || current.get("prefixItems").and_then(|items| items.get(step.parse::<usize>().ok()?));
        let open = || current.get("items").or_else(|| current.get("additionalProperties"));
        current = named.or_else(placed).or_else(open).filter(|found| found.is_object())?;
    }
    Some(current)
}

/// `value` in the form `schema` asks for, if that loses nothing.
fn convert(value: &Value, schema: &Value) -> Option<Value> {
    let choices = property::choices(schema);
    if !choices.is_empty() {
        return choose(value, &choices);
    }
    let kinds = property::kinds(schema);
    if let (Value::String(text), true) = (value, kinds.contains(&"string")) {
        return reshape(text, schema);
    }
    kinds.iter().find_map(|kind| match *kind {
        "integer" => to_integer(value),
        "number" => to_number(value),
        "boolean" => to_boolean(value),
        "string" => to_text(value, schema),
        "array" => to_list(value, schema),
        "object" => parsed(value, Value::is_object),
        _ => None,
    })
}

/// The one listed value that `value` can only mean.
fn choose(value: &Value, choices: &[&Value]) -> Option<Value> {
    let text = scalar_text(value)?;
    let wanted = folded(&text);
    let mut same = choices.iter().filter(|choice| scalar_text(choice).is_some_and(|text| folded(&text) == wanted));
    match (same.next(), same.next()) {
        (Some(only), None) => Some((*only).clone()),
        _ => None,
    }
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn folded(text: &str) -> String {
    to_nfkc(text).to_lowercase().replace([' ', '-'], "_")
}

/// A text that its pattern, enum or format refuses, in the one spelling that passes.
fn reshape(text: &str, schema: &Value) -> Option<Value> {
    let plain = to_nfkc(text);
    let forms = [plain.clone(), plain.to_uppercase(), plain.to_lowercase()];
    let single = jsonschema_for(schema)?;
    forms.into_iter().map(Value::String).find(|form| single.is_valid(form))
}

/// A validator for one text: only the keywords that can tell spellings apart.
fn jsonschema_for(schema: &Value) -> Option<jsonschema::Validator> {
    let mut own = Map::new();
    for keyword in ["pattern", "format", "minLength", "maxLength"] {
        if let Some(value) = schema.get(keyword) {
            own.insert(keyword.into(), value.clone());
        }
    }
    schema::options().build(&Value::Object(own)).ok()
}

fn to_integer(value: &Value) -> Option<Value> {
    let number = match value {
        Value::Number(number) => number.clone(),
        Value::String(text) => number_in(text)?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    exact_integer(&number).map(Value::Number)
}

fn exact_integer(number: &Number) -> Option<Number> {
    if number.is_i64() || number.is_u64() {
        return Some(number.clone());
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT)?;
    Some(Number::from(float as i64))
}

fn to_number(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => number_in(text).map(Value::Number),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A text that is one number in JSON's spelling, in any width of digits. `007` is a label, not a number.
fn number_in(text: &str) -> Option<Number> {
    let plain = to_nfkc(text);
    match serde_json::from_str(plain.trim_start_matches('+')) {
        Ok(Value::Number(number)) => Some(number),
        _ => None,
    }
}

fn to_boolean(value: &Value) -> Option<Value> {
    match to_nfkc(value.as_str()?).to_lowercase().as_str() {
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        _ => None,
    }
}

fn to_text(value: &Value, schema: &Value) -> Option<Value> {
    let Value::Number(number) = value else { return None };
    // A long float was a longer row of digits once: its text would be another id.
    if number.is_f64() && number.as_f64().is_none_or(|float| float.abs() >= EXACT) {
        return None;
    }
    let text = number.to_string();
    Some(reshape(&text, schema).unwrap_or(Value::String(text)))
}

fn to_list(value: &Value, schema: &Value) -> Option<Value> {
    if let Some(list) = parsed(value, Value::is_array) {
        return Some(list);
    }
    let items = schema.get("items")?;
    // Half a list is no text of its own: it is asked for again.
    let is_broken = value.as_str().is_some_and(|text| text.trim_start().starts_with(['[', '{']));
    if value.is_array() || value.is_object() || value.is_null() || is_broken {
        return None;
    }
    let item = convert(value, items).unwrap_or_else(|| value.clone());
    schema::fits_part(items, &item).then(|| Value::Array(vec![item]))
}

fn parsed(value: &Value, wanted: fn(&Value) -> bool) -> Option<Value> {
    let text = value.as_str().filter(|text| text.trim_start().starts_with(['[', '{']))?;
    serde_json::from_str(text).ok().filter(wanted)
}

fn drop_nulls(schema: &ArgumentSchema, args: &mut Map<String, Value>) {
    args.retain(|name, value| {
        let absent = value.is_null()
            && schema.property(name).is_some_and(|property| !property.required)
            && !schema.fits(name, value);
        !absent
    });
}

/// 3.0 satisfies `integer`, but not every tool that was promised a whole number.
fn whole_numbers(value: &mut Value, schema: &Value) {
    match value {
        Value::Number(number) if number.is_f64() && property::kinds(schema) == ["integer"] => {
            if let Some(whole) = exact_integer(number) {
                *number = whole;
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| whole_numbers(item, schema));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(schema) = schema.get("properties").and_then(|properties| properties.get(name)) {
                    whole_numbers(member, schema);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
