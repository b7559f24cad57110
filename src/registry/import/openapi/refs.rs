//! References inside one document.

use serde_json::{Map, Value};

use crate::types::encoding::percent_decoded;

/// References that lead to references.
const MAX_HOPS: usize = 8;

/// The mapping that `value` is or refers to.
///
/// # Errors
/// Why there is none, in words.
pub(super) fn follow<'d>(document: &'d Value, value: &'d Value) -> Result<&'d Map<String, Value>, String> {
    let mut current = value;
    for _ in 0..=MAX_HOPS {
        let Value::Object(map) = current else {
            return Err(format!("expected a mapping, found {}", super::super::super::fields::kind(current)));
        };
        match map.get("$ref").and_then(Value::as_str) {
            Some(reference) => current = target(document, reference)?.1,
            None => return Ok(map),
        }
    }
    Err("the reference leads in a circle".into())
}

/// The pointer that a reference means in `document`, and what stands there.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn target<'d>(document: &'d Value, reference: &str) -> Result<(String, &'d Value), String> {
    let shown = super::super::super::fields::shorten(reference);
    let Some(pointer) = reference.strip_prefix('#') else {
        return Err(format!("`{shown}` refers to another document, which is not followed; bundle both into one file"));
    };
    if !pointer.starts_with('/') {
        return Err(format!("`{shown}` is no reference into `components`"));
    }
    let decoded = percent_decoded(pointer);
    let found = [pointer, decoded.as_ref()].into_iter().find_map(|pointer| Some((pointer, document.pointer(pointer)?)));
    match found {
        Some((pointer, value)) => Ok((pointer.to_owned(), value)),
        None => Err(format!("the reference `{shown}` leads nowhere")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_stay_inside_the_document() {
        let document = json!({"components": {"schemas": {"订单": {"type": "object"}, "a/b": {"$ref": "#/components/schemas/%E8%AE%A2%E5%8D%95"},
            "x": {"$ref": "#/components/schemas/x"}}}});
        let to = |reference: &str| json!({ "$ref": reference });
        let shown = |reference: &str| {
            follow(&document, Box::leak(Box::new(to(reference)))).map(|map| Value::Object(map.clone()))
        };
        for reference in
            ["#/components/schemas/订单", "#/components/schemas/a~1b", "#/components/schemas/%E8%AE%A2%E5%8D%95"]
        {
            assert_eq!(shown(reference), Ok(json!({"type": "object"})), "{reference}");
        }
        for (reference, part) in [
            ("#/components/schemas/x", "circle"),
            ("#/components/schemas/absent", "leads nowhere"),
            ("other.yaml#/a", "another document"),
            ("https://evil.example/a.json", "another document"),
            ("file:///etc/passwd", "another document"),
            ("#anchor", "no reference into"),
        ] {
            assert!(shown(reference).unwrap_err().contains(part), "{reference}");
        }
        assert_eq!(percent_decoded("%zz%E8%4"), "%zz%E8%4", "what is no text stays as it is");
    }
}
