//! `pointsman lint`, `Registry.Lint` and the reports about changes: formats, exit codes, languages, overlap by vectors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pointsman::pipeline::Linted;
use pointsman::registry::lint::pairs::DUPLICATE;
use pointsman::registry::lint::{self, Language, rules};
use pointsman::server::proto::{Finding, LintRequest, PutRequest, ReloadRequest};
use pointsman::server::wire::to_struct;
use serde_json::{Value, json};
use tonic::Code;

use crate::source::{read, root};
use crate::support::cli::{WORDS_ALONE, run};
use crate::support::server::{TestServer, settings};
use crate::support::shop::Shop;
use crate::support::{RegistryFile, native};

/// Twelve cards that break a rule or two each.
const BAD: &str = "tests/data/lint/registry.bad.yaml";
const GOOD: &str = "examples/shop/registry.yaml";

/// Exit code, standard output and standard error of `pointsman lint`, by words alone.
fn program(args: &[&str]) -> (i32, String, String) {
    run(&[&["lint"], args, &WORDS_ALONE[..2]].concat())
}

fn json_of(args: &[&str]) -> (i32, Value) {
    let (code, out, err) = program(&[args, &["--format", "json"]].concat());
    (code, serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}")))
}

/// Rules that fired, by tool.
fn fired(report: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut by_tool: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for finding in report["findings"].as_array().unwrap() {
        let word = |key: &str| finding[key].as_str().unwrap().to_owned();
        by_tool.entry(word("tool")).or_default().insert(word("rule"));
    }
    by_tool
}

#[test]
fn json_tells_rule_place_reason_and_proposal() {
    let (code, report) = json_of(&[BAD]);
    assert_eq!(code, 1, "delete_account has no preview");
    assert_eq!((&report["cards"], &report["quarantined"]), (&12.into(), &json!([])));
    let fired = fired(&report);
    assert!(fired["get_points"].contains("identity-param"), "{fired:?}");
    assert!(fired["delete_account"].contains("destructive-no-preview"), "{fired:?}");
    let text = read(&root().join(BAD));
    let lines: Vec<&str> = text.lines().collect();
    for finding in report["findings"].as_array().unwrap() {
        assert!(["error", "warning", "note"].contains(&finding["severity"].as_str().unwrap()), "{finding}");
        assert_eq!(finding["file"], BAD);
        assert!(!finding["reason"].as_str().unwrap().is_empty() && !finding["proposal"].as_str().unwrap().is_empty());
        let line = finding["line"].as_u64().unwrap() as usize;
        // The line belongs to the tool: its name is the last one before.
        let name = lines[..line].iter().rev().find_map(|line| line.trim().strip_prefix("- name: ")).unwrap();
        assert_eq!(finding["tool"], name, "{finding}");
    }
    assert!(report["notices"][0].as_str().unwrap().contains("not measured"), "{}", report["notices"]);
}

#[test]
fn the_text_ends_with_a_sum_and_speaks_both_languages() {
    let (code, english, err) = program(&[BAD]);
    assert_eq!(code, 1);
    assert!(err.contains("error: lint found"), "{err}");
    let last = english.lines().last().unwrap();
    assert!(last.starts_with("12 cards linted, 0 quarantined: "), "{last}");
    assert!(english.contains(&format!("\nget_points\n  {BAD}:")), "{english}");
    assert!(!english.contains('\u{1b}'), "colours are for terminals");
    let (code, chinese, _) = program(&[BAD, "--lang", "zh"]);
    assert_eq!(code, 1);
    assert!(chinese.lines().last().unwrap().starts_with("检查了 12 张卡片，隔离 0 张"), "{chinese}");
    let count = |text: &str| text.lines().filter(|line| line.starts_with("      → ")).count();
    assert_eq!(count(&english), count(&chinese), "both languages tell the same findings");
}

#[test]
fn the_sample_shop_has_no_error() {
    let (code, report) = json_of(&[GOOD]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["cards"], 26);
}

