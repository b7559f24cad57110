//! How the program ends, and that it starts again.

use std::time::Duration;

use pointsman::server::proto::{DeleteRequest, ListRequest, PutRequest};
use pointsman::server::wire::to_struct;
use serde_json::json;
use tonic::Code;

use crate::cache::until;
use crate::support::RegistryFile;
use crate::support::cli::{Served, WORDS_ALONE};
use crate::support::scripted_llm::{ScriptedLlm, Step, call, delay, hang};
use crate::support::server::{ask, called};

async fn serve_with(step: Step, registry: &RegistryFile, more: &[&str]) -> (ScriptedLlm, Served) {
    let llm = ScriptedLlm::start([step]).await;
    let url = format!("llm.base_url={}", llm.url());
    let flags = ["--registry", registry.as_str(), "--set", &url, "--set", "llm.model=scripted"];
    let served = tokio::task::block_in_place(|| Served::start(&[&flags[..], more, &WORDS_ALONE[..]].concat()));
    (llm, served)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_lets_what_is_in_work_finish() {
    let registry = RegistryFile::of(&["track_parcel"]);
    for signal in ["TERM", "INT"] {
        let (llm, served) = serve_with(delay(1_000, call("track_parcel", json!({}))), &registry, &[]).await;
        let mut router = served.router();
        let request = tokio::spawn(async move { router.route(ask("where is my parcel")).await });
        until(|| llm.calls() == 1).await;
        served.signal(signal);
        let answer = request.await.unwrap().unwrap().into_inner();
        assert_eq!((called(&answer).0, answer.decided_by.as_str()), ("track_parcel", "llm"), "{signal}");
        let grpc = served.grpc.clone();
        let (code, log) = tokio::task::block_in_place(|| served.wait());
        assert_eq!(code, 0, "{signal}: {log}");
        assert!(log.contains("in_flight=1 cut=0"), "{log}");
        assert!(tokio::net::TcpStream::connect(&grpc).await.is_err(), "the port is free again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_finish_is_cut() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let start = async |more: &[&str]| {
        let (llm, served) = serve_with(hang(), &registry, more).await;
        let mut router = served.router();
        let request = tokio::spawn(async move { router.route(ask("where is my parcel")).await });
        until(|| llm.calls() == 1).await;
        served.signal("TERM");
        (llm, served, request)
    };
    // After the grace period, with an answer to the caller.
    let (_llm, served, request) = start(&["--set", "server.drain_ms=300"]).await;
    assert_eq!(request.await.unwrap().unwrap_err().code(), Code::Unavailable);
    let (code, log) = tokio::task::block_in_place(|| served.wait());
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("in_flight=1 cut=1"), "{log}");

    // At once by a second signal.
    let (_llm, served, request) = start(&[]).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    served.signal("TERM");
    let (code, log) = tokio::task::block_in_place(|| served.wait());
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("second signal"), "{log}");
    assert!(request.await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_starts_again_with_what_was_put() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store.path={}", folder.path().join("store.db").display());
    let start = || {
        let flags = ["--registry", registry.as_str(), "--set", &store];
        tokio::task::block_in_place(|| Served::start(&[&flags[..], &WORDS_ALONE[..]].concat()))
    };
    for round in 0..2 {
        let served = start();
        let list = served.registry().list(ListRequest::default()).await.unwrap().into_inner();
        assert_eq!(list.tools.len(), 1 + usize::from(round > 0), "{list:?}");
        served.registry().put(PutRequest { cards: vec![card("water_plants", 1)] }).await.unwrap();
        // In the middle of further writes.
        let mut client = served.registry();
        let writing = tokio::spawn(async move {
            for version in 2..200 {
                let _ = client.put(PutRequest { cards: vec![card("feed_cat", version)] }).await;
                let _ = client.delete(DeleteRequest { names: vec!["feed_cat".into()] }).await;
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        served.signal("KILL");
        let _ = tokio::task::block_in_place(|| served.wait());
        writing.abort();
        // Whether the last put or the last delete came through is not known.
        clean(&start()).await;
    }
}

fn card(name: &str, version: u32) -> prost_types::Struct {
    let card = json!({
        "name": name, "version": version,
        "description": {"what": "Does what it says.", "when_to_use": [name], "when_not_to_use": [],
                        "returns": "one object"},
        "parameters": {"type": "object", "properties": {}},
        "side_effect": "read", "idempotent": true, "permissions": [], "timeout_ms": 1000,
    });
    to_struct(card.as_object().unwrap())
}

async fn clean(served: &Served) {
    let list = served.registry().list(ListRequest::default()).await.unwrap().into_inner();
    assert!(list.quarantined.is_empty(), "{:?}", list.quarantined);
    assert!(list.tools.iter().any(|tool| tool.name == "water_plants"), "{list:?}");
    let names = vec!["feed_cat".to_owned()];
    served.registry().delete(DeleteRequest { names }).await.unwrap();
}
