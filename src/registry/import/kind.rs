//! Which kind of document a file holds, told by its content alone.

use serde_json::{Map, Value};

use super::super::fields::{kind, shorten};

/// Forms in which tools are described. Each is translated into the same cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A registry as `docs/REGISTRY.md` describes it.
    Native,
    /// Name, description and parameters, one object a line or in a list.
    Flat,
    /// `tools` of a chat completion or a response, or the older `functions`.
    OpenAi,
    /// `tools` of a message.
    Anthropic,
    /// The result of `tools/list`.
    Mcp,
    /// An OpenAPI 3.0 or 3.1 description.
    OpenApi,
}

impl Kind {
    pub const ALL: [Self; 6] = [Self::Native, Self::Flat, Self::OpenAi, Self::Anthropic, Self::Mcp, Self::OpenApi];
    pub const NAMES: [&'static str; 6] = ["native", "flat", "openai", "anthropic", "mcp", "openapi"];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Flat => "flat",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Mcp => "mcp",
            Self::OpenApi => "openapi",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Keys that only the frame of a native file has.
const NATIVE_FRAME: [&str; 5] = ["registry", "imported", "domains", "scopes", "result_defaults"];
/// Keys that only a native card has.
const NATIVE_CARD: [&str; 5] = ["side_effect", "permissions", "timeout_ms", "requires", "confirmation"];

/// The kind of a parsed document.
///
/// The first that fits: the version key of OpenAPI; a JSON-RPC answer (MCP); a list `functions` (OpenAI); a frame key of
/// a native file; else what most of its tools look like, an earlier kind winning a tie. Tools that look like none are
/// native below a key `tools` and flat in a bare list.
///
/// # Errors
/// What was found and what would be understood.
pub fn detect(document: &Value) -> Result<Kind, String> {
    let (tools, usual) = match document {
        Value::Array(tools) => (tools, Kind::Flat),
        Value::Object(root) => match by_root(root)? {
            Some(kind) => return Ok(kind),
            None => match root.get("tools") {
                Some(Value::Array(tools)) => (tools, Kind::Native),
                Some(other) => return Err(format!("`tools` must be a list, found {}", kind(other))),
                None => return Err(unknown(&found_keys(root))),
            },
        },
        other => return Err(unknown(kind(other))),
    };
    if tools.is_empty() && usual == Kind::Flat {
        return Err(unknown("an empty list"));
    }
    Ok(by_tools(tools).unwrap_or(usual))
}

fn by_root(root: &Map<String, Value>) -> Result<Option<Kind>, String> {
    if let Some(version) = root.get("openapi") {
        return match version.as_str().filter(|version| version.starts_with("3.0") || version.starts_with("3.1")) {
            Some(_) => Ok(Some(Kind::OpenApi)),
            None => {
                let version = version.as_str().map_or_else(|| version.to_string(), str::to_owned);
                Err(format!("OpenAPI {} is not read; 3.0 and 3.1 are", shorten(&version)))
            }
        };
    }
    if root.contains_key("swagger") {
        return Err(
            "Swagger 2.0 is not read; convert it to OpenAPI 3.0 first (swagger2openapi and the Swagger editor \
                    do that)"
                .into(),
        );
    }
    if root.contains_key("jsonrpc") || root.get("result").is_some_and(|result| result.get("tools").is_some()) {
        return Ok(Some(Kind::Mcp));
    }
    let listed = |key: &str| root.get(key).is_some_and(Value::is_array);
    if listed("functions") && !listed("tools") {
        return Ok(Some(Kind::OpenAi));
    }
    Ok(NATIVE_FRAME.iter().any(|key| root.contains_key(*key)).then_some(Kind::Native))
}

/// What most tools look like; `None` when none looks like anything in particular.
fn by_tools(tools: &[Value]) -> Option<Kind> {
    let mut votes = [0_usize; Kind::ALL.len()];
    for kind in tools.iter().filter_map(by_tool) {
        votes[kind as usize] += 1;
    }
    let most = votes.iter().copied().max().filter(|most| *most > 0)?;
    Kind::ALL.into_iter().find(|kind| votes[*kind as usize] == most)
}

fn by_tool(tool: &Value) -> Option<Kind> {
    let tool = tool.as_object()?;
    let has = |key: &str| tool.contains_key(key);
    if NATIVE_CARD.iter().any(|key| has(key)) || tool.get("description").is_some_and(Value::is_object) {
        return Some(Kind::Native);
    }
    if has("input_schema") {
        return Some(Kind::Anthropic);
    }
    if ["inputSchema", "outputSchema", "annotations"].iter().any(|key| has(key)) {
        return Some(Kind::Mcp);
    }
    if has("function") {
        return Some(Kind::OpenAi);
    }
    let named = tool.get("type").and_then(Value::as_str)?;
    // `web_search_20250305` and the like.
    let dated =
        named.rsplit_once('_').is_some_and(|(_, end)| end.len() == 8 && end.bytes().all(|b| b.is_ascii_digit()));
    Some(if dated { Kind::Anthropic } else { Kind::OpenAi })
}

fn found_keys(root: &Map<String, Value>) -> String {
    let shown: Vec<String> = root.keys().take(10).map(|key| shorten(key)).collect();
    if shown.is_empty() { "an empty mapping".into() } else { shown.join(", ") }
}

fn unknown(found: &str) -> String {
    format!(
        "no kind of registry is recognised: expected a list `tools` with one mapping per tool (native, OpenAI, Anthropic \
         or MCP), a bare list of tools, or an OpenAPI 3 description with its key `openapi`; found {found}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_is_told_by_its_content() {
        let function = json!({"type": "function", "function": {"name": "a", "parameters": {}}});
        for (document, expected) in [
            (json!({"registry": "shop", "tools": [{"name": "a", "inputSchema": {}}]}), Kind::Native),
            (json!({"imported": true, "tools": []}), Kind::Native),
            (json!({"tools": []}), Kind::Native),
            (json!({"tools": [{"name": "查订单", "description": "x"}]}), Kind::Native),
            (json!({"tools": [{"name": "a", "side_effect": "read", "timeout_ms": 1}]}), Kind::Native),
            (json!([{"name": "a", "description": "x", "parameters": null}]), Kind::Flat),
            (json!({"model": "m", "tools": [function, {"type": "web_search"}]}), Kind::OpenAi),
            (json!([{"type": "function", "name": "a", "parameters": {}}]), Kind::OpenAi),
            (json!({"functions": [{"name": "a", "parameters": {}}]}), Kind::OpenAi),
            (
                json!({"tools": [{"name": "a", "input_schema": {}}, {"type": "bash_20250124", "name": "b"}]}),
                Kind::Anthropic,
            ),
            (json!({"tools": [{"name": "a", "inputSchema": {}}], "nextCursor": "x"}), Kind::Mcp),
            (json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}), Kind::Mcp),
            (json!({"openapi": "3.1.0", "paths": {}}), Kind::OpenApi),
            (json!({"openapi": "3.0.3", "tools": []}), Kind::OpenApi),
        ] {
            assert_eq!(detect(&document), Ok(expected), "{document}");
        }
        assert_eq!(Kind::ALL.map(Kind::as_str), Kind::NAMES);
        assert!(Kind::NAMES.iter().all(|name| Kind::parse(name).is_some_and(|kind| kind.as_str() == *name)));
    }

    #[test]
    fn what_fits_nothing_is_explained() {
        for (document, part) in [
            (json!({"swagger": "2.0", "paths": {}}), "convert it to OpenAPI 3.0"),
            (json!({"openapi": 3}), "OpenAPI 3 is not read"),
            (json!({"openapi": "4.0.0"}), "OpenAPI 4.0.0 is not read; 3.0 and 3.1 are"),
            (json!({"cards": []}), "expected a list `tools`"),
            (json!({"tools": {}}), "`tools` must be a list, found a mapping"),
            (json!([]), "an empty list"),
            (json!("text"), "found a text"),
            (json!({}), "an empty mapping"),
        ] {
            let error = detect(&document).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
