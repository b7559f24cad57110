//! Whole registries: from files to ids, reports and notices.

use serde_json::json;

use super::*;
use crate::registry::ScopeInfo;
use crate::tool::SideEffect;
use crate::types::Scope;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn shop() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shop/registry.yaml")
}

fn ids(registry: &Registry) -> Vec<&str> {
    registry.cards.keys().map(ToolId::as_str).collect()
}

/// A native card that breaks no rule.
fn card(name: &str, more: &str) -> String {
    format!(
        "  - name: {name}\n    description: Does {name}.\n    side_effect: read\n    timeout_ms: 10\n    \
         permissions: []\n{more}"
    )
}

fn native(registry: &str, cards: &[String]) -> String {
    format!("registry: {registry}\ntools:\n{}", cards.concat())
}

#[test]
fn sb_017_the_shop_has_26_tools_in_9_domains() {
    let registry = load(&[shop()], &[]).unwrap();
    assert_eq!(registry.quarantined, []);
    assert_eq!(registry.notices, Vec::<String>::new());
    assert_eq!(registry.cards.len(), 26);
    let count = |class| registry.cards.values().filter(|card| card.side_effect == class).count();
    assert_eq!((count(SideEffect::Read), count(SideEffect::Write), count(SideEffect::Destructive)), (13, 9, 4));
    let domains: BTreeSet<_> = registry.cards.values().filter_map(|card| card.domain.as_deref()).collect();
    assert_eq!(domains.len(), 9);
    assert!(registry.cards.values().all(|card| card.side_effect_declared && card.source == "shop"));

    let cancel = &registry.cards["cancel_order"];
    assert_eq!(cancel.requires, ["preview_cancel_order"]);
    assert_eq!(cancel.confirmation.as_ref().unwrap().token_param.as_deref(), Some("confirm_token"));
    assert_eq!(cancel.idempotency_ttl, Some(std::time::Duration::from_secs(1800)));
    let orders = &registry.cards["search_orders"];
    assert_eq!(orders.result_enums["status"]["20"], "待发货 paid");
    assert_eq!(orders.description.when_not_to_use[0].use_tool.as_deref(), Some("get_order"));
    assert_eq!(orders.timeout, Some(std::time::Duration::from_millis(2000)));
    assert_eq!(registry.cards["execute_refund"].requires, ["preview_refund"]);
}

#[test]
fn sb_018_one_report_lists_every_broken_card() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(shop()).unwrap();
    let drop_line = |text: &str, tool: &str, key: &str| -> String {
        let start = text.find(&format!("- name: {tool}\n")).unwrap();
        let at = start + text[start..].find(&format!("\n    {key}:")).unwrap();
        let end = at + 1 + text[at + 1..].find('\n').unwrap();
        format!("{}{}", &text[..at], &text[end..])
    };
    let text = drop_line(&drop_line(&text, "get_stock", "timeout_ms"), "get_invoice", "permissions");
    let registry = load(&[folder.file("registry.yaml", &text)], &[]).unwrap();
    assert_eq!(registry.cards.len(), 24);
    let report: Vec<_> =
        registry.quarantined.iter().map(|q| (q.card.as_str(), q.problems[0].pointer.as_str())).collect();
    assert_eq!(report, [("get_stock", "/timeout_ms"), ("get_invoice", "/permissions")]);
    let line = text.lines().position(|l| l.ends_with("name: get_stock")).unwrap() + 1;
    assert_eq!(registry.quarantined[0].problems[0].line, Some(line));
    assert!(registry.quarantined[0].to_string().contains("`timeout_ms` is missing"));
    // Cards that point to a quarantined one stay.
    assert!(registry.notices.iter().any(|n| n.contains("points to `get_invoice`")));
}

#[test]
fn sb_028_what_a_card_points_to_has_to_exist() {
    let folder = Folder::new();
    let text = native(
        "r",
        &[
            card("get_order", ""),
            card("a", "    requires: [get_ordr]\n    fallback: nothing\n"),
            card("查询", "    conflicts_with: [a]\n"),
        ],
    );
    let registry = load(&[folder.file("r.yaml", &text)], &[]).unwrap();
    assert_eq!(ids(&registry), ["get_order", "查询"]);
    let problems = &registry.quarantined[0].problems;
    assert!(problems[0].message.contains("no tool `get_ordr`") && problems[0].message.contains("`get_order`"));
    assert_eq!((problems[0].pointer.as_str(), problems[0].line), ("/requires/0", Some(13)));
    assert_eq!(problems[1].pointer, "/fallback");
    assert!(registry.notices[0].contains("`查询` points to `a`"));
}

