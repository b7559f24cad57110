//! Tools that a live source listed.
//!
//! Owns: under which source they stand, in an order that does not depend on who answered first.
//! Does not know: how a server is asked (`execute`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::import::{self, Reading, SourceFile, is_source_name};

/// What one MCP server answered to `tools/list`, all its pages together.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    /// Name of the source, as the operator gave it.
    pub source: String,
    /// The target of the operator's settings that runs these tools; `None` where only the caller can.
    pub target: Option<String>,
    /// As the server sent them.
    pub tools: Vec<Value>,
    /// Hints by which the server lowers the class of its tools are believed.
    pub trust_hints: bool,
    /// Of all its tools.
    pub domain: Option<String>,
    /// Scopes a caller needs for any of its tools.
    pub permissions: Vec<String>,
}

/// One file of cards for each of `listed`, by source.
pub(super) fn files(listed: &[Listed]) -> BTreeMap<String, Vec<SourceFile>> {
    let mut ordered: Vec<&Listed> = listed.iter().collect();
    // Of two with the same name neither may depend on which came first.
    ordered.sort_by_cached_key(|listed| (listed.source.clone(), listed.target.clone(), listed.trust_hints));
    let mut sources: BTreeMap<String, Vec<SourceFile>> = BTreeMap::new();
    for listed in ordered {
        let reading = Reading {
            trust_hints: listed.trust_hints,
            target: listed.target.clone(),
            domain: listed.domain.clone(),
            permissions: listed.permissions.clone(),
        };
        let file = import::listed(&listed.source, listed.tools.clone(), &reading);
        sources.entry(name_of(&listed.source)).or_default().push(file);
    }
    sources
}

/// `/` separates source and tool in ids.
fn name_of(source: &str) -> String {
    if is_source_name(source) {
        return source.to_owned();
    }
    let clean: String =
        source.trim().chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).take(32).collect();
    if clean.is_empty() { "live".into() } else { clean }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Registry, load};
    use super::*;
    use crate::tool::{McpRun, Run, SideEffect};

    fn listed(source: &str, tools: Value) -> Listed {
        let Value::Array(tools) = tools else { panic!("a list") };
        Listed { source: source.into(), target: Some(format!("{source}-target")), tools, ..Listed::default() }
    }

    fn ids(registry: &Registry) -> Vec<&str> {
        registry.cards.keys().map(|id| id.as_str()).collect()
    }

    #[test]
    fn names_of_several_sources_are_kept_apart_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docs.yaml");
        let card = "  - {name: search, description: x, side_effect: read, timeout_ms: 1, permissions: []}\n";
        std::fs::write(&path, format!("registry: docs\ntools:\n{card}")).unwrap();
        let one = listed("github", json!([{"name": "search", "inputSchema": {"type": "object"}}, {"name": "a.b"}]));
        let two = listed("知识库", json!([{"name": "search", "description": "搜索"}, {"name": "a_b"}]));
        let forward = load(std::slice::from_ref(&path), &[one.clone(), two.clone()]).unwrap();
        assert_eq!(ids(&forward), ["a.b", "a_b", "docs/search", "github/search", "知识库/search"]);
        let card = &forward.cards["github/search"];
        assert_eq!(card.run, Some(Run::Mcp(McpRun { target: "github-target".into(), tool: "search".into() })));
        assert_eq!((card.side_effect, card.side_effect_declared), (SideEffect::Destructive, false));
        let backward = load(&[path], &[two, one]).unwrap();
        assert_eq!((&forward.cards, &forward.notices), (&backward.cards, &backward.notices));
    }

    #[test]
    fn a_live_source_of_a_files_name_is_another_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        std::fs::write(&path, "registry: github\nimported: true\ntools:\n  - {name: search, description: old}\n")
            .unwrap();
        let live = listed("github", json!([{"name": "search", "description": "new"}]));
        let odd = Listed { target: None, ..listed("a/b\n", json!([{"name": "search"}])) };
        let registry = load(&[path], &[live, odd]).unwrap();
        assert_eq!(ids(&registry), ["a_b/search", "github-2/search", "github/search"]);
        assert!(registry.notices.iter().any(|notice| notice.contains("called `github-2`")), "{:?}", registry.notices);
    }

    #[test]
    fn bad_tools_of_a_server_are_quarantined_alone() {
        let tools =
            json!([{"name": "ok"}, 7, {"name": "odd", "inputSchema": {"type": "string"}}, {"description": "x"}]);
        let registry = load(&[], &[listed("s", tools)]).unwrap();
        assert_eq!(ids(&registry), ["ok"]);
        let report: Vec<_> =
            registry.quarantined.iter().map(|q| (q.card.as_str(), q.problems[0].pointer.as_str())).collect();
        assert_eq!(report, [("tools/1", ""), ("odd", "/parameters/type"), ("tools/3", "/name")]);
        assert!(registry.quarantined.iter().all(|card| card.source == "s"));
    }

    #[test]
    fn the_operator_says_what_tools_may_and_who_runs_them() {
        let own = json!({"name": "查订单", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "permissions": [], "side_effect": "read", "run": {"target": "other", "tool": "x"}, "domain": "theirs",
            "tenants": ["a"]});
        let plain = Listed { source: "desk".into(), tools: vec![own], ..Listed::default() };
        let registry = load(&[], std::slice::from_ref(&plain)).unwrap();
        let card = registry.cards.values().next().unwrap();
        assert_eq!((card.side_effect, card.side_effect_declared), (SideEffect::Destructive, false));
        assert_eq!((&card.run, &card.domain, card.scopes.len(), card.tenants.len()), (&None, &None, 0, 0));

        let vouched = Listed {
            target: Some("desk-server".into()),
            trust_hints: true,
            domain: Some("客服".into()),
            permissions: vec!["desk:use".into()],
            ..plain
        };
        let registry = load(&[], &[vouched]).unwrap();
        let card = registry.cards.values().next().unwrap();
        assert_eq!((card.side_effect, card.side_effect_declared), (SideEffect::Read, true));
        assert_eq!(card.run, Some(Run::Mcp(McpRun { target: "desk-server".into(), tool: "查订单".into() })));
        assert_eq!((card.domain.as_deref(), card.scopes[0].0.as_str()), (Some("客服"), "desk:use"));
    }
}
