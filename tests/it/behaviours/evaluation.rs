//! Evaluation and tests.

use pointsman::pipeline::RouteRequest;
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::{self, RouteResponse};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::RegistryFile;
use crate::support::cli::{self, WORDS_ALONE};
use crate::support::scripted_llm::{ScriptedLlm, call};
use crate::support::server::TestServer;
use crate::support::shop::{Shop, dev_rows, result, settings, uncached};

/// Labels that are wrong on purpose, so that the wrong choices are known: names decide by words alone.
const MISLABELLED: &str = r#"{"id":"1","query":"get_order SO-20260418000736","gold":["track_shipment"]}
{"id":"2","query":"track_shipment SO-20260418000736 到哪了","gold":["track_shipment"]}
{"id":"3","query":"get_order SO-20260418000737 现在怎样","gold":["track_shipment"]}
{"id":"4","query":"get_order SO-20260418000738","gold":[]}
{"id":"5","query":"zzz qqq","gold":["get_order"]}"#;

#[test]
fn sb_063_wrong_choices_are_grouped_by_pair() {
    let queries = RegistryFile::new("queries.jsonl", MISLABELLED);
    let registry = crate::support::shop().display().to_string();
    let run = |more: &[&str]| {
        let fixed = ["eval", "--registry", &registry, "--queries", queries.as_str()];
        cli::run(&[&fixed[..], &WORDS_ALONE[..], more].concat())
    };
    let (code, out, err) = run(&["--confusions", "--format", "json"]);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let sentence = |id: &str, query: &str| json!({"id": id, "query": query});
    let pair = |gold: Option<&str>, chosen: Option<&str>, did: &str, sentences: &[Value]| json!({"gold": gold, "chosen": chosen, "did": did, "count": sentences.len(), "sentences": sentences});
    let twice = [sentence("1", "get_order SO-20260418000736"), sentence("3", "get_order SO-20260418000737 现在怎样")];
    let pairs = [
        pair(Some("track_shipment"), Some("get_order"), "tool", &twice),
        pair(None, Some("get_order"), "tool", &[sentence("4", "get_order SO-20260418000738")]),
        pair(Some("get_order"), None, "no_tool", &[sentence("5", "zzz qqq")]),
    ];
    assert_eq!(report["confusions"], json!({"wrong": 4, "judged": 5, "pairs": pairs}));

    let (_, text, _) = run(&["--confusions"]);
    let expect = "wrong choices: 4 of 5 rows\n    2  track_shipment -> get_order\n       1  get_order SO-20260418000736\n       3  ";
    assert!(text.contains(expect), "{text}");
    // Only where asked for, and only where tools are chosen.
    let (_, plain, _) = run(&[]);
    assert!(!plain.contains("wrong choices"), "{plain}");
    let (code, _, err) = run(&["--confusions", "--stage", "prefilter"]);
    assert_eq!(code, 2, "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sb_065_a_wrong_tool_goes_on_the_list_and_is_not_asked_about_again() {
    // Valid arguments of the wrong tool: no retry of ours would find out.
    let llm = ScriptedLlm::start([call("list_coupons", json!({}))]).await;
    let queries = RegistryFile::new(
        "queries.jsonl",
        "{\"id\":\"zh\",\"query\":\"我有多少积分\",\"gold\":[\"get_account_overview\"]}\n\
         {\"id\":\"en\",\"query\":\"how many points do I have\",\"gold\":[\"get_account_overview\"]}\n",
    );
    let registry = crate::support::shop().display().to_string();
    let url = format!("llm.base_url={}", llm.url());
    let (code, out, err) = tokio::task::spawn_blocking(move || {
        let fixed =
            ["eval", "--registry", &registry, "--queries", queries.as_str(), "--confusions", "--format", "json"];
        cli::run(&[&fixed[..], &WORDS_ALONE[..], &["--set", &url, "--set", "llm.model=scripted"]].concat())
    })
    .await
    .unwrap();
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let pair = &report["confusions"]["pairs"][0];
    assert_eq!((&pair["gold"], &pair["chosen"]), (&json!("get_account_overview"), &json!("list_coupons")));
    assert_eq!((&pair["count"], pair["sentences"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!(llm.calls(), 2, "one question a row");
}

#[tokio::test]
async fn sb_165_edge_inputs_get_readable_answers() {
    let server = TestServer::start(settings(&[])).await;
    let empty = server.route("").await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument);
    assert!(empty.message().starts_with("utterance: must not be empty"), "{}", empty.message());

    let long = server.route(&"我的快递到哪了呢，".repeat(20_000 / 9 + 1)).await.unwrap();
    assert!(long.outcome.is_some());
    assert!(long.degraded.contains(&"truncated_input".to_owned()), "{:?}", long.degraded);

    for injected in ["'; DROP TABLE", "'; DROP TABLE orders; --", "\" OR 1=1 --", "{{7*7}}\u{0}\u{202e}"] {
        let answer = server.route(injected).await.unwrap();
        assert_no_foreign_data(injected, &answer);
    }
    // The server is as it was.
    let answer = server.route("我的快递到哪了呀").await.unwrap();
    assert!(matches!(answer.outcome, Some(Outcome::Call(_))), "{answer:?}");
}

/// Every value in the answer is a default, comes from a closed set, or stands in the utterance itself.
fn assert_no_foreign_data(utterance: &str, answer: &RouteResponse) {
    let calls = match answer.outcome.as_ref().unwrap() {
        Outcome::Call(call) => call.calls.as_slice(),
        Outcome::Clarify(_) | Outcome::NoTool(_) | Outcome::Handoff(_) => &[],
    };
    for proto::PlannedCall { tool, arguments_json, origins, .. } in calls {
        let arguments: Value = serde_json::from_str(arguments_json).unwrap();
        for (name, value) in arguments.as_object().unwrap() {
            let said = value.as_str().is_some_and(|text| utterance.contains(text));
            let known = matches!(origins[name].as_str(), "default" | "enum_text");
            assert!(said || known, "{utterance}: {tool} {arguments}");
        }
    }
}

#[tokio::test]
async fn sb_168_a_restart_changes_no_decision() {
    let rows = dev_rows();
    assert_eq!(rows.len(), 264);
    let mut runs = Vec::new();
    for _ in 0..2 {
        let shop = Shop::start(&[]).await;
        let mut run = Vec::new();
        for row in &rows {
            let decision = shop.ask(RouteRequest { history: row.history.clone(), ..uncached(&row.utterance) }).await;
            run.push((row.id.as_str(), result(&decision).to_string()));
        }
        shop.router.shutdown().await;
        runs.push(run);
    }
    let differences: Vec<_> = runs[0].iter().zip(&runs[1]).filter(|(first, second)| first != second).collect();
    assert!(differences.is_empty(), "{differences:?}");
}