#[test]
fn filters_choose_what_is_told_and_what_fails() {
    let (code, report) = json_of(&[BAD, "--severity", "error"]);
    assert_eq!(code, 1);
    assert!(report["findings"].as_array().unwrap().iter().all(|finding| finding["severity"] == "error"), "{report}");
    let (code, report) = json_of(&[BAD, "--only", "no-limit-cap,no-max-length"]);
    assert_eq!((code, fired(&report).len()), (0, 2), "{report}");
    let (code, _, err) = program(&[BAD, "--only", "no-limit-cup"]);
    assert_eq!(code, 2);
    assert!(err.contains("did you mean no-limit-cap?"), "{err}");
}

#[test]
fn a_card_that_would_be_quarantined_is_an_error_in_every_format() {
    let broken = native(&["find_parcel", "track_parcel"]).replacen("    timeout_ms: 1000\n", "", 1);
    let file = RegistryFile::new("registry.yaml", &broken);
    let (code, report) = json_of(&[file.as_str(), "--severity", "error"]);
    assert_eq!((code, &report["cards"]), (1, &1.into()));
    let card = &report["quarantined"][0];
    assert_eq!((&card["card"], &card["file"]), (&"find_parcel".into(), &file.as_str().into()));
    assert!(card["problems"][0]["message"].as_str().unwrap().contains("timeout_ms"), "{card}");
    let (_, text, _) = program(&[file.as_str(), "--severity", "error"]);
    assert!(text.contains("quarantined: it would not be served"), "{text}");
    let (_, sarif, _) = program(&[file.as_str(), "--format", "sarif"]);
    let sarif: Value = serde_json::from_str(&sarif).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "quarantined-card");
}

#[test]
fn unusable_input_exits_with_2() {
    let file = RegistryFile::new("registry.yaml", "tools: [");
    for args in [&[][..], &["no/such/file.yaml"], &[file.as_str()], &["Cargo.lock"]] {
        let (code, out, err) = program(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?} {err}");
        assert!(err.starts_with("error: "), "{err}");
    }
}

#[test]
fn sarif_has_the_structure_that_code_hosts_read() {
    let (code, out, _) = program(&[BAD, "--format", "sarif", "--lang", "zh"]);
    assert_eq!(code, 1);
    let log: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&log["version"], log["runs"].as_array().unwrap().len()), (&"2.1.0".into(), 1));
    let run = &log["runs"][0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "pointsman");
    let described = driver["rules"].as_array().unwrap();
    assert_eq!(described.len(), rules().len() + 1);
    for rule in described {
        for key in ["shortDescription", "fullDescription", "help"] {
            assert!(!rule[key]["text"].as_str().unwrap().is_empty(), "{rule}");
        }
        assert!(["error", "warning", "note"].contains(&rule["defaultConfiguration"]["level"].as_str().unwrap()));
    }
    let results = run["results"].as_array().unwrap();
    assert!(results.len() > 10);
    let mut prints = BTreeSet::new();
    for result in results {
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(described[index]["id"], result["ruleId"]);
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], BAD, "relative, as given");
        assert!(place["region"]["startLine"].as_u64().unwrap() > 0);
        prints.insert(result["partialFingerprints"]["pointsman/v1"].as_str().unwrap());
    }
    assert!(prints.len() * 10 >= results.len() * 9, "fingerprints tell results apart");
    let notes = run["invocations"][0]["toolExecutionNotifications"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["message"]["text"].as_str().unwrap().contains("没有按含义测量")), "{notes:?}");
}

#[test]
fn misroutes_are_put_down_to_findings_and_boundaries_are_tried() {
    // The sample shop with two confusable tools that no longer point at each other, and one tool said twice.
    let text = read(&root().join(GOOD));
    let twice = doubled(&text, "track_shipment", "locate_shipment");
    let file = RegistryFile::new("registry.yaml", &twice);
    let (code, report) = json_of(&[file.as_str(), "--measure", "tests/data/shop.dev.jsonl", "--no-vectors"]);
    assert!(code < 2, "{report}");
    let impact = &report["impact"];
    let (rows, misrouted) = (impact["rows"].as_u64().unwrap(), impact["misrouted"].as_u64().unwrap());
    assert!(rows > 150 && misrouted > 0 && misrouted < rows, "{impact}");
    let findings = impact["findings"].as_array().unwrap();
    assert_eq!(findings.len(), report["findings"].as_array().unwrap().len());
    let costs: Vec<u64> = findings.iter().map(|finding| finding["misroutes"].as_u64().unwrap()).collect();
    assert!(costs.is_sorted_by(|a, b| a >= b), "costliest first: {costs:?}");
    let pair = findings.iter().find(|finding| finding["other"] == "locate_shipment").unwrap();
    assert!(pair["misroutes"].as_u64().unwrap() > 0, "{pair}");
    let example = &pair["examples"][0];
    assert_eq!(example["wanted"], "track_shipment");
    assert_eq!(example["first"], "locate_shipment");
    assert!(pair["trial"]["gained"].is_u64() && pair["trial"]["use"] == "locate_shipment", "{pair}");
    let (_, text, _) = program(&[file.as_str(), "--measure", "tests/data/shop.dev.jsonl", "--no-vectors"]);
    assert!(text.contains(&format!("misroutes: {misrouted} of {rows} queries")), "{text}");
}

