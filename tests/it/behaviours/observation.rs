//! Observation and metrics.

use pointsman::server::proto::RouteRequest;
use pointsman::server::proto::router_client::RouterClient;
use serde_json::{Value, json};
use tonic::Request;

use crate::support::cli::Served;
use crate::support::scripted_llm::{ScriptedLlm, call, calls, half_body, status};
use crate::support::shop::{Shop, the_call, uncached, vectors};

#[tokio::test]
async fn sb_155_arguments_are_logged_as_hashes() {
    let home = "南京市玄武区珠江路88号5栋602";
    let update = |address: &str| call("update_default_address", json!({"address": address}));
    let llm = ScriptedLlm::start([update(home), update(home), update("西安市雁塔区科技路20号")]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    for utterance in [
        "搬家啦,以后东西都寄到南京市玄武区珠江路88号5栋602",
        "默认地址改成南京市玄武区珠江路88号5栋602",
        "默认地址改成西安市雁塔区科技路20号",
    ] {
        assert_eq!(the_call(&shop.ask(uncached(utterance)).await).tool.as_str(), "update_default_address");
    }
    let text = shop.log_text().await;
    for part in ["南京", "玄武", "珠江路", "5栋", "西安", "雁塔", "科技路"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hashes: Vec<&Value> = records.iter().map(|record| &record["calls"][0]["arguments_hash"]).collect();
    assert!(hashes[0].is_string() && hashes[0] == hashes[1] && hashes[1] != hashes[2], "{hashes:?}");
    assert!(records[0]["calls"][0]["arguments"]["address"].as_str().unwrap().starts_with("hash:"));
}

/// A model that fails at every attempt: retries, the breaker and the local decider all leave their lines.
#[tokio::test(flavor = "multi_thread")]
async fn sb_156_one_trace_id_runs_through_all_records_of_a_request() {
    let script = [status(500), half_body(), status(503), call("get_order", json!({"order_id": "SO-1"})), status(500)];
    let llm = ScriptedLlm::start(script).await;
    let shop = crate::support::shop();
    let sets = [
        format!("llm.base_url={}", llm.url()),
        "llm.model=scripted".into(),
        "log.level=warn,pointsman=debug".into(),
        "log.format=json".into(),
        format!("store.path={}", vectors().display()),
    ];
    let mut args = vec!["--registry", shop.to_str().unwrap()];
    args.extend(sets.iter().flat_map(|set| ["--set", set.as_str()]));
    let served = Served::start(&args);

    let mut router = RouterClient::connect(format!("http://{}", served.grpc)).await.unwrap();
    let ids = ["4bf92f3577b34da6a3ce929d0e0e4736", "5bf92f3577b34da6a3ce929d0e0e4737"];
    for id in ids {
        let message = RouteRequest { utterance: "SO-20260418000736 付了多少".into(), ..RouteRequest::default() };
        let mut request = Request::new(message);
        request.metadata_mut().insert("traceparent", format!("00-{id}-00f067aa0ba902b7-01").parse().unwrap());
        let answer = router.route(request).await.unwrap().into_inner();
        assert_eq!(answer.trace_id, id);
    }
    served.signal("TERM");
    let (code, log) = served.wait();
    assert_eq!(code, 0, "{log}");

    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let trace_of = |line: &Value| {
        let id = if line["decision_id"].is_string() { &line["trace_id"] } else { &line["span"]["trace_id"] };
        id.as_str().map(str::to_owned)
    };
    let with = |line: &Value, word: &str| line["fields"]["message"].as_str().is_some_and(|text| text.contains(word));
    for id in ids {
        let own: Vec<&Value> = lines.iter().filter(|line| trace_of(line).as_deref() == Some(id)).collect();
        assert!(own.iter().any(|line| line["decision_id"].is_string()), "the record of {id}: {log}");
        assert!(own.iter().any(|line| with(line, "LLM attempt failed")), "the retries of {id}: {log}");
    }
    // Nothing that speaks of the decider stands outside a request.
    let stray: Vec<&Value> = lines
        .iter()
        .filter(|line| with(line, "LLM") || line["decision_id"].is_string())
        .filter(|line| trace_of(line).is_none_or(|id| !ids.contains(&id.as_str())))
        .collect();
    assert!(stray.is_empty(), "{stray:?}");
    assert!(lines.iter().any(|line| with(line, "the local decider answers")), "{log}");
}

#[tokio::test]
async fn sb_157_rejected_fields_and_attempts_are_logged() {
    let get = |id: &str| call("get_order", json!({"order_id": id}));
    let good = calls(&[("get_order", json!({"order_id": "SO-20260418000736"}))]);
    let llm = ScriptedLlm::start([get("SO-1"), get("SO-22"), good]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    let decision = shop.route("SO-20260418000736 付了多少").await;
    assert_eq!(the_call(&decision).tool.as_str(), "get_order");
    let records = shop.records().await;
    let attempts: Vec<(u64, &Value)> = records[0]["repairs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|repair| (repair["attempt"].as_u64().unwrap(), &repair["fields"]))
        .collect();
    let order_id = json!(["/order_id"]);
    assert_eq!(attempts, [(1, &order_id), (2, &order_id)]);
}
