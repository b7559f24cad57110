//! Parameters and body of one operation as one object schema.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::super::fields::{kind, shorten};
use super::super::super::positions::join;
use super::refs;
use super::schema::Schemas;

/// Branches of `allOf` within each other that are read as one object.
const MAX_BRANCHES: usize = 8;
/// Of them in all.
const MAX_VISITED: usize = 500;
/// Parameters of one operation.
const MAX_PARAMETERS: usize = 200;
/// Where a parameter may stand, the first keeping its name when two have the same.
const PLACES: [&str; 4] = ["path", "query", "header", "cookie"];
/// Headers that are the executor's, not the model's.
const OWN_HEADERS: [&str; 10] = [
    "authorization",
    "proxy-authorization",
    "accept",
    "content-type",
    "cookie",
    "x-api-key",
    "api-key",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
];
/// The argument that takes a body which is no plain object.
const BODY: &str = "body";

/// Place and lower-case name of the keys that the securities of a document send.
pub(super) type Secrets = BTreeSet<(String, String)>;
/// Schema, problems, notes, and what is left of the document's allowance.
pub(super) type Gathered = (Value, Vec<(String, String)>, Vec<(String, String)>, usize);

/// Index into [`PLACES`], and name.
type Place<'d> = (usize, &'d str);

/// The arguments of one operation so far. Problems and notes carry pointers into the document.
pub(super) struct Arguments<'d> {
    document: &'d Value,
    schemas: Schemas<'d>,
    secrets: &'d Secrets,
    properties: Map<String, Value>,
    required: Vec<String>,
    others: Option<Value>,
    problems: Vec<(String, String)>,
    notes: Vec<(String, String)>,
}

