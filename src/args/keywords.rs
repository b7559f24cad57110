//! Keywords of JSON Schema by what stands under them, in all drafts that are read.

/// Under these stands one schema.
pub(crate) const ONE: [&str; 11] = [
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "additionalItems",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "items",
];
/// A list of schemas; under `items` either.
pub(crate) const LIST: [&str; 4] = ["prefixItems", "allOf", "anyOf", "oneOf"];
/// Schemas by name.
pub(crate) const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
