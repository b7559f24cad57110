//! The key `run` of a native card: how this server runs the tool.
//!
//! Owns: what may stand in it, checked against the card's own schema.
//! Does not know: whether the operator's settings name the target; that is found out when the tool is to run.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::{Fields, Report};
use super::positions::join;
use crate::tool::{HttpRun, McpRun, PathPart, Run, path_parts};

const HTTP_KEYS: [&str; 4] = ["target", "method", "path", "query"];
/// Keys of HTTP are reported, not unknown.
const MCP_KEYS: [&str; 5] = ["target", "tool", "method", "path", "query"];
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const MAX_NAME_BYTES: usize = 256;

/// Reads `run` of a card whose argument schema is `parameters`; `unknown` takes keys nobody reads.
pub(super) fn read(
    fields: &Fields<'_>,
    parameters: &Value,
    report: &mut Report<'_>,
    unknown: &mut Vec<String>,
) -> Option<Run> {
    let Value::Object(map) = fields.get("run")? else {
        fields.wrong(report, "run", "a mapping with target, method, path or with target, tool");
        return None;
    };
    let inner = Fields::new(map, "/run");
    let mut strange = |keys: &[&str]| unknown.extend(inner.unknown(keys).map(|key| format!("run.{key}")));
    if inner.get("tool").is_none() {
        strange(&HTTP_KEYS);
        return read_http(&inner, &Schema(parameters), report).map(Run::Http);
    }
    for key in ["method", "path", "query"] {
        if inner.get(key).is_some() {
            report.add(&inner.pointer(key), "`tool` names a tool of an MCP server; HTTP requests have no `tool`");
        }
    }
    strange(&MCP_KEYS);
    let target = name(&inner, report, "target", "a target of the operator's settings");
    let tool = name(&inner, report, "tool", "the tool's name at the server");
    Some(Run::Mcp(McpRun { target: target?, tool: tool? }))
}

fn read_http(inner: &Fields<'_>, schema: &Schema<'_>, report: &mut Report<'_>) -> Option<HttpRun> {
    let target = name(inner, report, "target", "a target of the operator's settings");
    for (key, expected) in [("method", "one of GET, POST, PUT, PATCH, DELETE"), ("path", "a path such as /orders/{id}")]
    {
        if inner.get(key).is_none() {
            inner.missing(report, key, expected);
        }
    }
    let method = inner.choice(report, "method", &METHODS, |name| METHODS.into_iter().find(|known| *known == name));
    let path = inner.text(report, "path");
    let in_path = path.as_deref().map(|path| check_path(inner, path, schema, report)).unwrap_or_default();
    let query = inner.texts(report, "query").unwrap_or_default();
    check_query(inner, &query, &in_path, schema, report);
    Some(HttpRun { target: target?, method: method?.to_owned(), path: path?, query })
}

/// Names of the arguments in the path.
fn check_path<'p>(
    inner: &Fields<'_>,
    path: &'p str,
    schema: &Schema<'_>,
    report: &mut Report<'_>,
) -> BTreeSet<&'p str> {
    let at = inner.pointer("path");
    let parts = match path_parts(path) {
        Ok(parts) => parts,
        Err(message) => {
            report.add(&at, message);
            return BTreeSet::new();
        }
    };
    let mut names = BTreeSet::new();
    for part in parts {
        let PathPart::Argument(name) = part else { continue };
        if !names.insert(name) {
            report.add(&at, format!("`{name}` stands twice in the path"));
        } else if !schema.is_plain(name) || !schema.is_required(name) {
            report.add(&at, format!("`{{{name}}}` must be a required parameter of type string or integer"));
        }
    }
    names
}

fn check_query(
    inner: &Fields<'_>,
    query: &[String],
    in_path: &BTreeSet<&str>,
    schema: &Schema<'_>,
    report: &mut Report<'_>,
) {
    let mut seen = BTreeSet::new();
    for (index, name) in query.iter().enumerate() {
        let fault = if schema.property(name).is_none() {
            "is no parameter of the tool"
        } else if in_path.contains(name.as_str()) {
            "stands in the path already"
        } else if !seen.insert(name) {
            "stands twice"
        } else {
            continue;
        };
        report.add(&join(&inner.pointer("query"), index), format!("`{name}` {fault}"));
    }
}

fn name(inner: &Fields<'_>, report: &mut Report<'_>, key: &str, expected: &str) -> Option<String> {
    if inner.get(key).is_none() {
        inner.missing(report, key, expected);
        return None;
    }
    let name = inner.text(report, key)?;
    let fits = !name.trim().is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control);
    if !fits {
        report.add(&inner.pointer(key), format!("expected a name of at most {MAX_NAME_BYTES} bytes in one line"));
    }
    fits.then_some(name)
}

