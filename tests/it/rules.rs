//! The rules skeleton from outside: start, reload, modes, states, and what is told of a rule.

use std::collections::BTreeSet;
use std::time::Duration;

use pointsman::decision::{DecidedBy, Decision};
use pointsman::pipeline::RouteRequest;
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::{self, DeleteRequest, ReloadRequest};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::cli::{self, Served, WORDS_ALONE};
use crate::support::scripted_llm::{ScriptedLlm, call, delay};
use crate::support::server::{
    TestServer, ask, called, candidates, declined, llm_settings, question_of, settings, trace,
};
use crate::support::shop::{self, Shop, called as call_in, request, result};
use crate::support::{RegistryFile, native};

const ORDER: &str = "SO-20260418000736";

fn sample() -> String {
    format!("{}/examples/shop/rules.yaml", env!("CARGO_MANIFEST_DIR"))
}

fn shop_file() -> String {
    crate::support::shop().display().to_string()
}

/// One rule a line: id, words, what to do.
fn rules(lines: &[(&str, &str, &str)]) -> String {
    lines.iter().fold("rules:\n".to_owned(), |text, (id, words, then)| {
        text + &format!("  - {{id: {id}, when: {{any: [{words}]}}, then: {{{then}}}, utterances: [{words}]}}\n")
    })
}

#[test]
fn a_file_that_cannot_be_used_fails_the_start_with_every_place() {
    let file = RegistryFile::new(
        "rules.yaml",
        &rules(&[
            ("a", "退款", "pin: preview_refnd"),
            ("b", "查单", "pin: get_order"),
            ("c", "发票", "domains: invoice"),
        ]),
    );
    for command in [&["serve"][..], &["route", "退款"]] {
        let flags = ["--registry", &shop_file(), "--rules", file.as_str()];
        let (code, out, err) = cli::run(&[command, &flags, &WORDS_ALONE].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        for part in ["rules.yaml:2: rule `a`", "did you mean `preview_refund`?", "rules.yaml:4: rule `c`"] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
    let (code, _, err) =
        cli::run(&[&["serve", "--registry", &shop_file(), "--rules", "no/such.yaml"], &WORDS_ALONE[..]].concat());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("no/such.yaml"), "{err}");
    let (code, _, err) = cli::run(
        &[&["serve", "--registry", &shop_file(), "--set", "rules.default_mode=rules"], &WORDS_ALONE[..]].concat(),
    );
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("rules.file"), "{err}");
}

