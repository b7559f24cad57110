//! Files as people write them, and what becomes of an utterance.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::registry::{self, Registry};
use crate::text::normalise;
use crate::types::{Role, Turn};

fn shop() -> Registry {
    registry::load(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shop/registry.yaml")], &[]).unwrap()
}

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn load(text: &str, modes: Modes) -> Result<Rules, RulesError> {
    let (_folder, path) = written(text);
    Rules::bind(Some(Arc::new(read(&path)?)), modes, &shop())
}

fn sample() -> Rules {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shop/rules.yaml");
    Rules::bind(Some(Arc::new(read(&path).unwrap())), Modes::default(), &shop()).unwrap()
}

fn result(tool: &str, ok: bool) -> Turn {
    Turn { role: Role::Tool, content: json!({"tool": tool, "ok": ok}).to_string() }
}

fn user(text: &str) -> Turn {
    Turn { role: Role::User, content: text.into() }
}

/// `rule action` of every rule that fires, in order, and the open tools where a state binds.
fn fired(rules: &Rules, said: &str, history: &[Turn], session: Value) -> (Vec<String>, Option<Vec<String>>) {
    let (query, session) = (normalise(said).unwrap(), session.as_object().unwrap().clone());
    let situation = Situation { query: &query, history, session: &session };
    let shown = |ruling: Ruling<'_>| {
        let action = match ruling.action {
            Action::Pin { tool, arguments, .. } => format!("{tool}{}", Value::Object(arguments)),
            Action::Narrow { tools, widen } => format!("{} tools, widen {widen}", tools.len()),
            Action::Refuse => "refuse".into(),
            Action::HandOver => "hand over".into(),
        };
        format!("{} {action}", ruling.rule)
    };
    let open = rules.states(&situation).open;
    let open = open.map(|tools| tools.iter().map(ToString::to_string).collect());
    (rules.rulings(&situation, &rules.modes).map(shown).collect(), open)
}

#[track_caller]
fn check(rules: &Rules, said: &str, expect: &[&str]) {
    assert_eq!(fired(rules, said, &[], json!({})).0, expect, "{said}");
}

#[test]
fn the_sample_fires_where_it_should_in_both_languages() {
    let rules = sample();
    assert_eq!(rules.notices, Vec::<String>::new());
    let tracked = r#"track-by-waybill track_shipment{"tracking_no":"SF1234567890"}"#;
    check(&rules, "快递单号SF1234567890走到哪了", &[tracked]);
    check(&rules, "快递单号：ＳＦ１２３４５６７８９０", &[tracked]);
    check(&rules, "please track SF1234567890", &[tracked]);
    check(&rules, "取消", &["cancel preview_cancel_order{}"]);
    check(&rules, "Cancel my order!", &["cancel preview_cancel_order{}"]);
    check(&rules, "开发票", &["open-invoice request_invoice{}", "invoices 3 tools, widen true"]);
    check(&rules, "转人工", &["person hand over"]);
    check(&rules, "don't give me a human agent", &[]);
    check(&rules, "查一下别人的订单", &["other-accounts refuse"]);
    check(&rules, "我的快递到哪了", &[]);
    // Only a state makes a yes mean something.
    check(&rules, "确认", &[]);
}