#[test]
fn extra_keys_and_unlisted_domains_are_remarks() {
    let folder = Folder::new();
    let text = "registry: r\ndomians: []\ndomains: [orders]\ntools:\n".to_owned()
        + &card("a", "    expect_lint: [x]\n    domain: order\n")
        + &card("b", "    expect_lint: [y]\n    time_out_ms: 7\n");
    let registry = load(&[folder.file("r.yaml", &text)], &[]).unwrap();
    assert_eq!(registry.cards.len(), 2);
    let notices = registry.notices.join("\n");
    assert!(notices.contains("unknown key `domians` on line 2 (did you mean `domains`?)"), "{notices}");
    assert!(notices.contains("unknown key `expect_lint` in 2 cards"), "{notices}");
    assert!(notices.contains("`time_out_ms` in 1 card is ignored (did you mean `timeout_ms`?)"), "{notices}");
    assert!(notices.contains("domain `order` of `a` is not listed"), "{notices}");
}

#[test]
fn a_flat_file_costs_only_its_bad_lines() {
    let folder = Folder::new();
    let text = "\u{feff}{\"name\":\"查天气\",\"description\":\"查询天气\",\"parameters\":null}\n\nnot json\n{\"name\":\"b\",\
                \"parameters\":{\"type\":\"string\"}}\n{\"name\":\"c\",\"description\":\"x\",\"extra\":1}";
    let registry = load(&[folder.file("tools.jsonl", text)], &[]).unwrap();
    assert_eq!(ids(&registry), ["c", "查天气"]);
    assert_eq!(registry.notices, Vec::<String>::new());
    let report: Vec<_> = registry.quarantined.iter().map(|q| (q.card.as_str(), q.problems[0].line)).collect();
    assert_eq!(report, [("tools/1", Some(3)), ("b", Some(4))]);
    assert_eq!(registry.quarantined[0].problems.len(), 1);
}

#[test]
fn the_three_native_formats_mean_the_same() {
    let folder = Folder::new();
    let yaml = native("r", &[card("a", "    parameters: {properties: {n: {type: integer, maximum: 5}}}\n")]);
    let toml = "registry = \"r\"\n[[tools]]\nname = \"a\"\ndescription = \"Does a.\"\nside_effect = \"read\"\ntimeout_ms \
                = 10\npermissions = []\n[tools.parameters.properties.n]\ntype = \"integer\"\nmaximum = 5\n";
    let json = json!({"registry": "r", "tools": [{"name": "a", "description": "Does a.", "side_effect": "read",
        "timeout_ms": 10, "permissions": [], "parameters": {"properties": {"n": {"type": "integer", "maximum": 5}}}}]});
    let one = load(&[folder.file("1.yaml", &yaml)], &[]).unwrap();
    let two = load(&[folder.file("2.toml", toml)], &[]).unwrap();
    let three = load(&[folder.file("3.json", &json.to_string())], &[]).unwrap();
    assert_eq!(one.cards.len(), 1);
    assert_eq!(one.cards, two.cards);
    assert_eq!(one.cards, three.cards);
    // The same card in several files of one registry is one card.
    let all =
        load(&[folder.0.path().join("3.json"), folder.0.path().join("1.yaml"), folder.0.path().join("2.toml")], &[]);
    let all = all.unwrap();
    assert_eq!(all.cards, one.cards);
    assert!(all.notices[0].contains("3 times with the same content"));
}

#[test]
fn one_name_for_two_things_serves_neither() {
    let folder = Folder::new();
    let text = native("r", &[card("a", ""), card("b", "    fallback: a\n"), card("a", "    version: 2\n")]);
    let registry = load(&[folder.file("r.yaml", &text)], &[]).unwrap();
    assert_eq!(ids(&registry), ["b"]);
    assert_eq!(registry.quarantined.len(), 2);
    for quarantined in &registry.quarantined {
        let message = &quarantined.problems[0].message;
        assert!(message.contains("r.yaml:3") && message.contains("r.yaml:14"), "{message}");
    }
}