impl<'d> Arguments<'d> {
    /// `left`: schema parts that may be written out for the document from here on.
    pub fn new(document: &'d Value, secrets: &'d Secrets, left: usize) -> Self {
        Self {
            document,
            schemas: Schemas::new(document, left),
            secrets,
            properties: Map::new(),
            required: Vec::new(),
            others: None,
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads the parameters of the path `item` and of its `operation`, which stands at the pointer `at`.
    pub fn gather(&mut self, item: &'d Map<String, Value>, operation: &'d Map<String, Value>, at: &str) {
        let above = at.rsplit_once('/').map_or("", |(above, _)| above);
        let mut found: BTreeMap<Place<'d>, (&'d Map<String, Value>, String)> = BTreeMap::new();
        for (holder, at) in [(item, above), (operation, at)] {
            let at = join(at, "parameters");
            let listed = match holder.get("parameters") {
                None | Some(Value::Null) => continue,
                Some(Value::Array(listed)) if listed.len() <= MAX_PARAMETERS => listed,
                Some(Value::Array(listed)) => {
                    self.problem(&at, format!("{} parameters; at most {MAX_PARAMETERS} are read", listed.len()));
                    continue;
                }
                Some(other) => {
                    self.problem(&at, format!("expected a list of parameters, found {}", kind(other)));
                    continue;
                }
            };
            for (index, parameter) in listed.iter().enumerate() {
                let at = join(&at, index);
                // The operation's own replaces the path's of the same name and place.
                if let Some((key, parameter)) = self.identify(parameter, &at) {
                    found.insert(key, (parameter, at));
                }
            }
        }
        for ((place, name), (parameter, at)) in found {
            self.parameter(PLACES[place], name, parameter, &at);
        }
        if let Some(body) = operation.get("requestBody").filter(|body| !body.is_null()) {
            self.body(body, &join(at, "requestBody"));
        }
    }

    pub fn finish(mut self) -> Gathered {
        let mut schema = json!({"type": "object", "properties": self.properties});
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        if let Some(others) = self.others {
            schema["additionalProperties"] = others;
        }
        let (defs, left) = self.schemas.finish();
        match defs {
            Ok(defs) if defs.is_empty() => {}
            Ok(defs) => schema["$defs"] = Value::Object(defs),
            Err(message) => self.problems.push(("/components/schemas".into(), message)),
        }
        (schema, self.problems, self.notes, left)
    }

    fn problem(&mut self, at: &str, message: impl Into<String>) {
        self.problems.push((at.to_owned(), message.into()));
    }

    fn note(&mut self, at: &str, message: impl Into<String>) {
        self.notes.push((at.to_owned(), message.into()));
    }

    /// Place, name and content of a parameter that the model may fill in.
    fn identify(&mut self, parameter: &'d Value, at: &str) -> Option<(Place<'d>, &'d Map<String, Value>)> {
        let parameter = match refs::follow(self.document, parameter) {
            Ok(parameter) => parameter,
            Err(message) => {
                self.problem(at, message);
                return None;
            }
        };
        let text = |key: &str| parameter.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(name) = text("name") else {
            self.problem(at, "a parameter without a name");
            return None;
        };
        let Some(place) = text("in").and_then(|place| PLACES.iter().position(|known| *known == place)) else {
            let found = text("in").map_or_else(|| "nothing".to_owned(), |place| format!("`{}`", shorten(place)));
            self.problem(at, format!("expected `in` to be one of {}, found {found}", PLACES.join(", ")));
            return None;
        };
        let lower = name.to_lowercase();
        let own = PLACES[place] == "header" && OWN_HEADERS.contains(&lower.as_str());
        if own || self.secrets.contains(&(PLACES[place].to_owned(), lower)) {
            self.note(
                at,
                format!("the {} parameter `{}` is left to whoever sends the request", PLACES[place], shorten(name)),
            );
            return None;
        }
        Some(((place, name), parameter))
    }

    fn parameter(&mut self, place: &str, name: &str, parameter: &'d Map<String, Value>, at: &str) {
        let in_content = || parameter.get("content")?.as_object()?.values().next()?.get("schema");
        let given = parameter.get("schema").or_else(in_content);
        let mut schema = match given.map(|schema| self.schemas.convert(schema)).transpose() {
            Ok(schema) => schema.unwrap_or_else(|| json!({})),
            Err(message) => return self.problem(&join(at, "schema"), message),
        };
        if given.is_none() {
            self.note(at, format!("the parameter `{}` has no schema; any value is allowed", shorten(name)));
        }
        if let Value::Object(schema) = &mut schema
            && let Some(description) = parameter.get("description").filter(|text| text.is_string())
        {
            schema.insert("description".into(), description.clone());
        }
        let required = place == "path" || parameter.get("required") == Some(&Value::Bool(true));
        self.add(name, place, schema, required, at);
    }

    /// Adds one argument; a name that is taken gets its place in front.
    fn add(&mut self, name: &str, place: &str, schema: Value, required: bool, at: &str) {
        let mut free = name.to_owned();
        if self.properties.contains_key(name) {
            let first = format!("{place}_{name}");
            let numbered = (2..).map(|number| format!("{first}_{number}"));
            let mut names = std::iter::once(first.clone()).chain(numbered);
            free =
                names.find(|name| !self.properties.contains_key(name)).expect("there are more numbers than arguments");
            let name = shorten(name);
            self.note(
                at,
                format!("`{name}` of the {place} is called `{free}`, since `{name}` stands elsewhere as well"),
            );
        }
        if required {
            self.required.push(free.clone());
        }
        self.properties.insert(free, schema);
    }

    fn body(&mut self, body: &'d Value, at: &str) {
        let body = match refs::follow(self.document, body) {
            Ok(body) => body,
            Err(message) => return self.problem(at, message),
        };
        let Some(content) = body.get("content").and_then(Value::as_object).filter(|content| !content.is_empty()) else {
            return;
        };
        let Some((media, holder)) = content.iter().find(|(media, _)| is_json(media)) else {
            let found: Vec<String> = content.keys().take(5).map(|media| shorten(media)).collect();
            let found = found.join(", ");
            return self.problem(&join(at, "content"), format!("only JSON bodies can be filled in, found {found}"));
        };
        let at = join(&join(&join(at, "content"), media), "schema");
        let Some(schema) = holder.get("schema") else {
            self.note(&at, "the body has no schema; any value is allowed");
            return self.add(BODY, BODY, json!({}), false, &at);
        };
        let required = body.get("required") == Some(&Value::Bool(true));
        let mut parts = Parts::default();
        match self.parts(schema, &mut parts, 0) {
            Ok(true) => self.flatten(parts, required, &at),
            Ok(false) => match self.schemas.convert(schema) {
                Ok(schema) => self.add(BODY, BODY, schema, required, &at),
                Err(message) => self.problem(&at, message),
            },
            Err(message) => self.problem(&at, message),
        }
    }

    /// Collects the members of an object and of its `allOf`; false when it is no plain object.
    fn parts(&mut self, schema: &'d Value, parts: &mut Parts<'d>, depth: usize) -> Result<bool, String> {
        let map = self.schemas.follow(schema)?;
        let is_object = match map.get("type") {
            Some(Value::String(kind)) => kind == "object",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            Some(_) => false,
            None => ["properties", "allOf", "required"].iter().any(|key| map.contains_key(*key)),
        };
        parts.visited += 1;
        let conditional = ["oneOf", "anyOf", "not", "if", "patternProperties", "dependentSchemas"];
        if !is_object
            || conditional.iter().any(|key| map.contains_key(*key))
            || depth > MAX_BRANCHES
            || parts.visited > MAX_VISITED
        {
            return Ok(false);
        }
        for (name, member) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if self.schemas.is_read_only(member) {
                parts.hidden.insert(name);
            } else {
                parts.members.entry(name).or_insert(member);
            }
        }
        let required = map.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !parts.required.contains(&name) {
                parts.required.push(name);
            }
        }
        if parts.others.is_none() {
            parts.others = map.get("additionalProperties");
        }
        let branches = map.get("allOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for branch in branches.iter().take(MAX_PARAMETERS) {
            if !self.parts(branch, parts, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn flatten(&mut self, parts: Parts<'d>, required: bool, at: &str) {
        let needed = |name: &str| parts.required.contains(&name) && !parts.hidden.contains(name);
        if !required && parts.members.keys().any(|name| needed(name)) {
            self.note(at, "the body may be left out, so nothing in it is required");
        }
        for (name, member) in &parts.members {
            match self.schemas.convert(member) {
                Ok(schema) => self.add(name, BODY, schema, required && needed(name), at),
                Err(message) => self.problem(&join(&join(at, "properties"), name), message),
            }
        }
        self.others = match parts.others.map(|others| self.schemas.convert(others)).transpose() {
            Ok(others) => others,
            Err(message) => return self.problem(&join(at, "additionalProperties"), message),
        };
    }
}

/// Members of a body.
#[derive(Default)]
struct Parts<'d> {
    members: BTreeMap<&'d str, &'d Value>,
    required: Vec<&'d str>,
    /// Only answers hold them.
    hidden: BTreeSet<&'d str>,
    others: Option<&'d Value>,
    /// Branches multiply when they refer to each other.
    visited: usize,
}

fn is_json(media: &str) -> bool {
    let media = media.split(';').next().unwrap_or_default().trim().to_lowercase();
    media == "application/json" || media.ends_with("+json") || media == "*/*" || media == "text/json"
}

/// What no model is asked for.
pub(super) fn secrets(document: &Value) -> Secrets {
    let schemes = document.pointer("/components/securitySchemes").and_then(Value::as_object);
    let keys = schemes.into_iter().flatten().filter_map(|(_, scheme)| {
        let text = |key: &str| scheme.get(key)?.as_str();
        (text("type") == Some("apiKey")).then_some(())?;
        Some((text("in")?.to_owned(), text("name")?.to_lowercase()))
    });
    keys.collect()
}