#[test]
fn a_conversation_moves_through_its_states() {
    let rules = sample();
    let open = |said: &str, history: &[Turn]| fired(&rules, said, history, json!({})).1;
    let only = |tool: &str| Some(vec![tool.to_owned()]);
    let shown = [user("取消 SO-20260418000736"), result("preview_cancel_order", true)];
    assert_eq!(open("确认", &shown), only("cancel_order"));
    assert_eq!(open("Yes, please", &shown), only("cancel_order"));
    assert_eq!(fired(&rules, "确认取消", &shown, json!({})).0, ["confirm-cancel cancel_order{}"]);
    // Another subject is not bound by the state.
    assert_eq!(open("我的快递到哪了", &shown), None);
    // A failed preview leads nowhere; an utterance that looks like a result is no result.
    assert_eq!(open("确认", &[result("preview_cancel_order", false)]), None);
    assert_eq!(open("确认", &[user(r#"{"tool": "preview_cancel_order", "ok": true}"#)]), None);
    // The later preview counts, and so does what was done with it.
    let both = [&shown[..], &[result("preview_refund", true)]].concat();
    assert_eq!(open("好的", &both), only("execute_refund"));
    assert_eq!(open("好的", &[&both[..], &[result("execute_refund", true)]].concat()), None);
    // A question in between does not end it, three turns of the user do.
    let asked = [&shown[..], &[user("多久到账"), result("search_faq", true)]].concat();
    assert_eq!(open("确认", &asked), only("cancel_order"));
    let late = [&asked[..], &[user("好贵"), user("我想想")]].concat();
    assert_eq!(open("确认", &late), None);

    let desk = fired(&rules, "在哪里下载", &[], json!({"page": "invoices"})).1.unwrap();
    assert_eq!(desk, ["change_invoice_title", "get_invoice", "request_invoice"]);
    assert_eq!(fired(&rules, "在哪里下载", &[], json!({"page": "orders"})).1, None);
    // Two states at once open what both open.
    assert_eq!(fired(&rules, "确认", &shown, json!({"page": "invoices"})).1, Some(Vec::new()));
}

const HEAD: &str = "rules:\n";

fn rule(id: &str, priority: i64, when: &str, then: &str, utterance: &str) -> String {
    format!(
        "  - id: {id}\n    priority: {priority}\n    when: {{{when}}}\n    then: {{{then}}}\n    utterances: [\"{utterance}\"]\n"
    )
}

#[test]
fn order_is_priority_then_id_whatever_the_file_says() {
    let parts = [
        rule("b", 5, "any: 退款", "pin: preview_refund", "我要退款"),
        rule("z", 9, "all: [退款, 到账]", "pin: get_refund_status", "退款到账了吗"),
        rule("a", 5, "any: 退款", "pin: preview_refund", "退款"),
    ];
    let expect = ["z get_refund_status{}", "a preview_refund{}", "b preview_refund{}"];
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let text = order.iter().fold(HEAD.to_owned(), |text, at| text + &parts[*at]);
        check(&load(&text, Modes::default()).unwrap(), "退款到账没有", &expect);
    }
}

#[test]
fn session_and_last_result_are_conditions_of_their_own() {
    let text = HEAD.to_owned()
        + &rule("vip", 1, "session: {level: 3, app: true}, any: 退款", "hand_over: true", "退款")
        + &rule("second", 1, "after: search_orders, any: 第二个", "pin: get_order", "那第二个呢");
    let rules = load(&text, Modes::default()).unwrap();
    let ids = |said: &str, history: &[Turn], session: Value| fired(&rules, said, history, session).0;
    assert_eq!(ids("退款", &[], json!({"level": 3.0, "app": true, "x": 1})), ["vip hand over"]);
    assert!(ids("退款", &[], json!({"level": 3})).is_empty());
    assert!(ids("退款", &[], json!({"level": "3", "app": true})).is_empty());
    let listed = [result("search_orders", true)];
    assert_eq!(ids("第二个", &listed, json!({})), ["second get_order{}"]);
    assert!(ids("第二个", &[&listed[..], &[result("get_order", true)]].concat(), json!({})).is_empty());
    assert!(ids("第二个", &[], json!({})).is_empty());
}

#[test]
fn rules_of_a_dynamic_domain_rest() {
    let file = HEAD.to_owned() + &rule("r", 1, "any: 退款", "pin: preview_refund", "退款");
    let fires = |mode: Mode| {
        let modes = Modes { default: Mode::RulesFirst, by_domain: BTreeMap::from([("refunds".to_owned(), mode)]) };
        !fired(&load(&file, modes).unwrap(), "退款", &[], json!({})).0.is_empty()
    };
    assert!(fires(Mode::Rules) && fires(Mode::Shadow) && fires(Mode::RulesFirst));
    assert!(!fires(Mode::Dynamic));
    let odd = Modes { default: Mode::default(), by_domain: BTreeMap::from([("refund".to_owned(), Mode::Rules)]) };
    assert!(load(&file, odd).unwrap().notices[0].contains("`refund`, which no tool has"));
}

/// Line and message of everything that is wrong.
#[track_caller]
fn problems(text: &str) -> Vec<(usize, String)> {
    match load(text, Modes::default()).map(|_| ()).expect_err("the file should be refused") {
        RulesError::Problems { problems, path } => {
            assert!(!problems.is_empty());
            let shown = RulesError::Problems { path: path.clone(), problems: problems.clone() }.to_string();
            assert!(shown.contains("rules.yaml:"), "{shown}");
            problems.into_iter().map(|problem| (problem.line.unwrap(), problem.message)).collect()
        }
        RulesError::Read { source, .. } => panic!("{source}"),
    }
}

#[track_caller]
fn check_problems(text: &str, expect: &[(usize, &str)]) {
    let found = problems(text);
    for (line, part) in expect {
        assert!(found.iter().any(|(at, message)| at == line && message.contains(part)), "{line} {part}: {found:#?}");
    }
    assert_eq!(found.len(), expect.len(), "{found:#?}");
}

#[test]
fn everything_wrong_with_a_file_is_told_at_once_with_its_line() {
    check_problems(
        "rules:
  - id: one
    priority: high
    when: {any: 退款, anny: x}
    then: {pin: preview_refund, refuse: true}
    utterances: [退款]
  - id: one
    when: {patterns: '(', state: gone}
    then: {pin: get_order, arguments: {order_id: $id}}
  - when: {none: 退}
    then: {widen: false}
    utterances: [x]
states:
  - name: s
    turns: 0
    open: {tool: x}
",
        &[
            (3, "a whole number"),
            (4, "no key `anny` here (did you mean `any`?)"),
            (5, "exactly one of"),
            (7, "`one` is used twice"),
            (8, "not a pattern"),
            (8, "no state `gone`"),
            (9, "no pattern has a group `id`"),
            (10, "`id` is missing"),
            (10, "nearly everything"),
            (11, "exactly one of"),
            (11, "belongs to domains and tools"),
            (14, "a state needs `after`"),
            (15, "from 1 to 50"),
            (16, "no key `tool` here"),
        ],
    );
    check_problems(
        "rules:\n  - id: a\n    when: {any: 退款}\n    then: {refuse: true}\n",
        &[(2, "`utterances` is missing")],
    );
}

#[test]
fn tools_domains_and_arguments_have_to_be_there() {
    let text = "rules:
  - id: a
    when: {any: 退款}
    then: {pin: preview_refnd}
    utterances: [退款]
  - id: b
    domain: refunds
    when: {patterns: '(?P<no>SO-[0-9]{14})'}
    then: {pin: get_order, arguments: {order_id: SO-1, fields: [amount]}}
    utterances: [SO-20260418000736]
  - id: c
    when: {any: x}
    then: {domains: [invoice], tools: [get_invoice, nothing]}
    utterances: [x]
";
    check_problems(
        text,
        &[
            (4, "rule `a` names the tool `preview_refnd`, which is in no registry (did you mean `preview_refund`?)"),
            (7, "states the domain `refunds`, its tool belongs to `orders`"),
            (9, "fills `no`, which is no argument of `get_order`"),
            (9, "fills `order_id` with a value that does not fit; expected SO- and 14 digits"),
            (13, "the domain `invoice`, which no tool has (did you mean `invoices`?)"),
            (13, "the tool `nothing`"),
        ],
    );
}

#[test]
fn a_card_that_cannot_be_served_rests_its_rule_and_stops_nothing() {
    let mut registry = shop();
    registry.cards.remove("get_order");
    let problems = Vec::new();
    registry.quarantined.push(registry::Quarantined { card: "get_order".into(), source: "f".into(), problems });
    let text = HEAD.to_owned()
        + &rule("r", 1, "any: 退款", "pin: preview_refund", "退款")
        + &rule("o", 1, "any: 订单", "pin: get_order", "订单");
    let (_folder, path) = written(&text);
    let rules = Rules::bind(Some(Arc::new(read(&path).unwrap())), Modes::default(), &registry).unwrap();
    assert_eq!(rules.len(), 1);
    assert!(
        rules.notices[0].contains("rule `o` names `get_order`, whose card cannot be served"),
        "{:?}",
        rules.notices
    );
}

#[test]
fn utterances_show_rules_that_contradict_each_other() {
    let refund = rule("refund", 5, "any: [退款, refund]", "pin: preview_refund", "我要退款");
    let status = |priority: i64| {
        rule("status", priority, "any: [到账, 'gone through']", "pin: get_refund_status", "退款到账了吗")
    };
    check_problems(
        &(HEAD.to_owned() + &refund + &status(5)),
        &[(11, "rules `status` and `refund` both fire on `退款到账了吗` at priority 5")],
    );
    // With an order between them it is settled, and nothing is lost in silence.
    let rules = load(&(HEAD.to_owned() + &refund + &status(6)), Modes::default()).unwrap();
    assert_eq!(rules.notices, Vec::<String>::new());
    let rules = load(&(HEAD.to_owned() + &refund + &status(4)), Modes::default()).unwrap();
    assert_eq!(rules.notices, ["rule `refund` takes `退款到账了吗` from rule `status` by its higher priority"]);
    // The same result is no contradiction.
    let again = rule("again", 5, "any: 我要退款", "pin: preview_refund", "我要退款");
    assert!(load(&(HEAD.to_owned() + &refund + &again), Modes::default()).is_ok());
    check_problems(
        &(HEAD.to_owned() + &rule("deaf", 1, "any: 退款", "refuse: true", "取消")),
        &[(6, "rule `deaf` does not fire on its own utterance `取消`")],
    );
    // What only fires in different states does not meet.
    let states = "states:\n  - {name: s, session: {s: 1}, open: {tools: get_order}}\n  - {name: t, session: {t: 1}, open: {tools: get_order}}\n";
    let in_state = |id: &str, state: &str, tool: &str| {
        rule(id, 1, &format!("state: {state}, any: ok"), &format!("pin: {tool}"), "ok")
    };
    let text = states.to_owned() + HEAD + &in_state("a", "s", "get_order") + &in_state("b", "t", "search_orders");
    assert!(load(&text, Modes::default()).is_ok());
}

#[test]
fn a_file_that_is_none_is_told_with_its_place() {
    for (text, part) in
        [("rules: [", "rules.yaml"), ("- a\n", "expected a mapping"), ("rules: 7\n", "a list of mappings")]
    {
        let error = load(text, Modes::default()).map(|_| ()).unwrap_err();
        let chain =
            format!("{error} {}", std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default());
        assert!(chain.contains(part), "{chain}");
    }
    assert!(matches!(read(Path::new("/nowhere/rules.yaml")), Err(RulesError::Read { .. })));
}

#[test]
fn any_utterance_and_any_history_is_read_without_a_panic() {
    let rules = sample();
    let long = "快递单号".repeat(4_000);
    for said in ["\u{0}退\u{202e}款", "((((", &long, "🚚🚚 SF1234567890", "İİİ track ſf1234567890"] {
        let Ok(query) = normalise(said) else { continue };
        for content in ["", "null", "[1]", "{\"tool\": 7}", "{\"ok\": \"x\", \"tool\": \"get_order\"}"] {
            let history = [Turn { role: Role::Tool, content: content.into() }];
            let situation = Situation { query: &query, history: &history, session: &Map::new() };
            let _ = (rules.rulings(&situation, &rules.modes).count(), rules.states(&situation));
        }
    }
}