/// `text` with the card `name` once more under the name `copy`, without its boundaries.
fn doubled(text: &str, name: &str, copy: &str) -> String {
    let (_, rest) = text.split_once(&format!("\n  - name: {name}\n")).unwrap();
    let card = rest.split("\n  - name: ").next().unwrap().trim_end();
    let kept = card.lines().filter(|line| !line.contains(", use: ") && !line.contains("conflicts_with"));
    let card = kept.collect::<Vec<_>>().join("\n").replace("when_not_to_use:\n", "when_not_to_use: []\n");
    format!("{}\n\n  - name: {copy}\n{card}\n", text.trim_end())
}

#[test]
fn a_query_file_that_cannot_be_read_exits_with_2() {
    let (code, _, err) = program(&[BAD, "--no-vectors", "--measure", "no/such.jsonl"]);
    assert_eq!(code, 2);
    assert!(err.contains("no/such.jsonl"), "{err}");
}

/// With the encoders that ship with the repository.
async fn linted(registry: &Path) -> Linted {
    let shop = Shop::of(registry, &[]).await;
    let linted = shop.router.lint(Language::English, None).await.unwrap();
    assert!(linted.overlaps_measured);
    for overlap in linted.overlaps.iter().take(12) {
        println!("{:.3} {:?} {:?}", overlap.closeness, overlap.tools, overlap.phrases);
    }
    linted
}

fn closeness(linted: &Linted, one: &str, other: &str) -> f32 {
    let mut wanted = [one, other];
    wanted.sort_unstable();
    let found = linted.overlaps.iter().find(|overlap| overlap.tools.each_ref().map(|id| id.as_str()) == wanted);
    found.map_or(0.0, |overlap| overlap.closeness)
}