struct Schema<'a>(&'a Value);

impl<'a> Schema<'a> {
    fn property(&self, name: &str) -> Option<&'a Value> {
        self.0.get("properties")?.get(name)
    }

    fn is_plain(&self, name: &str) -> bool {
        let kind = self.property(name).and_then(|property| property.get("type")).and_then(Value::as_str);
        matches!(kind, Some("string" | "integer"))
    }

    fn is_required(&self, name: &str) -> bool {
        let required = self.0.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|required| required == name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::positions::Lines;
    use super::*;

    fn read_run(run: Value) -> (Option<Run>, Vec<String>, Vec<String>) {
        let parameters = json!({"type": "object", "required": ["order_id", "page", "tags", "free"], "properties": {
            "order_id": {"type": "string"}, "page": {"type": "integer"}, "tags": {"type": "array"},
            "note": {"type": "string"}, "free": {}}});
        let lines = Lines::unknown();
        let mut report = Report::new(&lines, Vec::new());
        let mut unknown = Vec::new();
        let card = json!({ "run": run });
        let read = read(&Fields::new(card.as_object().unwrap(), ""), &parameters, &mut report, &mut unknown);
        let problems = report.into_problems().into_iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect();
        (read, problems, unknown)
    }

    #[test]
    fn both_forms_are_read() {
        let (run, problems, unknown) = read_run(json!({"target": "shop", "method": "GET",
            "path": "/orders/{order_id}/{page}", "query": ["tags", "note"], "verb": 1}));
        assert_eq!((problems, unknown), (vec![], vec!["run.verb".to_owned()]));
        let Some(Run::Http(run)) = run else { panic!() };
        assert_eq!((run.method.as_str(), run.path.as_str()), ("GET", "/orders/{order_id}/{page}"));
        assert_eq!(run.query, ["tags", "note"]);
        let (run, problems, unknown) = read_run(json!({"target": "desk", "tool": "查订单", "retries": 2}));
        assert_eq!((problems, unknown), (vec![], vec!["run.retries".to_owned()]));
        assert_eq!(run, Some(Run::Mcp(McpRun { target: "desk".into(), tool: "查订单".into() })));
        assert_eq!(read_run(Value::Null), (None, vec![], vec![]));
    }

    #[track_caller]
    fn check(run: Value, expected: &[&str]) {
        let (_, problems, _) = read_run(run);
        assert_eq!(problems, expected);
    }

    #[test]
    fn every_fault_is_reported_with_its_place() {
        check(
            json!("shop"),
            &["/run: expected a mapping with target, method, path or with target, tool, found a text"],
        );
        check(
            json!({}),
            &[
                "/run/target: `target` is missing; state a target of the operator's settings",
                "/run/method: `method` is missing; state one of GET, POST, PUT, PATCH, DELETE",
                "/run/path: `path` is missing; state a path such as /orders/{id}",
            ],
        );
        check(
            json!({"target": " ", "method": "get", "path": "http://evil.example/{order_id}", "query": ["gone"]}),
            &[
                "/run/target: expected a name of at most 256 bytes in one line",
                "/run/method: expected one of GET, POST, PUT, PATCH, DELETE, found `get`",
                "/run/path: the path starts with `/`; scheme and host come from the target",
                "/run/query/0: `gone` is no parameter of the tool",
            ],
        );
        check(
            json!({"target": "desk", "tool": 7, "path": "/a"}),
            &[
                "/run/path: `tool` names a tool of an MCP server; HTTP requests have no `tool`",
                "/run/tool: expected a text, found a number",
            ],
        );
    }

    #[test]
    fn placeholders_are_required_texts_or_numbers_and_stand_once() {
        let of = |path: &str| json!({"target": "shop", "method": "POST", "path": path});
        for name in ["note", "tags", "free", "absent"] {
            let message = format!("/run/path: `{{{name}}}` must be a required parameter of type string or integer");
            check(of(&format!("/a/{{{name}}}")), &[&message]);
        }
        check(of("/{order_id}/{order_id}"), &["/run/path: `order_id` stands twice in the path"]);
        check(of("/a/../b"), &["/run/path: the path has no empty, `.` or `..` segment"]);
        let mut run = of("/{order_id}");
        run["query"] = json!(["order_id", "note", "note"]);
        check(run, &["/run/query/0: `order_id` stands in the path already", "/run/query/2: `note` stands twice"]);
    }
}
