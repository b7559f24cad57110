//! `pointsman why`: one case for each stage, in both languages, by words alone over the sample registry.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::cli::{self, WORDS_ALONE};
use crate::support::{RegistryFile, shop};

const ORDER: &str = "SO-20260418000736";
const PREVIEWED: &str = r#"{"role":"user","content":"取消SO-20260418000736"}
{"role":"tool","content":"{\"tool\":\"preview_cancel_order\",\"ok\":true,\"data\":{\"order_id\":\"SO-20260418000736\",\"confirm_token\":\"ct_ab12cd34ef56gh78\"}}"}
{"role":"assistant","content":"将取消订单，不能恢复。确认吗？"}"#;

fn run(tool: &str, utterance: &str, more: &[&str]) -> (i32, String, String) {
    let file = shop().display().to_string();
    let fixed = ["why", tool, utterance, "--registry", &file];
    cli::run(&[&fixed[..], &WORDS_ALONE[..], more].concat())
}

#[track_caller]
fn explained(tool: &str, utterance: &str, more: &[&str]) -> Value {
    let (code, out, err) = run(tool, utterance, &[more, &["--format", "json"]].concat());
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.lines().count(), 1, "{out}");
    let why: Value = serde_json::from_str(&out).unwrap();
    let keys: Vec<&str> = why.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys.len(), 7, "{keys:?}");
    assert_eq!(why["tool"], tool);
    why
}

/// Compares with a file; `BLESS=1` writes it anew.
#[track_caller]
fn golden(name: &str, tool: &str, utterance: &str, more: &[&str]) {
    let (code, out, err) = run(tool, utterance, more);
    assert_eq!(code, 0, "{err}");
    assert!(!out.contains('\x1b'), "colours belong to a terminal");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/why/{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &out).unwrap();
    }
    assert_eq!(out, std::fs::read_to_string(&path).unwrap_or_default(), "{name}");
}

#[test]
fn a_tool_that_is_not_open_says_what_keeps_it_out() {
    let obstacles = |why: &Value| why["obstacles"].clone();
    let obstacle = |kind: &str, value: &str| json!([{"kind": kind, "value": value}]);

    let why = explained("cancel_order", "确认取消", &[]);
    assert_eq!((&why["stage"], obstacles(&why)), (&json!("eligibility"), obstacle("preview", "preview_cancel_order")));
    assert!(why["rank"].is_null() && why["decider"].is_null() && why["arguments"].is_null(), "{why}");

    let scopes = ["--set", "server.scopes=orders:read"];
    let why = explained("get_refund_status", "where is my refund", &scopes);
    assert_eq!(obstacles(&why), obstacle("scope", "refunds:read"));
    let why = explained("get_order", "订单状态", &["--domain", "refunds"]);
    assert_eq!(obstacles(&why), obstacle("domain", "orders"));
    let why = explained("get_order", "order status", &["--only", "search_faq"]);
    assert_eq!(obstacles(&why), obstacle("only", ""));
    let why = explained("get_order", "order status", &["--tag", "vip", "--only", "get_stock"]);
    assert_eq!(why["obstacles"].as_array().unwrap().len(), 2, "{why}");
    golden("eligibility", "cancel_order", "确认取消", &[]);
}

#[test]
fn rank_and_order_say_by_how_much_it_was_missed() {
    for (tool, utterance) in [("issue_coupon", "我的快递到哪了"), ("issue_coupon", "where is my parcel now")] {
        let why = explained(tool, utterance, &[]);
        assert_eq!(why["stage"], "rank", "{why}");
        let rank = &why["rank"];
        let number = |value: &Value| value.as_f64().unwrap();
        let behind = number(&rank["last"]["score"]) - number(&rank["own"]["score"]);
        assert!((behind - number(&rank["missed_by"])).abs() < 1e-3 && behind >= 0.0, "{rank}");
        for place in ["own", "last", "first"] {
            let signals = rank[place]["signals"].as_array().unwrap();
            let sum: f64 = signals.iter().map(|signal| number(&signal["contribution"])).sum();
            assert!((sum - number(&rank[place]["score"])).abs() < 1e-2, "{rank}");
        }
        assert_eq!(rank["last"]["place"], rank["shortlist"]);
        assert!(rank["own"]["place"].as_u64() > rank["longest"].as_u64(), "{rank}");
        assert!(why["decider"].is_null() && why["arguments"].is_null(), "{why}");
    }
    // The same tool on a list that could be longer than it is.
    let long = ["--set", "prefilter.shortlist_min=1", "--set", "prefilter.shortlist_max=25"];
    let why = explained("issue_coupon", "我的快递到哪了", &long);
    assert_eq!(why["stage"], "order", "{why}");
    golden("rank", "issue_coupon", "我的快递到哪了", &[]);
    golden("order", "issue_coupon", "where is my parcel now", &long);
}

#[test]
fn decider_arguments_and_choice() {
    let named = format!("get_order {ORDER}");
    let why = explained("get_order", &named, &[]);
    assert_eq!((&why["stage"], &why["arguments"]["known"]["order_id"]), (&json!("chosen"), &json!(ORDER)));
    assert_eq!(why["decider"]["own"], why["decider"]["chosen"]);

    let second = explained("get_order", &named, &[])["rank"]["last"]["tool"].as_str().unwrap().to_owned();
    let why = explained(&second, &named, &[]);
    assert_eq!((&why["stage"], &why["decider"]["tool"]), (&json!("decider"), &json!("get_order")), "{why}");
    let total = |which: &str| why["decider"][which]["total"].as_f64().unwrap();
    assert!(total("chosen") > total("own"), "{why}");

    let why = explained("urge_shipment", "催一下发货", &[]);
    assert_eq!((&why["stage"], &why["arguments"]["missing"]), (&json!("arguments"), &json!(["order_id"])));
    let why = explained("urge_shipment", "urge_shipment please, order SO-2026", &[]);
    assert_eq!((&why["stage"], &why["arguments"]["missing"]), (&json!("arguments"), &json!(["order_id"])), "{why}");

    // After the preview the tool is open, and consent is enough.
    let turns = RegistryFile::new("turns.jsonl", PREVIEWED);
    let why = explained("cancel_order", "就这么办", &["--history", turns.as_str()]);
    assert_eq!((&why["stage"], &why["obstacles"]), (&json!("chosen"), &json!([])), "{why}");
    // The token belongs to another order.
    let other = "确认取消SO-20260418000999";
    let why = explained("cancel_order", other, &["--history", turns.as_str()]);
    assert_eq!(why["stage"], "decider", "{why}");

    golden("decider", &second, &named, &[]);
    golden("arguments", "urge_shipment", "催一下发货", &[]);
    golden("chosen", "cancel_order", "就这么办", &["--history", turns.as_str()]);
}

#[test]
fn an_unknown_tool_names_its_nearest() {
    let (code, out, err) = run("get_ordr", "订单状态", &[]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("there is no tool `get_ordr`"), "{err}");
    assert!(err.contains("help: the nearest names are get_order, "), "{err}");
    let (code, _, err) = run("get_order", " ", &[]);
    assert_eq!(code, 2);
    assert!(err.contains("the utterance is empty"), "{err}");
}
