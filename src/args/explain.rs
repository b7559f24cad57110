//! Validation errors as fields at fault: where, what would be right, an example.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;

use super::{ArgumentSchema, coerce, pattern, property};
use crate::types::FieldProblem;
use crate::types::encoding::{escape_pointer, unescape_pointer};

/// More fields than this tell nobody anything.
const MAX_FIELDS: usize = 50;
/// Longest `expected` text, in characters.
const MAX_WORDS: usize = 400;

/// All fields at fault: one entry per path, required ones first, then by path.
pub(super) fn explain<'a>(
    schema: &ArgumentSchema,
    errors: impl Iterator<Item = ValidationError<'a>>,
) -> Vec<FieldProblem> {
    let mut fields: Vec<FieldProblem> = Vec::new();
    for error in errors.take(MAX_FIELDS) {
        for field in describe(schema, &error) {
            match fields.iter_mut().find(|known| known.path == field.path) {
                Some(known) if !known.expected.contains(&field.expected) => {
                    known.expected = cut(&format!("{}; {}", known.expected, field.expected));
                }
                Some(_) => {}
                None => fields.push(field),
            }
        }
    }
    fields.sort_by(|a, b| {
        (!a.expected.starts_with("required"), &a.path).cmp(&(!b.expected.starts_with("required"), &b.path))
    });
    fields
}

fn describe(schema: &ArgumentSchema, error: &ValidationError<'_>) -> Vec<FieldProblem> {
    let path = error.instance_path().as_str();
    match error.kind() {
        Kind::Required { property } => vec![required(schema, path, property.as_str().unwrap_or_default())],
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unexpected.iter().map(|name| unknown(schema, path, name)).collect()
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => alternatives(schema, path, context),
        _ => {
            let own = coerce::schema_at(schema, path);
            let example = own.and_then(|own| example(schema, path, own));
            vec![FieldProblem { path: path.to_owned(), expected: cut(&expected(error)), example }]
        }
    }
}

/// A required property that is missing: its form where the schema fixes one.
pub(super) fn required(schema: &ArgumentSchema, parent: &str, name: &str) -> FieldProblem {
    let path = format!("{parent}/{}", escape_pointer(name));
    let own = coerce::schema_at(schema, &path);
    let form = own.and_then(|own| own.get("pattern")).and_then(Value::as_str).and_then(pattern::in_words);
    let choices = own.map(property::choices).unwrap_or_default();
    let expected = match (form, choices.is_empty()) {
        (Some(words), _) => format!("required: {words}"),
        (None, false) => format!("required: {}", one_of(&choices)),
        (None, true) => "required".to_owned(),
    };
    let example = own.and_then(|own| example(schema, &path, own));
    FieldProblem { path, expected: cut(&expected), example }
}

fn unknown(schema: &ArgumentSchema, parent: &str, name: &str) -> FieldProblem {
    let holder = coerce::schema_at(schema, parent);
    let listed = holder.and_then(|own| own.get("properties")).and_then(Value::as_object);
    let allowed: Vec<&str> = match listed {
        Some(members) => members.keys().map(String::as_str).collect(),
        None if parent.is_empty() => schema.properties().into_iter().map(|(name, _)| name).collect(),
        None => Vec::new(),
    };
    let mut expected = match allowed.as_slice() {
        [] => "unknown field; no fields are allowed here".to_owned(),
        names => format!("unknown field; allowed: {}", names.join(", ")),
    };
    if let Some(close) = closest(name, &allowed) {
        expected.push_str(&format!("; did you mean {close}?"));
    }
    FieldProblem { path: format!("{parent}/{}", escape_pointer(name)), expected: cut(&expected), example: None }
}

