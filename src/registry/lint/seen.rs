//! A schema as a model is shown it: what a reference leads to, and the only alternative beside null, read as if it stood
//! in its place. Nothing is copied, so it costs nothing however large the schema is.

use serde_json::{Map, Value};

use crate::args::local;

/// References and alternatives followed one after the other.
const MAX_STEPS: usize = 8;

/// Keywords of one schema; those that stand nearer to it come first.
#[derive(Debug, Clone)]
pub(super) struct Seen<'a>(Vec<&'a Map<String, Value>>);

impl<'a> Seen<'a> {
    /// `root` is what references start from. `None` for a schema that is no object.
    pub fn new(root: &'a Value, schema: &'a Value) -> Option<Self> {
        let mut layers = vec![schema.as_object()?];
        while let Some(next) = layers.last().and_then(|map| step(root, map)).filter(|_| layers.len() <= MAX_STEPS) {
            layers.push(next);
        }
        Some(Self(layers))
    }

    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.iter().find_map(|map| map.get(key))
    }

    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
}

fn step<'a>(root: &'a Value, map: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
    if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
        return local(root, reference)?.as_object();
    }
    let branches = ["anyOf", "oneOf"].into_iter().find_map(|key| map.get(key)?.as_array())?;
    let mut real = branches.iter().filter(|branch| branch["type"] != "null");
    match (real.next(), real.next()) {
        (Some(only), None) => only.as_object(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_and_the_alternative_beside_null_are_looked_through() {
        let root = json!({"$defs": {"page": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/size"}], "title": "页"},
            "size": {"type": "integer", "maximum": 50}, "loop": {"$ref": "#/$defs/loop"}}});
        let seen = |schema: Value| {
            let found = Seen::new(&root, &schema).unwrap();
            (found.get("type").cloned(), found.get("title").cloned(), found.get("maximum").cloned())
        };
        let size = (Some(json!("integer")), Some(json!("页")), Some(json!(50)));
        assert_eq!(seen(json!({"$ref": "#/$defs/page"})), size);
        let own = (Some(json!("integer")), Some(json!("每页")), Some(json!(50)));
        assert_eq!(seen(json!({"$ref": "#/$defs/page", "title": "每页"})), own);
        let none = (None, None, None);
        for open in [
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!({"$ref": "#/$defs/loop"}),
            json!({"$ref": "#/$defs/none"}),
            json!({"$ref": "other.json"}),
            json!({"oneOf": [{"type": "null"}]}),
        ] {
            assert_eq!(seen(open.clone()), none, "{open}");
        }
        assert!(Seen::new(&root, &json!(true)).is_none());
    }
}
