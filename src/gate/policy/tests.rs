use proptest::prelude::*;
use serde_json::json;

use super::*;

fn policy(text: &str) -> Result<Policy, String> {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Policy::read(file.path()).map_err(|error| error.to_string())
}

fn rules(text: &str) -> Policy {
    policy(&format!("policy: test\nversion: 1\nrules:\n{text}")).unwrap()
}

/// Friday, 1 December 2017, 00:00 UTC.
const FRIDAY: i64 = 1_512_086_400_000;

fn judge_at(policy: &Policy, arguments: Value, now: i64) -> Ruling {
    let mut card = ToolCard::reading("pay", json!({"type": "object"}));
    card.side_effect = SideEffect::Destructive;
    let caller = Caller::with_scopes("acme", [Scope("pay".into())]).named("bot");
    policy.judge(&Question {
        caller: &caller,
        card: &card,
        registry: &Registry::default(),
        arguments: arguments.as_object().unwrap(),
        conversation: "c1",
        now: UnixMs(now),
    })
}

fn judge(policy: &Policy, arguments: Value) -> Ruling {
    judge_at(policy, arguments, FRIDAY)
}

fn denied(ruling: Ruling) -> Problem {
    match ruling {
        Ruling::Deny(problem) => problem,
        other => panic!("not denied: {other:?}"),
    }
}

const UP_TO_500: &str = "  - {id: small, tools: [pay], limits: {amount: {max: 500}}, then: deny, ask: the lead, \
                         reason: {en: too much, zh: 金额过大}}\n";

#[test]
fn a_limit_is_kept_or_told() {
    let policy = rules(UP_TO_500);
    for fine in [json!({"amount": 500}), json!({"amount": "5e2"}), json!({}), json!({"amount": "５００"})] {
        assert_eq!(judge(&policy, fine.clone()), Ruling::Allow, "{fine}");
    }
    for much in
        [json!(501), json!("501"), json!(1e300), json!("NaN"), json!([1]), json!("五百"), json!(true), json!("５０１")]
    {
        let problem = denied(judge(&policy, json!({"amount": much})));
        assert_eq!((problem.code.as_str(), problem.repairable), ("POLICY_DENIED", true), "{much}");
        assert_eq!((problem.fields[0].path.as_str(), problem.fields[0].expected.as_str()), ("/amount", "at most 500"));
        assert!(problem.message.contains("`small`") && problem.message.contains("金额过大"), "{}", problem.message);
        assert_eq!(problem.suggestion.as_deref(), Some("the lead can allow it"));
    }
}

#[test]
fn values_are_compared_by_what_they_mean() {
    let allowed = rules("  - {id: a, limits: {to.kind: {allowed: [自提, courier, 3]}}, then: deny}\n");
    for (kind, fits) in [
        (json!("自提"), true),
        (json!(" ｃｏｕｒｉｅｒ "), true),
        (json!(3.0), true),
        (json!("门店"), false),
        (json!(null), true),
    ] {
        assert_eq!(judge(&allowed, json!({"to": {"kind": kind}})) == Ruling::Allow, fits, "{kind}");
    }
    let rest = rules("  - {id: a, limits: {x: {forbidden: [a], max_length: 2, present: true}}, then: deny}\n");
    for (x, fits) in
        [(json!("b"), true), (json!("a"), false), (json!("长长长"), false), (json!(["a"]), false), (json!(null), false)]
    {
        assert_eq!(judge(&rest, json!({"x": x})) == Ruling::Allow, fits, "{x}");
    }
}

#[test]
fn the_first_rule_that_applies_decides() {
    let policy = rules(
        "  - {id: none, tenants: [globex], then: deny}\n  - {id: vip, callers: [bot], arguments: {vip: {allowed: [true]}}, then: allow}\n  \
         - {id: half, tools: [\"pa*\"], classes: [destructive], without: [audit], then: second_person, scope: pay:approve}\n",
    );
    assert_eq!(judge(&policy, json!({"vip": true})), Ruling::Allow);
    let second_person = Some(Scope("pay:approve".into()));
    assert_eq!(judge(&policy, json!({"vip": false})), Ruling::Confirm { second_person });
}