#[test]
fn two_sources_keep_their_tools_of_one_name_in_any_order_of_files() {
    let folder = Folder::new();
    let files = [
        folder.file("one.yaml", &native("one", &[card("search", ""), card("x", "    requires: [search]\n")])),
        folder.file("two/tools.jsonl", "{\"name\":\"search\",\"description\":\"搜索\"}\n{\"name\":\"y\"}"),
        folder.file("deep/two/tools.jsonl", "{\"name\":\"search\",\"description\":\"other\"}"),
        // Reads like the id that `search` of `one` gets.
        folder.file("three.yaml", &native("three", &[card("one/search", "")])),
    ];
    let forward = load(&files, &[]).unwrap();
    assert_eq!(ids(&forward), ["one/search", "three/one/search", "two-2/search", "two/search", "x", "y"]);
    assert_eq!(forward.cards["x"].requires, ["one/search"]);
    assert_eq!(forward.cards["one/search"].name, "search");
    let mut order = files.to_vec();
    order.reverse();
    order.push(folder.0.path().join("two/../one.yaml"));
    let backward = load(&order, &[]).unwrap();
    assert_eq!(forward.cards, backward.cards);
    assert_eq!(forward.notices, backward.notices);
}

#[test]
fn an_id_stays_when_the_other_source_breaks() {
    let folder = Folder::new();
    let sound = folder.file("one.yaml", &native("one", &[card("search", "")]));
    let broken = folder
        .file("two.yaml", &native("two", &[card("search", "    owner: []\n"), card("z", "    fallback: search\n")]));
    let registry = load(&[sound, broken], &[]).unwrap();
    assert_eq!(ids(&registry), ["one/search", "z"]);
    assert_eq!(registry.cards["z"].fallback.as_deref(), Some("two/search"));
}

#[test]
fn unusable_files_name_place_and_remedy() {
    let folder = Folder::new();
    let message = |name: &str, text: &str| load(&[folder.file(name, text)], &[]).unwrap_err().to_string();
    assert!(message("a.yaml", "tools:\n  - name: a\n   bad: indent\n").contains("a.yaml:3"));
    assert!(message("a.yaml", "cards: []\n").contains("expected a list `tools`"));
    assert!(
        message("a.yaml", "tools: []\ntools: []\n").contains("a.yaml:2: the key `tools` stands here and on line 1")
    );
    assert!(message("b.yaml", "registry: a/b\ntools: []\n").contains("b.yaml:1"));
    assert!(message("a.txt", "").contains("name it .yaml"));
    assert!(message("a.json", "[]").contains("found an empty list"));
    let path = folder.0.path().join("latin.yaml");
    std::fs::write(&path, b"tools:\n  - name: caf\xe9\n").unwrap();
    assert!(load(&[path], &[]).unwrap_err().to_string().contains("latin.yaml:2: not valid UTF-8"));
    assert!(load(&[folder.0.path().join("absent.yaml")], &[]).unwrap_err().to_string().contains("absent.yaml"));
}

fn put(cards: &[(&str, Value)]) -> Registry {
    let mut values = Vec::new();
    for (name, more) in cards {
        let mut value = json!({"name": name, "description": "x", "side_effect": "read", "timeout_ms": 10.0,
            "permissions": [], "version": 2.0});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        values.push(value);
    }
    from_values(&values)
}

#[test]
fn put_cards_join_the_files_and_lose_against_them() {
    let folder = Folder::new();
    let files = load(&[folder.file("r.yaml", &native("r", &[card("a", "")]))], &[]).unwrap();
    let added = put(&[
        ("a", json!({})),
        ("新", json!({"fallback": "a"})),
        ("c", json!({"requires": ["nobody"]})),
        ("d", json!({"requires": ["c"]})),
        ("e", json!({"side_effect": "update"})),
    ]);
    assert_eq!(added.cards["新"].version, "2");
    let merged = merge(files.clone(), added);
    assert_eq!(ids(&merged), ["a", "d", "新"]);
    assert_eq!(merged.cards["a"].source, "r");
    let report: Vec<_> = merged.quarantined.iter().map(|q| (q.card.as_str(), q.source.as_str())).collect();
    assert_eq!(report, [("e", "put"), ("c", "put")]);
    assert!(merged.notices.iter().any(|n| n.contains("`a` from put is not served")));
    assert_eq!(merge(files.clone(), Registry::default()).cards, files.cards);
}