/// Rule, tool and the other tool of findings on pairs.
fn pairs(linted: &Linted) -> BTreeSet<String> {
    let pair = |finding: &lint::Finding| Some(format!("{} {} {}", finding.rule, finding.tool, finding.other.as_ref()?));
    linted.findings.iter().filter(|finding| finding.rule != "similar-name").filter_map(pair).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn confusable_tools_lie_below_synonyms() {
    let shop = linted(&root().join(GOOD)).await;
    assert!(shop.overlaps.iter().all(|overlap| overlap.closeness < DUPLICATE), "{:?}", shop.overlaps[0]);
    assert_eq!(pairs(&shop), BTreeSet::new());
    let bad = linted(&root().join(BAD)).await;
    let synonyms = closeness(&bad, "find_parcels", "locate_packages");
    assert!(synonyms >= DUPLICATE, "{synonyms}");
    assert!(bad.overlaps[1].closeness < DUPLICATE, "{:?}", bad.overlaps[1]);
    let both = ["duplicate-meaning find_parcels locate_packages", "duplicate-meaning locate_packages find_parcels"];
    assert_eq!(pairs(&bad), both.map(str::to_owned).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_border_that_one_side_lost_is_missed() {
    let text = read(&root().join(GOOD));
    let (before, card) = text.split_once("\n  - name: track_shipment\n").unwrap();
    let (card, after) = card.split_once("\n  - name: ").unwrap();
    let kept: Vec<&str> = card.lines().filter(|line| !line.contains("use: get_order}")).collect();
    assert!(kept.len() < card.lines().count());
    let text = format!("{before}\n  - name: track_shipment\n{}\n  - name: {after}", kept.join("\n"));
    let linted = linted(&RegistryFile::new("registry.yaml", &text).path).await;
    println!("get_order, track_shipment: {:.3}", closeness(&linted, "get_order", "track_shipment"));
    assert_eq!(pairs(&linted), ["one-sided-boundary track_shipment get_order".to_owned()].into());
}

#[tokio::test]
async fn lint_over_grpc_says_what_the_program_says() {
    let server = TestServer::start(settings(&[Path::new(BAD)])).await;
    let ask = async |request: LintRequest| server.registry().lint(request).await.map(tonic::Response::into_inner);
    let answer = ask(LintRequest::default()).await.unwrap();
    let (_, report) = json_of(&[BAD]);
    let same: Vec<Value> = answer.findings.iter().map(as_json).collect();
    assert_eq!(Value::Array(same), report["findings"]);
    assert_eq!((answer.cards, answer.quarantined.len(), answer.notices.len()), (12, 0, 1));
    assert!(!answer.catalog_version.is_empty());
    let chinese = ask(LintRequest { language: "zh".into(), tools: vec!["get_points".into()] }).await.unwrap();
    assert_eq!(chinese.cards, 1);
    assert!(!chinese.findings.is_empty() && chinese.findings.iter().all(|finding| finding.tool == "get_points"));
    assert!(
        chinese.findings.iter().all(|finding| finding.reason.chars().any(|c| ('\u{4e00}'..'\u{9fff}').contains(&c)))
    );
    let refused = ask(LintRequest { language: "fr".into(), tools: Vec::new() }).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

fn as_json(finding: &Finding) -> Value {
    let mut value = json!({
        "rule": finding.rule, "severity": finding.severity, "tool": finding.tool, "file": finding.file,
        "line": finding.line, "reason": finding.reason, "proposal": finding.proposal,
    });
    if !finding.other.is_empty() {
        value["other"] = finding.other.clone().into();
    }
    value
}

fn card(name: &str) -> Value {
    json!({
        "name": name, "version": 1,
        "description": {"what": "Reads the points of a customer.", "when_to_use": ["我的积分", "my points"],
                        "when_not_to_use": [], "returns": "One object: points."},
        "parameters": {"type": "object", "additionalProperties": false, "properties": {
            "user_id": {"type": "string", "maxLength": 9, "description": "The customer, e.g. U00000001."}}, "required": ["user_id"]},
        "side_effect": "read", "idempotent": true, "permissions": [], "timeout_ms": 1000,
    })
}

#[tokio::test]
async fn a_change_tells_what_is_wrong_with_the_cards_it_brings() {
    let registry = RegistryFile::of(&["find_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    let put = async |cards: Vec<Value>| {
        let cards = cards.iter().map(|card| to_struct(card.as_object().unwrap())).collect();
        server.registry().put(PutRequest { cards }).await.unwrap().into_inner()
    };
    let change = put(vec![card("get_points")]).await;
    let rules: BTreeSet<&str> = change.findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert!(rules.contains("identity-param"), "{change:?}");
    assert!(change.findings.iter().all(|finding| finding.tool == "get_points" && finding.severity != "note"));
    // The same again changes nothing and repeats nothing.
    assert_eq!(put(vec![card("get_points")]).await.findings, []);
    let flawed = |n: usize| {
        let mut card = card(&format!("get_points_{n}"));
        card["parameters"]["additionalProperties"] = true.into();
        card
    };
    let many: Vec<Value> = (0..250).map(flawed).collect();
    let change = put(many).await;
    assert_eq!(change.findings.len(), 200);
    assert!(change.notices.iter().any(|notice| notice.contains("left out; `Lint` gives all")), "{:?}", change.notices);
    assert!(
        change.notices.iter().any(|notice| notice.contains("200 were linted and 50 were not")),
        "{:?}",
        change.notices
    );

    registry.write(&native(&["find_parcel", "do_service"]));
    let change = server.registry().reload(ReloadRequest {}).await.unwrap().into_inner();
    assert!(change.findings.iter().any(|finding| finding.tool == "do_service"), "{change:?}");
    assert!(change.findings.iter().all(|finding| finding.tool == "do_service"), "{change:?}");
}

const BEGIN: &str = "| rule | severity | imported | reported when |\n| --- | --- | --- | --- |\n";

#[test]
fn every_rule_stands_in_the_document() {
    let path = root().join("docs/LINT.md");
    let text = read(&path);
    let (before, rest) = text.split_once(BEGIN).expect("docs/LINT.md has a table of rules");
    let after: String = rest.lines().skip_while(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect();
    let severity = |severity| pointsman::pipeline::severity_name(severity);
    let rows: String = rules()
        .iter()
        .map(|rule| {
            let imported = rule.imported.map_or("-", severity);
            format!("| `{}` | {} | {imported} | {} |\n", rule.id, severity(rule.severity), rule.title.en)
        })
        .collect();
    let expected = format!("{before}{BEGIN}{rows}{after}");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert_eq!(read(&path), expected, "docs/LINT.md disagrees with the rules (BLESS=1 writes its table anew)");
}

/// A native registry with one reading tool that has these properties.
fn with_parameters(parameters: Value) -> RegistryFile {
    let card = json!({"name": "search_orders", "version": 1, "side_effect": "read", "idempotent": true,
        "permissions": [], "timeout_ms": 1000, "parameters": parameters,
        "description": {"what": "Search orders. Read only.", "when_to_use": ["我的订单"], "when_not_to_use": [],
            "returns": "At most 20 orders."}});
    RegistryFile::new("registry.json", &json!({"registry": "shop", "tools": [card]}).to_string())
}

#[test]
fn a_parameter_that_may_be_null_or_is_a_reference_is_judged_like_any_other() {
    let kinds = json!({"limit": {"type": "integer"}, "keyword": {"type": "string"},
        "start_date": {"type": "string", "format": "date", "description": "First day, e.g. 2026-01-01"}});
    let fired_in = |properties: &Value| {
        let parameters = json!({"type": "object", "additionalProperties": false, "properties": properties,
            "$defs": kinds});
        let registry = with_parameters(parameters);
        let (_, report) = json_of(&[registry.as_str(), "--only", "no-limit-cap,no-max-length,model-computes-date"]);
        fired(&report)
    };
    let plain = fired_in(&kinds);
    assert_eq!(plain["search_orders"].len(), 3, "{plain:?}");
    let of = |form: &dyn Fn(&str, &Value) -> Value| -> Value {
        let forms = kinds.as_object().unwrap().iter().map(|(name, kind)| (name.clone(), form(name, kind)));
        Value::Object(forms.collect())
    };
    let nullable = of(&|_, kind| json!({"anyOf": [kind, {"type": "null"}]}));
    let referring = of(&|name, _| json!({"$ref": format!("#/$defs/{name}")}));
    let both = of(&|name, _| json!({"oneOf": [{"type": "null"}, {"$ref": format!("#/$defs/{name}")}]}));
    for other in [nullable, referring, both] {
        assert_eq!(fired_in(&other), plain, "{other}");
    }
}

/// Keys of 32 KB inside each other over a hundred thousand values, and thousands of names that nobody knows.
#[test]
fn cards_made_to_be_costly_are_linted_like_others() {
    let values: Vec<String> = (0..90_000).map(|n| format!("v{n}")).collect();
    let key = "k".repeat(32_000);
    let nested = (0..4).fold(
        json!({"type": "string", "enum": values}),
        |inner, _| json!({"type": "object", "properties": {key.as_str(): inner}}),
    );
    let registry = with_parameters(nested);
    let (code, report) = json_of(&[registry.as_str(), "--no-vectors"]);
    assert!((code == 0 || code == 1) && report["cards"] == 1, "{code} {}", report["quarantined"]);

    let names: Vec<String> = (0..8_000).map(|n| format!("tool_{n:05}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lost = native(&names).replace(
        "    timeout_ms: 1000\n",
        "    timeout_ms: 1000\n    requires: [gone_00001, gone_00002, gone_00003, gone_00004, gone_00005]\n",
    );
    let registry = RegistryFile::new("registry.yaml", &lost);
    let (code, report) = json_of(&[registry.as_str(), "--no-vectors"]);
    assert_eq!((code, report["quarantined"].as_array().unwrap().len()), (1, 8_000));
}