/// Where each branch only asks for fields (`anyOf` over `required`), the fields are what is missing.
fn alternatives(schema: &ArgumentSchema, path: &str, context: &[Vec<ValidationError<'static>>]) -> Vec<FieldProblem> {
    let names: Option<Vec<&str>> = context
        .iter()
        .map(|branch| match branch.as_slice() {
            [only] if only.instance_path().as_str() == path => match only.kind() {
                Kind::Required { property } => property.as_str(),
                _ => None,
            },
            _ => None,
        })
        .collect();
    if let Some(names) = names.filter(|names| !names.is_empty()) {
        let either = format!("required: one of {}", names.join(", "));
        return names
            .iter()
            .map(|name| FieldProblem { expected: either.clone(), ..required(schema, path, name) })
            .collect();
    }
    let words: Vec<String> = context.iter().filter_map(|branch| branch.first()).map(expected).collect();
    let example = coerce::schema_at(schema, path).and_then(|own| example(schema, path, own));
    let expected = if words.is_empty() { "a value the schema allows".to_owned() } else { words.join(", or ") };
    vec![FieldProblem { path: path.to_owned(), expected: cut(&expected), example }]
}

/// What would be right, in words.
fn expected(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Pattern { pattern } => {
            pattern::in_words(pattern).unwrap_or_else(|| format!("must match the pattern {pattern}"))
        }
        Kind::Enum { options } => match options.as_array() {
            Some(values) => one_of(&values.iter().collect::<Vec<_>>()),
            None => "one of the listed values".into(),
        },
        Kind::Constant { expected_value } => format!("exactly {}", bare(expected_value)),
        Kind::Maximum { limit } => format!("at most {limit} (maximum {limit})"),
        Kind::Minimum { limit } => format!("at least {limit} (minimum {limit})"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxProperties { limit } => format!("at most {limit} fields"),
        Kind::MinProperties { limit } => format!("at least {limit} fields"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::UniqueItems => "each item only once".into(),
        Kind::Format { format } => format!("a valid {format}"),
        Kind::Type { kind } => match kind {
            jsonschema::error::TypeKind::Single(one) => kind_words(&one.to_string()),
            jsonschema::error::TypeKind::Multiple(many) => {
                many.iter().map(|one| kind_words(&one.to_string())).collect::<Vec<_>>().join(" or ")
            }
        },
        Kind::Required { property } => format!("field {} is required", bare(property)),
        Kind::OneOfMultipleValid { .. } => "exactly one of the alternatives, several fit".into(),
        Kind::AdditionalItems { limit } => format!("at most {limit} items"),
        Kind::Contains => "at least one item of the asked form".into(),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "a text that its pattern can be checked against".into()
        }
        Kind::PropertyNames { .. } => "other field names".into(),
        Kind::FalseSchema | Kind::Not { .. } => "not allowed here".into(),
        // The library's own kinds may grow; each has a fit message.
        other => format!("a value that satisfies `{}`", other.keyword()),
    }
}

fn kind_words(kind: &str) -> String {
    match kind {
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
    .to_owned()
}

fn one_of(values: &[&Value]) -> String {
    format!("one of {}", values.iter().map(|value| bare(value)).collect::<Vec<_>>().join(", "))
}

fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value that would pass: from the description, else the first listed value, else the default.
fn example(schema: &ArgumentSchema, path: &str, own: &Value) -> Option<String> {
    let name = path.strip_prefix('/').filter(|name| !name.contains('/')).map(unescape_pointer);
    // Nested values are judged by their own keywords only where a whole-argument check is out of reach.
    let fits = |value: &Value| name.as_deref().is_some_and(|name| schema.fits(name, value));
    let description = own.get("description").and_then(Value::as_str).unwrap_or("");
    let choices = property::choices(own);
    if property::kinds(own).contains(&"string") && choices.is_empty() {
        let described = described_examples(description, own.get("pattern").is_some());
        if let Some(found) = described.into_iter().find(|text| fits(&Value::String(text.clone()))) {
            return Some(found);
        }
    }
    let listed = own.get("examples").and_then(Value::as_array).into_iter().flatten().chain(own.get("example"));
    let mut rest = listed.chain(choices).chain(own.get("default"));
    rest.find(|value| !value.is_null() && fits(value)).map(bare)
}

/// Texts a description offers as examples, best first.
fn described_examples(description: &str, patterned: bool) -> Vec<String> {
    let mut found = Vec::new();
    if patterned {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '@' | '+');
        let words = description.split(|c| !is_part(c)).map(|word| word.trim_end_matches(['.', ':', '-', '/']));
        found.extend(
            words.filter(|word| word.len() > 1 && word.contains(|c: char| c.is_ascii_digit())).map(str::to_owned),
        );
    }
    for mark in ["e.g. ", "e.g.,", "eg. ", "such as ", "for example ", "for example, ", "例如", "比如", "for instance "]
    {
        for (at, _) in description.match_indices(mark) {
            let tail =
                description[at + mark.len()..].trim_start_matches([':', '\u{ff1a}', ' ', ',', '\'', '\"', '`', '“']);
            let end = tail
                .find([',', ';', '。', '\u{ff1b}', '\u{ff0c}', '\'', '\"', '`', '”', '、', ')', '\u{ff09}'])
                .unwrap_or(tail.len());
            let mut text = &tail[..end];
            for stop in [" or ", " from ", " for ", " is ", ". "] {
                text = text.split(stop).next().unwrap_or(text);
            }
            let text = text.trim().trim_end_matches('.');
            if !text.is_empty() {
                found.push(text.to_owned());
            }
        }
    }
    found
}

/// The allowed name that `name` is probably a slip of.
fn closest<'a>(name: &str, allowed: &[&'a str]) -> Option<&'a str> {
    const LONGEST: usize = 64;
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(LONGEST).collect()
    };
    let wanted = plain(name);
    let ranked = allowed.iter().map(|candidate| (distance(&wanted, &plain(candidate)), *candidate));
    ranked.filter(|(far, _)| *far <= wanted.len() / 3).min().map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_WORDS {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MAX_WORDS - 1).collect();
    short.push('…');
    short
}
