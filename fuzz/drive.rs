// What the fuzz targets and the test over their corpus have in common: one input, and what must hold whatever it is.

use std::path::Path;

use pointsman::args::ArgumentSchema;
use pointsman::registry::{ImportOptions, Kind, Registry, import_text};
use serde_json::Value;

/// Any text, read as a document of one kind: an error, or cards that can be served.
#[allow(dead_code)]
pub fn import(kind: Kind, data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = || import_text(Some(kind), Path::new("input"), text, &ImportOptions::default());
    let Ok(registry) = read() else { return };
    for card in registry.cards.values() {
        // A card that is served has a schema that can be applied, with an object at its root.
        let schema = ArgumentSchema::compile(&card.parameters).expect("a served card has a schema that compiles");
        apply(&schema);
    }
    assert!(registry.quarantined.iter().all(|card| !card.problems.is_empty()), "quarantined without a reason");
    let again = read().expect("what was read can be read again");
    assert_eq!(told(&registry), told(&again), "the same text gives the same registry");
}

/// Any JSON as an argument schema: an error that says where, or a schema that answers.
#[allow(dead_code)]
pub fn schema(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    match ArgumentSchema::compile(&value) {
        Ok(schema) => apply(&schema),
        Err(error) => assert!(!error.message.is_empty()),
    }
}

/// None of this may panic or run on, whatever it answers.
fn apply(schema: &ArgumentSchema) {
    let names: Vec<String> = schema.properties().into_iter().take(50).map(|(name, _)| name.to_owned()).collect();
    for name in &names {
        for value in [Value::Null, Value::from(3), Value::from("007"), serde_json::json!(["退款", {"a": 1}])] {
            let _ = schema.fits(name, &value);
        }
    }
}

fn told(registry: &Registry) -> (Vec<String>, Vec<String>, &[String]) {
    let cards = registry.cards.values().map(|card| card.hash().0).collect();
    let quarantined = registry.quarantined.iter().map(ToString::to_string).collect();
    (cards, quarantined, &registry.notices)
}
