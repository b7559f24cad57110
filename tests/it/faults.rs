//! A model that fails, callers in a hurry, more requests than there is room for, a log that cannot keep up.

use std::time::Duration;

use pointsman::decision::log::Target;
use pointsman::server::proto::RouteResponse;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::cache::until;
use crate::support::cli::{Served, WORDS_ALONE};
use crate::support::scripted_llm::{ScriptedLlm, Step, hang, status, status_with, text};
use crate::support::server::{TestServer, ask, called, declined, llm_settings, settings, trace};
use crate::support::{RegistryFile, shop};

const ORDER: &str = "SO-20260418000736";

async fn start(steps: impl IntoIterator<Item = Step>, flags: &[(&str, &str)]) -> (ScriptedLlm, TestServer) {
    let llm = ScriptedLlm::start(steps).await;
    let server = TestServer::start(llm_settings(llm.url(), flags)).await;
    (llm, server)
}

/// The local decider answered in place of the model.
#[track_caller]
fn check_fallback(answer: &RouteResponse) {
    assert_eq!(answer.decided_by, "local");
    assert_eq!(answer.degraded, ["llm_unavailable", "lexical_only"]);
    assert!(!trace(answer).stored);
}

#[tokio::test]
async fn without_the_model_reads_are_decided_and_writes_refused() {
    let refused = {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}/v1", port.local_addr().unwrap())
    };
    let failing = ScriptedLlm::start([status(500)]).await;
    let silent = ScriptedLlm::start([hang()]).await;
    let denied = ScriptedLlm::start([status(401)]).await;
    let further = |url: &str| format!("[{{base_url = \"{url}\"}}]");
    let (none, also_silent, also_refused) = ("[]".to_owned(), further(silent.url()), further(&refused));
    let downs = [
        (refused.as_str(), &none),
        (failing.url(), &none),
        (silent.url(), &none),
        (denied.url(), &none),
        (denied.url(), &also_silent),
        (failing.url(), &also_refused),
    ];
    for (url, further) in downs {
        let limits = [("llm.timeout_ms", "200"), ("llm.max_attempts", "2"), ("llm.breaker_failures", "100")];
        let flags = [&limits[..], &[("llm.endpoints", further.as_str())]].concat();
        let server = TestServer::start(llm_settings(url, &flags)).await;
        for utterance in [&format!("track_shipment {ORDER}"), &format!("我的快递 track_shipment {ORDER}")] {
            let answer = server.route(utterance).await.unwrap();
            check_fallback(&answer);
            assert_eq!(called(&answer), ("track_shipment", serde_json::json!({"order_id": ORDER})), "{url}");
        }
        for utterance in [&format!("urge_shipment {ORDER}"), "催一下发货", "chase the courier"] {
            let answer = server.route(utterance).await.unwrap();
            check_fallback(&answer);
            assert_eq!(declined(&answer), "not_allowed_degraded", "{url}: {utterance}");
        }
        let answer = server.route("给我讲个笑话").await.unwrap();
        check_fallback(&answer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_holds_whatever_the_model_does() {
    let steps = |script: &str| match script {
        "silence" => vec![hang()],
        "429, then silence" => vec![status(429), hang()],
        "429, much later" => vec![status_with(429, &[("retry-after", "60")], "{}")],
        _ => vec![text(""), hang()],
    };
    let time = Duration::from_secs(10);
    let mut running = JoinSet::new();
    for script in ["silence", "429, then silence", "429, much later", "a useless answer, then silence"] {
        let (llm, server) = start(steps(script), &[]).await;
        running.spawn(async move {
            let answer = server.ask_within(ask(&format!("track_shipment {ORDER}")), time).await.unwrap();
            // An answer that could be read stands, even if it only asks.
            if answer.decided_by == "local" {
                check_fallback(&answer);
                assert_eq!(called(&answer).0, "track_shipment");
            }
            (script, answer.decided_by, llm.calls())
        });
    }
    let mut decided: Vec<_> = running.join_all().await;
    decided.sort();
    let by: Vec<_> = decided.iter().map(|(script, by, ..)| (*script, by.as_str())).collect();
    let local = |script| (script, "local");
    assert_eq!(by[..2], [local("429, much later"), local("429, then silence")]);
    assert_eq!(by[3], local("silence"));
    // A pause beyond the deadline is not waited for: one call and no second.
    assert_eq!(decided.iter().map(|(.., calls)| *calls).collect::<Vec<_>>(), [1, 2, 2, 1]);

    // The configured limit is the most a caller gets.
    let (_llm, server) = start([hang()], &[("route.deadline_ms", "4000")]).await;
    let answer = server.ask_within(ask("track_shipment"), Duration::from_secs(60)).await;
    check_fallback(&answer.unwrap());
    let status = server.ask_within(ask("track_shipment"), Duration::from_micros(10)).await.unwrap_err();
    // Whether the client or the server notices first.
    assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()), "{status:?}");
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_exchange_with_the_model() {
    let (llm, server) = start([hang()], &[]).await;
    let mut router = server.router();
    let call = tokio::spawn(async move { router.route(ask("where is my parcel")).await });
    until(|| llm.calls() == 1).await;
    call.abort();
    until(|| llm.hung_up() == 1).await;
    assert_eq!(llm.calls(), 1);
}

#[tokio::test]
async fn a_full_house_refuses_at_once() {
    let (llm, server) = start([hang()], &[("route.max_in_flight", "1")]).await;
    let mut router = server.router();
    let call = tokio::spawn(async move { router.route(ask("where is my parcel")).await });
    until(|| llm.calls() == 1).await;
    for utterance in ["where is my parcel", "我有多少积分"] {
        let status: Status = server.route(utterance).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    }
    // The place is free again once its holder has left.
    call.abort();
    until(|| llm.hung_up() == 1).await;
    let answer = server.ask_within(ask("track_shipment"), Duration::from_millis(500)).await;
    assert_ne!(answer.err().map(|status| status.code()), Some(Code::ResourceExhausted));
}

#[tokio::test]
async fn each_decision_is_one_line_without_what_a_person_gave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    let mut with_log = settings(&[shop()]);
    with_log.pipeline.log.target = Target::File(path.clone());
    let server = TestServer::start(with_log).await;
    let said = [
        format!("get_order {ORDER}"),
        "我的手机号是13812345678，邮箱 li.lei@example.com，查 track_shipment SF1234567890".to_owned(),
        format!("SO-20260105000017 改寄到苏州市姑苏区人民路8号 update_order_address {ORDER}"),
        "tell me a joke".to_owned(),
        format!("get_order {ORDER}"),
    ];
    let mut answers = Vec::new();
    for utterance in &said {
        let request =
            pointsman::server::proto::RouteRequest { session_id: "session-of-li-lei".into(), ..ask(utterance) };
        answers.push(server.ask(request).await.unwrap());
    }
    server.stop();
    server.stopped().await.unwrap();
    let log = std::fs::read_to_string(&path).unwrap();
    for secret in [ORDER, "20260418000736", "SO-2026", "13812345678", "li.lei", "SF1234567890", "session-of"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), said.len());
    for (line, answer) in lines.iter().zip(&answers) {
        assert_eq!(line["decision_id"], answer.decision_id);
        assert_eq!(line["catalog_version"], answer.catalog_version);
        assert_eq!(line["trace_id"], answer.trace_id);
        assert_eq!(line["candidates"].as_array().unwrap().len(), answer.candidates.len());
        assert_eq!(line["session"].as_str().unwrap().len(), 16);
        for key in ["time", "utterance", "outcome", "decided_by", "confidence", "degraded", "timings_ms", "tokens"] {
            assert!(!line[key].is_null(), "{key}: {line}");
        }
    }
    assert_eq!(lines[0]["utterance"], "get_order <id>");
    assert_eq!(lines[0]["calls"][0]["tool"], "get_order");
    assert!(lines[0]["calls"][0]["arguments"]["order_id"].as_str().unwrap().starts_with("hash:"));
    assert_eq!(lines[0]["utterance_hash"], lines[4]["utterance_hash"], "equal utterances stay linked");
    assert_ne!(lines[0]["utterance_hash"], lines[3]["utterance_hash"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_keep_up_loses_lines_and_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("log.pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Open for both, so that neither side waits for the other; nobody reads.
    let held = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let registry = RegistryFile::of(&["track_parcel"]);
    let target = format!("log.decisions={}", pipe.display());
    let flags = ["--registry", registry.as_str(), "--set", &target, "--set", "log.queue=4"];
    let served = Served::start(&[&flags[..], &WORDS_ALONE[..]].concat());
    let mut router = served.router();
    for _ in 0..200 {
        let answer = router.route(ask("track_parcel")).await.unwrap().into_inner();
        assert_eq!(called(&answer).0, "track_parcel");
    }
    let metrics = served.http_get("/metrics").await;
    let count = |result: &str| -> u32 {
        let name = format!("pointsman_decision_log_lines_total{{result=\"{result}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{metrics}"));
        line.parse().unwrap()
    };
    assert!(count("dropped") > 0);
    assert_eq!(count("dropped") + count("queued"), 200);

    // Nor does it hold up the end.
    served.signal("TERM");
    let (code, log) = served.wait();
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("lines are dropped"), "{log}");
    drop(held);
}

#[tokio::test]
async fn a_half_open_connection_does_not_hold_up_others() {
    let server = TestServer::start(settings(&[shop()])).await;
    let idle = tokio::net::TcpStream::connect(server.grpc).await.unwrap();
    let mut garbage = tokio::net::TcpStream::connect(server.grpc).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut garbage, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(called(&server.route("track_shipment").await.unwrap()).0, "track_shipment");
    server.stop();
    server.stopped().await.unwrap();
    drop(idle);
}
