//! `pointsman import`, as a shell sees it, and the tools of real MCP servers.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pointsman::registry::load;
use serde_json::{Value, json};

use crate::live::Program;
use crate::support::RegistryFile;
use crate::support::cli::{pointsman, run};
use crate::support::mcp_server::{ListFault, McpServer};

const OPENAPI: &str = "openapi: 3.0.3
paths:
  /orders/{order_id}:
    get: {operationId: get_order, summary: 查询订单, parameters: [{name: order_id, in: path, required: true, schema: {type: string}}]}
    delete: {operationId: cancel_order, parameters: [{name: order_id, in: path, schema: {type: string}}]}
  /photos:
    post: {operationId: upload, requestBody: {content: {image/png: {}}}}
";

fn real_tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mcp/tools.jsonl")
}

#[test]
fn an_openapi_file_becomes_a_registry_that_loads_and_is_never_overwritten_by_accident() {
    let source = RegistryFile::new("shop.yaml", OPENAPI);
    let output = source.path.with_file_name("out.yaml");
    let out = output.to_str().unwrap();
    let (code, told, errors) = run(&["import", "openapi", source.as_str(), "-o", out]);
    assert_eq!(code, 0, "{errors}");
    assert!(
        told.contains("quarantined: ") && told.contains("only JSON bodies can be filled in, found image/png"),
        "{told}"
    );
    assert!(told.contains("3 tools read, 2 usable, 1 quarantined\nwritten to "), "{told}");
    let registry = load(std::slice::from_ref(&output), &[]).unwrap();
    assert_eq!(registry.cards.keys().map(|id| id.as_str()).collect::<Vec<_>>(), ["cancel_order", "get_order"]);
    assert!(registry.quarantined.is_empty() && registry.cards["get_order"].is_known_to_read());
    let text = std::fs::read_to_string(&output).unwrap();
    assert!(text.starts_with("# Imported from ") && text.contains("registry: \"shop\"\nimported: true\n"), "{text}");
    assert!(text.contains("# Left out: upload: only JSON bodies"), "{text}");

    let (code, _, errors) = run(&["import", "openapi", source.as_str(), "-o", out]);
    assert!(code == 2 && errors.contains("out.yaml exists") && errors.contains("--force"), "{code} {errors}");
    let strict = ["import", "auto", source.as_str(), "-o", out, "--force", "--strict"];
    std::fs::write(&output, "mine").unwrap();
    assert_eq!(run(&strict).0, 1, "a quarantined card fails a strict import");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "mine", "and writes nothing");
    assert_eq!(run(&strict[..6]).0, 0);
    assert_eq!(std::fs::read_to_string(&output).unwrap().replace("(auto)", "(openapi)"), text);
}