#[test]
fn a_put_card_has_to_say_which_of_two_tools_it_means() {
    let folder = Folder::new();
    let files = ["one", "two"].map(|name| folder.file(&format!("{name}.yaml"), &native(name, &[card("s", "")])));
    let files = load(&files, &[]).unwrap();
    let merged = merge(files, put(&[("p", json!({"fallback": "s"})), ("q", json!({"fallback": "two/s"}))]));
    assert_eq!(ids(&merged), ["one/s", "q", "two/s"]);
}

#[test]
fn a_put_over_what_is_served_replaces_and_reports_only_itself() {
    let folder = Folder::new();
    let text = native("r", &[card("a", ""), card("b", "    owner: 1\n")]);
    let current = load(&[folder.file("r.yaml", &text)], &[]).unwrap();
    let first = overlay(current, put(&[("x", json!({"owner": 1})), ("y", json!({"fallback": "b"}))]));
    let report = |registry: &Registry| registry.quarantined.iter().map(|q| q.card.clone()).collect::<Vec<_>>();
    assert_eq!(report(&first), ["b", "x"]);
    let second = overlay(first, put(&[("a", json!({"version": 9})), ("z", json!({"requires": ["no"]}))]));
    assert_eq!(ids(&second), ["a", "y"]);
    assert_eq!((second.cards["a"].version.as_str(), second.cards["a"].source.as_str()), ("9", "put"));
    assert_eq!(report(&second), ["b", "z"]);
}

#[test]
fn a_put_that_points_nowhere_leaves_what_it_was_to_replace() {
    let folder = Folder::new();
    let current = load(&[folder.file("r.yaml", &native("r", &[card("a", "")]))], &[]).unwrap();
    let first = overlay(current, put(&[("y", json!({"version": 1}))]));
    let second = overlay(first, put(&[("a", json!({"fallback": "no"})), ("y", json!({"requires": ["no"]}))]));
    assert_eq!(ids(&second), ["a", "y"]);
    assert_eq!((second.cards["a"].source.as_str(), second.cards["y"].version.as_str()), ("r", "1"));
    assert_eq!(second.quarantined.len(), 2);
}

#[test]
fn scopes_are_read_over_files_and_the_first_description_counts() {
    let folder = Folder::new();
    let scoped =
        |registry: &str, name: &str, scopes: &str| format!("scopes:\n{scopes}{}", native(registry, &[card(name, "")]));
    let one = "  - {name: \"refunds:write\", about: pay money back, granted_by: the refund desk}\n";
    let two = "  - {name: \"refunds:write\", about: something else}\n  - {name: \"orders:read\", abut: read orders}\n";
    let a = folder.file("a.yaml", &scoped("one", "pay", one));
    let b = folder.file("b.yaml", &scoped("two", "read", two));
    let registry = load(&[b.clone(), a], &[]).unwrap();
    let told = &registry.scopes[&Scope("refunds:write".into())];
    assert_eq!(told.about.as_deref(), Some("pay money back"));
    assert_eq!(told.granted_by.as_deref(), Some("the refund desk"));
    assert_eq!(registry.scopes[&Scope("orders:read".into())], ScopeInfo::default());
    let noticed = |part: &str| registry.notices.iter().any(|notice| notice.contains(part));
    assert!(noticed("two: the scope `refunds:write` is described differently"), "{:?}", registry.notices);
    let place = format!("{}: /scopes/1/abut on line 3: ", b.display());
    assert!(noticed(&place) && noticed("did you mean `about`"), "{:?}", registry.notices);

    let put = from_values(&[json!({"name": "new", "description": "New.", "side_effect": "read", "timeout_ms": 10,
        "permissions": []})]);
    let scopes = registry.scopes.clone();
    let over = overlay(registry.clone(), put.clone());
    assert_eq!((over.scopes, over.cards.len()), (scopes.clone(), 3));
    assert_eq!(merge(registry, put).scopes, scopes);
}