#[test]
fn hours_are_those_of_the_offset_and_may_pass_midnight() {
    let policy = rules(
        "  - {id: night, time: {days: [fri], from: \"22:00\", to: \"07:00\", offset: \"+08:00\"}, then: confirm}\n",
    );
    let at = |hours: i64| judge_at(&policy, json!({}), FRIDAY + hours * 3_600_000) != Ruling::Allow;
    // 00:00 UTC on Friday is 08:00 in the offset.
    assert!(!at(0) && !at(13) && at(14) && at(22) && !at(23));
    assert!(!at(14 + 24), "Saturday evening");
    assert!(!at(-2), "the night from Thursday");
}

#[test]
fn a_missing_scope_says_who_grants_it() {
    let mut card = ToolCard::reading("pay", json!({"type": "object"}));
    card.scopes = vec![Scope("pay".into()), Scope("refunds:write".into())];
    let mut registry = Registry::default();
    let info = crate::registry::ScopeInfo { about: Some("退款".into()), granted_by: Some("财务主管".into()) };
    registry.scopes.insert(Scope("refunds:write".into()), info);
    let caller = Caller::with_scopes("acme", [Scope("pay".into())]);
    let arguments = Map::new();
    let question = Question {
        caller: &caller,
        card: &card,
        registry: &registry,
        arguments: &arguments,
        conversation: "",
        now: UnixMs(0),
    };
    let problem = denied(Policy::none().judge(&question));
    assert_eq!((problem.code.as_str(), problem.retryable, problem.repairable), ("PERMISSION_DENIED", false, false));
    assert_eq!(problem.message, "the caller lacks `refunds:write` (退款)");
    assert_eq!(problem.suggestion.as_deref(), Some("财务主管 can grant `refunds:write`"));
    let foreign = ToolCard { tenants: vec!["globex".into()], ..card.clone() };
    assert_eq!(denied(Policy::none().judge(&Question { card: &foreign, ..question })).code.as_str(), "UNKNOWN_TOOL");
}

#[test]
fn every_fault_of_a_file_is_told_with_its_line() {
    let error = policy(
        "policy: x\nversion: 1\nrules:\n  - {id: a, then: denied}\n  - {id: a, then: deny, tool: [x]}\n  - {then: second_person}\n  \
         - {id: b, then: deny, limits: {amount: {most: 3}}}\n  - {id: a, then: allow, tools: []}\n  - {id: c, then: deny, time: {from: \"25:00\"}}\n  \
         - {id: d, then: confirm, scope: x}\n",
    )
    .unwrap_err();
    for part in [
        "line 4",
        "denied",
        "no key `tool` here (did you mean `tools`?)",
        "/rules/2/id",
        "no key `most`",
        "another rule has the id `a`",
        "an empty list",
        "/rules/5/time/from",
        "`scope` goes with",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let named = rules("  - {id: a, tools: [pya], then: deny}\n");
    let mut registry = Registry::default();
    let card = ToolCard::reading("pay", json!({}));
    registry.cards.insert(card.id.clone(), std::sync::Arc::new(card));
    let error = named.check(&registry).unwrap_err().to_string();
    assert!(error.contains("rule `a` names no tool: `pya` (did you mean `pay`?)"), "{error}");
    assert!(policy("rules: []\n").unwrap().version() != rules(UP_TO_500).version());
}

proptest! {
    #[test]
    fn no_form_of_a_number_passes_a_limit_it_breaks(amount in -1e12f64..1e12, text: bool, wide: bool) {
        let shown = if wide { format!("{amount:e}") } else { format!("{amount}") };
        let value = if text { json!(shown) } else { json!(amount) };
        let allowed = judge(&rules(UP_TO_500), json!({"amount": value})) == Ruling::Allow;
        prop_assert_eq!(allowed, amount <= 500.0, "{}", value);
    }

    #[test]
    fn other_arguments_change_nothing(name in "[a-z退款.~/]{0,8}", value in ".{0,20}") {
        let policy = rules(UP_TO_500);
        let mut arguments = json!({"amount": 501});
        if name != "amount" {
            arguments[name] = json!(value);
        }
        prop_assert!(matches!(judge(&policy, arguments), Ruling::Deny(_)));
    }
}