#[test]
fn a_listing_comes_from_standard_input_and_goes_to_standard_output() {
    let tools =
        json!({"result": {"tools": [{"name": "查", "inputSchema": {}, "annotations": {"readOnlyHint": true}}, 7]}});
    let import = |more: &[&str]| {
        let mut command = pointsman();
        command.args(["import", "mcp", "-", "-o", "-", "--format", "json"]).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(tools.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), report)
    };
    let (code, text, report) = import(&[]);
    assert_eq!(code, Some(0));
    assert_eq!(
        (&report["read"], &report["usable"], &report["undeclared_side_effect"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(report["quarantined"][0]["card"], "tools/1");
    assert!(report["notices"].to_string().contains("not believed"), "{report}");
    let file = RegistryFile::new("x.yaml", &text);
    assert!(!load(std::slice::from_ref(&file.path), &[]).unwrap().cards["查"].side_effect_declared);
    let (_, text, _) = import(&["--trust-hints", "--name", "desk", "--target", "desk"]);
    let file = RegistryFile::new("x.yaml", &text);
    let card = load(std::slice::from_ref(&file.path), &[]).unwrap().cards["查"].clone();
    assert!(card.is_known_to_read() && card.run.is_some() && card.source == "desk");
}

#[test]
fn input_that_cannot_be_used_exits_with_2_and_says_why() {
    for (name, text, part) in [
        ("a.json", "{\"swagger\": \"2.0\"}", "convert it to OpenAPI 3.0"),
        ("a.yaml", "tools: [", "not valid YAML"),
        ("a.json", "{\"cards\": []}", "no kind of registry is recognised"),
        ("a.json", "[{\"type\": \"web_search\"}]", "no tool of"),
        ("a.yaml", "openapi: 3.1.0\n", "expected a mapping `paths`"),
    ] {
        let source = RegistryFile::new(name, text);
        let output = source.path.with_file_name("out.yaml");
        let (code, _, errors) = run(&["import", "auto", source.as_str(), "-o", output.to_str().unwrap()]);
        assert!(code == 2 && errors.contains(part), "{text}: {code} {errors}");
        assert!(!output.exists(), "{text}");
    }
    assert_eq!(run(&["import", "auto", "no/such/file", "-o", "-"]).0, 2);
    let source = RegistryFile::new("shop.yaml", OPENAPI);
    let (code, out, errors) = run(&["import", "openapi", source.as_str(), "-o", "-", "--name", "a/b"]);
    assert!(code == 2 && out.is_empty() && errors.contains("`a/b` cannot name a registry"), "{code} {errors}");
    assert_eq!(run(&["import", "soap", "x", "-o", "-"]).0, 2);
}

#[test]
fn a_file_of_a_long_name_and_a_card_of_odd_characters_are_written_so_that_they_can_be_read() {
    let source = RegistryFile::new(&format!("{}.json", "长".repeat(80)), "[{\"name\": \"a\", \"inputSchema\": {}}]");
    let output = source.path.with_file_name("out.yaml");
    let (code, _, errors) = run(&["import", "mcp", source.as_str(), "-o", output.to_str().unwrap()]);
    assert_eq!(code, 0, "{errors}");
    assert_eq!(load(&[output], &[]).unwrap().cards.len(), 1);

    let custom = json!([{"type": "custom", "name": "\u{1b}[31mred"}, {"type": "function", "function": {"name": "b"}}]);
    let source = RegistryFile::new("tools.json", &custom.to_string());
    let output = source.path.with_file_name("out.yaml");
    let (_, told, errors) = run(&["import", "openai", source.as_str(), "-o", output.to_str().unwrap()]);
    assert!(!told.contains('\u{1b}') && !errors.contains('\u{1b}') && told.contains("u{1b}"), "{told:?} {errors:?}");
}

#[test]
fn the_tools_of_36_real_servers_load_and_every_quarantined_one_is_explained() {
    let registry = load(&[real_tools()], &[]).unwrap();
    assert_eq!(registry.cards.len() + registry.quarantined.len(), 1_033);
    for card in &registry.quarantined {
        assert!(!card.problems.is_empty() && card.problems.iter().all(|problem| problem.line.is_some()), "{card}");
    }
    assert_eq!(registry.quarantined, [], "none of them is beyond use");
    let without = registry.cards.values().filter(|card| card.parameters == json!({"type": "object", "properties": {}}));
    assert!(without.count() >= 409);
    let domains: std::collections::BTreeSet<_> =
        registry.cards.values().filter_map(|card| card.domain.as_deref()).collect();
    assert_eq!(domains.len(), 36);

    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.yaml");
    let (code, told, errors) = run(&["import", "flat", real_tools().to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert!(code == 0 && told.contains("1033 tools read, 1033 usable, 0 quarantined"), "{told} {errors}");
    let written = load(&[output], &[]).unwrap();
    assert_eq!(written.cards, registry.cards);
}

async fn import(flags: Vec<String>) -> (i32, String, String) {
    let work = move || run(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn words(flags: &[&str]) -> Vec<String> {
    [&["import"], flags].concat().into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_live_server_is_asked_page_by_page() {
    let tool = |name: &str| json!({"name": name, "description": "查询一个订单", "inputSchema": {"type": "object"}});
    let server = McpServer::of(["get_order", "查订单", "list_orders"].map(tool).to_vec()).await;
    server.per_page(1);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("desk.yaml");
    let out = output.to_str().unwrap();
    let (code, told, errors) = import(words(&["mcp", server.url(), "-o", out, "--header", "X-Desk=two words"])).await;
    assert!(code == 0 && told.contains("3 tools read, 3 usable"), "{told} {errors}");
    assert!(errors.contains("asking http://127.0.0.1:"), "{errors}");
    let registry = load(std::slice::from_ref(&output), &[]).unwrap();
    assert_eq!(registry.cards.keys().map(|id| id.as_str()).collect::<Vec<_>>(), ["get_order", "list_orders", "查订单"]);
    assert!(registry.cards.values().all(|card| card.source == "127.0.0.1" && !card.side_effect_declared));

    let (code, text, report) = import(words(&["mcp", server.url(), "-o", "-", "--format", "json"])).await;
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"));
    assert!(code == 0 && report["usable"] == 3 && text.contains("查订单"), "{report}");

    server.set_fault(Some(ListFault::Down));
    let (code, _, errors) = import(words(&["auto", server.url(), "-o", out, "--force"])).await;
    assert!(code == 1 && errors.contains("gives no list of its tools") && errors.contains("503"), "{code} {errors}");
    assert_eq!(load(&[output], &[]).unwrap().cards.len(), 3, "what was there stays");
}

#[tokio::test]
async fn a_program_is_asked_and_what_cannot_be_asked_is_said() {
    let Some(program) = Program::of(&[json!({"name": "get_order", "inputSchema": {"type": "object"}})]) else { return };
    let mut flags = words(&["mcp", "-o", "-", "--name", "desk", "--target", "desk", "--"]);
    flags.extend(program.command("plain"));
    let (code, text, errors) = import(flags).await;
    assert!(code == 0 && text.contains("registry: \"desk\"") && text.contains("get_order"), "{text} {errors}");

    for (flags, code, part) in [
        (vec!["mcp", "-o", "-", "--", "/no/such/program"], 2, "the program cannot be started"),
        (vec!["mcp", "http://127.0.0.1:1/mcp", "-o", "-"], 1, "cannot connect"),
        (vec!["openapi", "https://shop.example/openapi.json", "-o", "-"], 2, "only MCP servers are asked"),
        (vec!["mcp", "tools.json", "-o", "-", "--header", "A=b"], 2, "--header belongs to a live MCP server"),
        (vec!["mcp", "http://127.0.0.1:1/", "-o", "-", "--header", "Authorization=Bearer hunter2"], 2, "env:NAME"),
        (vec!["mcp", "tools.json", "-o", "-", "--", "python3"], 2, "cannot be used with"),
        (vec!["mcp", "-o", "-"], 2, "SOURCE"),
    ] {
        let (found, _, errors) = import(words(&flags)).await;
        assert!(found == code && errors.contains(part), "{flags:?}: {found} {errors}");
        assert!(!errors.contains("hunter2"), "{errors}");
    }
}