#[tokio::test]
async fn a_reload_takes_the_file_anew_or_leaves_everything_as_it_is() {
    let registry = RegistryFile::of(&["track_parcel", "cancel_parcel", "water_plants"]);
    let file = RegistryFile::new("rules.yaml", &rules(&[("thirsty", "plants, 浇花", "pin: water_plants")]));
    let mut with_rules = settings(&[&registry.path]);
    with_rules.pipeline.rules.file = Some(file.path.clone());
    let server = TestServer::start(with_rules).await;
    let reload = async || server.registry().reload(ReloadRequest {}).await.map(tonic::Response::into_inner);
    let first = reload().await.unwrap().rules_version;
    assert_eq!(first.len(), 12);

    let by_rule = async |utterance: &str| {
        let answer = server.route(utterance).await.unwrap();
        (answer.decided_by.clone(), trace(&answer).rule.clone(), trace(&answer).cache.clone())
    };
    let thirsty = ("rule".to_owned(), "thirsty".to_owned(), "bypass".to_owned());
    assert_eq!(by_rule("the plants").await, thirsty);
    assert_eq!(by_rule("去浇花").await, thirsty);
    // No rule knows this one.
    let answer = server.route("track_parcel").await.unwrap();
    assert_eq!((called(&answer).0, trace(&answer).rule.as_str()), ("track_parcel", ""));

    for bad in [
        rules(&[("thirsty", "plants", "pin: water_flowers")]),
        rules(&[("a", "plants", "pin: water_plants"), ("b", "plants", "refuse: true")]),
        "rules: [".to_owned(),
        String::new(),
    ] {
        file.write(&bad);
        let status = reload().await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains("rules.yaml"), "{}", status.message());
        assert_eq!(by_rule("the plants").await, thirsty);
    }
    // A tool cannot go while a rule names it, whichever way it would.
    let gone = DeleteRequest { names: vec!["water_plants".into()] };
    let status = server.registry().delete(gone).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("rule `thirsty`"), "{}", status.message());
    file.write(&rules(&[("thirsty", "plants", "pin: water_plants")]));
    registry.write(&native(&["track_parcel", "cancel_parcel"]));
    assert_eq!(reload().await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(by_rule("the plants").await, thirsty);

    // Both together change at once.
    file.write(&rules(&[("lost", "parcel, track_parcel", "refuse: true")]));
    let change = reload().await.unwrap();
    assert_eq!(change.removed, ["water_plants"]);
    assert_ne!(change.rules_version, first);
    let answer = server.route("track_parcel").await.unwrap();
    assert_eq!((declined(&answer), trace(&answer).rule.as_str()), ("refused", "lost"));
    assert_eq!(answer.confidence, 1.0);
    file.write("rules: []\n");
    reload().await.unwrap();
    let answer = server.route("track_parcel").await.unwrap();
    assert_eq!((called(&answer).0, answer.decided_by.as_str()), ("track_parcel", "local"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_server_counts_logs_and_reloads() {
    let order = json!({"order_id": ORDER});
    let llm = ScriptedLlm::start([
        call("preview_refund", order.clone()),
        call("get_refund_status", order.clone()),
        call("preview_refund", json!({"order_id": ORDER, "amount": 30})),
        delay(200, call("preview_refund", order.clone())),
        call("no_tool", json!({"reason": "scripted"})),
    ])
    .await;
    let file = RegistryFile::new(
        "rules.yaml",
        "rules:\n  - {id: refund, when: {any: 退款}, then: {pin: preview_refund}, utterances: [退款]}\n  \
         - {id: person, when: {any: 人工}, then: {hand_over: true}, utterances: [人工]}\n",
    );
    let url = format!("llm.base_url={}", llm.url());
    let flags = ["--registry", &shop_file(), "--rules", file.as_str(), "--set", &url, "--set", "llm.model=scripted"];
    let modes = ["--set", "rules.modes={refunds = \"shadow\"}", "--set", "rules.shadow_wait_ms=60000"];
    let served = Served::start(&[&flags[..], &modes, &WORDS_ALONE].concat());
    let route = async |utterance: &str| {
        let options = Some(proto::RouteOptions { no_cache: true, max_calls: 1 });
        let request = proto::RouteRequest { options, ..ask(utterance) };
        served.router().route(request).await.unwrap().into_inner()
    };
    let refund = format!("{ORDER} 退款");
    for (agreement, tool) in
        [("same", "preview_refund"), ("different", "get_refund_status"), ("same_tool", "preview_refund")]
    {
        let answer = route(&refund).await;
        assert_eq!(called(&answer), ("preview_refund", order.clone()), "the rule answers");
        assert_eq!(
            (answer.decided_by.as_str(), trace(&answer).llm_calls, answer.tokens.unwrap().prompt),
            ("rule", 0, 0)
        );
        let shadow = trace(&answer).shadow.clone().unwrap();
        assert_eq!((shadow.agreement.as_str(), shadow.outcome.as_str()), (agreement, "call"));
        assert_eq!((shadow.tools, shadow.decided_by.as_str()), (vec![tool.to_owned()], "llm"));
    }
    let Some(Outcome::Handoff(handoff)) = route("转人工").await.outcome else { panic!("a handoff") };
    assert_eq!(handoff.reason, "policy");
    // Without a rule the model chooses among the other domains, and what it would do with this one is compared.
    let answer = route("where is my parcel").await;
    assert_eq!((answer.decided_by.as_str(), trace(&answer).rule.as_str()), ("llm", ""));
    assert!(candidates(&answer).iter().all(|tool| !tool.contains("refund")), "{:?}", candidates(&answer));
    assert!(trace(&answer).shadow.is_some());

    let metrics = served.http_get("/metrics").await;
    for line in [
        "pointsman_rule_decisions_total{rule=\"refund\"} 3",
        "pointsman_rule_decisions_total{rule=\"person\"} 1",
        "pointsman_rule_decisions_total{rule=\"none\"} 1",
        "pointsman_rule_shadows_total{domain=\"refunds\",result=\"same\"} 1",
        "pointsman_rule_shadows_total{domain=\"refunds\",result=\"same_tool\"} 1",
        "pointsman_rule_shadows_total{domain=\"refunds\",result=\"different\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }

    file.write("rules:\n  - {id: x, when: {any: x}, then: {pin: nobody}, utterances: [x]}\n");
    served.signal("HUP");
    for _ in 0..500 {
        if served.http_get("/metrics").await.contains("pointsman_catalog_reloads_total{result=\"failed\"} 1") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(route("人工").await.decided_by, "rule");
    served.signal("TERM");
    let (code, log) = served.wait();
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("reload failed") && log.contains("rules.yaml:2: rule `x` names the tool `nobody`"), "{log}");
    let records: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of_rule: Vec<&Value> = records.iter().filter(|record| record["rule"] == "refund").collect();
    assert_eq!(of_rule.len(), 3);
    assert_eq!(
        of_rule[1]["shadow"],
        json!({"agreement": "different", "outcome": "call", "tools": ["get_refund_status"], "decided_by": "llm"})
    );
    assert!(of_rule.iter().all(|record| record["rules_version"].as_str().unwrap().len() == 12));
    assert!(!log.contains(ORDER), "{log}");
}

#[tokio::test]
async fn an_answer_does_not_wait_for_a_slow_choice_beside_it() {
    let llm = ScriptedLlm::start([delay(300, call("preview_refund", json!({"order_id": ORDER})))]).await;
    let file = RegistryFile::new("rules.yaml", &rules(&[("refund", "退款", "pin: preview_refund")]));
    let flags = [
        ("llm.base_url", llm.url()),
        ("llm.model", "scripted"),
        ("rules.file", file.as_str()),
        ("rules.modes", "{refunds = \"shadow\"}"),
        ("rules.shadow_wait_ms", "0"),
        ("embed.allow_lexical_only", "true"),
        ("embed.models_dir", "does/not/exist"),
    ];
    let shop = Shop::start(&flags).await;
    let decision = shop.route(&format!("{ORDER} 退款")).await;
    assert_eq!(decision.trace.shadow.as_ref().unwrap().agreement.as_str(), "late");
    assert_eq!(decision.decided_by, DecidedBy::Rule);
    // What comes later is logged under the decision's id.
    let late = async || {
        for _ in 0..500 {
            let found = shop.written().into_iter().find(|record| record.get("shadow_of").is_some());
            if found.is_some() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    };
    let late = late().await.expect("the late choice is logged");
    assert_eq!(late["shadow_of"], decision.id.to_string());
    assert_eq!(
        (late["shadow"]["agreement"].as_str(), &late["shadow"]["tools"]),
        (Some("same"), &json!(["preview_refund"]))
    );
}

#[tokio::test]
async fn a_rule_opens_no_tool_to_anybody() {
    let scopes = [("server.scopes", "orders:read"), ("rules.file", &sample()), ("server.scopes", "shipments:read")];
    let llm = ScriptedLlm::start([call("no_tool", json!({"reason": "scripted"}))]).await;
    let server = TestServer::start(llm_settings(llm.url(), &scopes)).await;
    // The caller may not use the tools of invoices: neither the pin nor the narrowing fires, and nothing tells of them.
    let answer = server.route("开发票").await.unwrap();
    assert_eq!(
        (declined(&answer), trace(&answer).rule.as_str(), answer.decided_by.as_str()),
        ("nothing_fits", "", "llm")
    );
    assert!(!format!("{answer:?}").contains("invoice"), "{answer:?}");
    let answer = server.route("取消").await.unwrap();
    assert_eq!((question_of(&answer).tool.as_str(), answer.decided_by.as_str()), ("preview_cancel_order", "rule"));
    let narrowing = Some(proto::Narrowing { domains: vec!["logistics".into()], ..Default::default() });
    let answer = server.ask(proto::RouteRequest { narrowing, ..ask("取消") }).await.unwrap();
    assert_eq!((trace(&answer).rule.as_str(), answer.decided_by.as_str()), ("", "llm"));
}

#[tokio::test]
async fn rules_need_no_model_and_states_come_from_the_session_too() {
    let mut words = settings(&[crate::support::shop()]);
    words.pipeline.rules.file = Some(sample().into());
    let server = TestServer::start(words).await;
    let answer = server.route("转人工").await.unwrap();
    let Some(Outcome::Handoff(handoff)) = &answer.outcome else { panic!("{answer:?}") };
    assert_eq!((handoff.reason.as_str(), trace(&answer).rule.as_str()), ("policy", "person"));
    assert_eq!(declined(&server.route("show me someone else's address").await.unwrap()), "refused");
    let state = json!({"page": "invoices"});
    let session_state = Some(pointsman::server::wire::to_struct(state.as_object().unwrap()));
    let request = proto::RouteRequest { session_state, ..ask("where can I find it") };
    let answer = server.ask(request).await.unwrap();
    let mut found = candidates(&answer);
    found.sort_unstable();
    assert_eq!(found, ["change_invoice_title", "get_invoice", "request_invoice"]);
    assert_eq!(trace(&answer).states, ["invoice-desk"]);
}

/// Everything about a decision but what belongs to the one request and version.
fn lasting(decision: &Decision) -> String {
    let scores: Vec<_> = decision.candidates.iter().map(|candidate| (&candidate.tool, candidate.score)).collect();
    let trace = &decision.trace;
    format!(
        "{} {:?} {} {scores:?} {:?} {:?} {:?}",
        result(decision),
        decision.decided_by,
        decision.confidence,
        trace.shown,
        trace.rule,
        trace.domains
    )
}

#[tokio::test]
async fn the_same_request_two_hundred_times_over_reloads_and_orders_has_one_answer() {
    let text = std::fs::read_to_string(crate::support::shop()).unwrap();
    let (head, cards) = text.split_once("\ntools:\n").unwrap();
    let cards: Vec<String> =
        cards.split("  - name: ").skip(1).map(|card| format!("  - name: {}\n", card.trim_end())).collect();
    // A walk with a step that shares no factor with the number of cards visits each once.
    let shuffled = |seed: usize| {
        let steps = [1, 3, 5, 7, 9, 11, 15, 17];
        let order = (0..cards.len()).map(|at| (seed + at * steps[seed % steps.len()]) % cards.len());
        let cards: Vec<&str> = order.map(|at| cards[at].as_str()).collect();
        assert_eq!(cards.iter().collect::<BTreeSet<_>>().len(), 26);
        format!("{head}\ntools:\n{}", cards.concat())
    };
    let registry = RegistryFile::new("registry.yaml", &text);
    let rules = std::fs::read_to_string(sample()).unwrap();
    let file = RegistryFile::new("rules.yaml", &rules);
    let shop = Shop::of(&registry.path, &[("rules.file", file.as_str()), ("prefilter.strategy", "layered")]).await;
    let utterances = ["我的快递到哪了", "I want my money back", "改一下发票抬头", "那个东西帮我弄一下"];
    let mut answers: Vec<BTreeSet<String>> = vec![BTreeSet::new(); utterances.len()];
    for round in 0..200 {
        if round % 10 == 0 {
            registry.write(&shuffled(round / 10));
            shop.router.reload().await.unwrap();
        }
        for (seen, utterance) in answers.iter_mut().zip(utterances) {
            let request = RouteRequest { no_cache: round % 2 == 0, ..request(utterance) };
            seen.insert(lasting(&Decision { decided_by: DecidedBy::Local, ..shop.ask(request).await }));
        }
    }
    for (seen, utterance) in answers.iter().zip(utterances) {
        assert_eq!(seen.len(), 1, "{utterance}: {seen:#?}");
    }
    let tracked = shop.route("快递单号SF1234567890").await;
    assert_eq!(
        (call_in(&tracked).as_str(), tracked.decided_by),
        (r#"track_shipment{"tracking_no":"SF1234567890"}"#, DecidedBy::Rule)
    );
    assert_eq!(shop::settings(&[]).pipeline.rules.file, None);
}
