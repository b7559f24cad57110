//! Changes of the catalog while it serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pointsman::server::proto::{
    ChangeResponse, DeleteRequest, GetRequest, ListRequest, PutRequest, ReloadRequest, ReplaceRequest,
};
use pointsman::server::wire::to_struct;
use prost_types::Struct;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::cli::{self, Served, WORDS_ALONE};
use crate::support::server::{TestServer, called, candidates, settings, shop_settings};
use crate::support::{RegistryFile, native};

fn card(name: &str, what: &str, more: &Value) -> Struct {
    let mut card = json!({
        "name": name, "version": 1,
        "description": {"what": what, "when_to_use": [name.replace('_', " ")], "when_not_to_use": [],
                        "returns": "one object"},
        "parameters": {"type": "object", "properties": {}},
        "side_effect": "read", "idempotent": true, "permissions": [], "timeout_ms": 1000,
    });
    card.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    to_struct(card.as_object().unwrap())
}

async fn put(server: &TestServer, cards: Vec<Struct>) -> ChangeResponse {
    server.registry().put(PutRequest { cards }).await.unwrap().into_inner()
}

async fn reload(server: &TestServer) -> ChangeResponse {
    server.registry().reload(ReloadRequest {}).await.unwrap().into_inner()
}

async fn names(server: &TestServer) -> Vec<String> {
    let list = server.registry().list(ListRequest::default()).await.unwrap().into_inner();
    list.tools.into_iter().map(|tool| tool.name).collect()
}

async fn what(server: &TestServer, name: &str) -> String {
    let got = server.registry().get(GetRequest { name: name.into() }).await.unwrap().into_inner();
    got.summary.unwrap().what
}

#[tokio::test]
async fn what_is_put_deleted_and_replaced_outlives_a_restart() {
    let registry = RegistryFile::of(&["track_parcel", "cancel_parcel"]);
    let folder = tempfile::tempdir().unwrap();
    let mut with_store = settings(&[&registry.path]);
    with_store.pipeline.store = Some(folder.path().join("store.db"));
    with_store.pipeline.stored_cards = true;
    let start = async || TestServer::start(with_store.clone()).await;
    let restart = async |server: TestServer| {
        server.stop();
        server.stopped().await.unwrap();
        TestServer::start(with_store.clone()).await
    };
    let plain = json!({});

    let server = start().await;
    let change = put(&server, vec![card("water_plants", "Water the plants.", &plain)]).await;
    assert_eq!((change.added, change.quarantined), (vec!["water_plants".to_owned()], vec![]));
    let answer = server.route("water_plants 浇花").await.unwrap();
    assert_eq!((called(&answer).0, &answer.catalog_version), ("water_plants", &change.catalog_version));
    let same = put(&server, vec![card("water_plants", "Water the plants.", &plain)]).await;
    assert_eq!(same.catalog_version, change.catalog_version, "nothing changed, so no new version");
    let reloaded = reload(&server).await;
    assert_eq!((reloaded.catalog_version, reloaded.added.len()), (change.catalog_version.clone(), 0));
    let digest = |version: &str| version.split_once('-').unwrap().1.to_owned();
    let changed = put(&server, vec![card("water_plants", "Water all plants.", &plain)]).await;
    assert_eq!(changed.changed, ["water_plants"]);
    assert_ne!(digest(&changed.catalog_version), digest(&change.catalog_version));
    let back = put(&server, vec![card("water_plants", "Water the plants.", &plain)]).await;
    assert_eq!(digest(&back.catalog_version), digest(&change.catalog_version), "equal cards, equal digest");
    assert_ne!(back.catalog_version, change.catalog_version);

    // Cards that cannot be served are reported and change nothing, the sound one beside them does.
    let cards = vec![
        card("water_plants", "Drown the plants.", &json!({"requires": ["no_such_tool"]})),
        card("feed_cat", "Feed the cat.", &json!({"side_effect": "sometimes"})),
        card("walk_dog", "Walk the dog.", &plain),
    ];
    let change = put(&server, cards).await;
    assert_eq!(change.added, ["walk_dog"]);
    let pointers: Vec<_> = change
        .quarantined
        .iter()
        .map(|card| (card.card.as_str(), card.source.as_str(), card.problems[0].pointer.as_str()))
        .collect();
    assert!(pointers.contains(&("feed_cat", "put", "/side_effect")), "{pointers:?}");
    assert!(pointers.contains(&("water_plants", "put", "/requires/0")), "{pointers:?}");
    assert_eq!(what(&server, "water_plants").await, "Water the plants.", "the card before it keeps serving");

    let server = restart(server).await;
    assert_eq!(names(&server).await, ["cancel_parcel", "track_parcel", "walk_dog", "water_plants"]);
    assert_eq!(what(&server, "water_plants").await, "Water the plants.");
    let list = server.registry().list(ListRequest::default()).await.unwrap().into_inner();
    assert!(list.quarantined.is_empty(), "{:?}", list.quarantined);

    // Files win on the same name.
    registry.write(&native(&["track_parcel", "cancel_parcel", "walk_dog"]));
    let change = reload(&server).await;
    assert_eq!(change.changed, ["walk_dog"]);
    assert!(change.notices.iter().any(|notice| notice.contains("`walk_dog` from put is not served")), "{change:?}");

    let gone = DeleteRequest { names: vec!["water_plants".into(), "track_parcel".into(), "nobody".into()] };
    let change = server.registry().delete(gone).await.unwrap().into_inner();
    assert_eq!(change.removed, ["track_parcel", "water_plants"]);
    assert!(change.notices[0].starts_with("1 of the names"), "{:?}", change.notices);
    assert_eq!(reload(&server).await.added, ["track_parcel"], "what a file holds returns");

    let only = ReplaceRequest { cards: vec![card("walk_dog", "Walk.", &plain), card("feed_cat", "Feed.", &plain)] };
    let change = server.registry().replace(only).await.unwrap().into_inner();
    assert_eq!(
        (change.added, change.removed),
        (vec!["feed_cat".into()], vec!["cancel_parcel".into(), "track_parcel".into()])
    );
    assert_eq!(names(&server).await, ["feed_cat", "walk_dog"]);
    let server = restart(server).await;
    assert_eq!(names(&server).await, ["cancel_parcel", "feed_cat", "track_parcel", "walk_dog"]);
}

#[tokio::test]
async fn only_changed_texts_are_embedded_again() {
    let registry = RegistryFile::of(&["track_parcel", "cancel_parcel", "feed_cat"]);
    let file = registry.as_str();
    // The list of files takes several entries, so the sample registry has to go.
    let mut settings = shop_settings(&[("store.path", ":memory:")]);
    settings.pipeline.registries = vec![file.into()];
    let server = TestServer::start(settings).await;
    assert_eq!(reload(&server).await.embedded_texts, 0);
    let text = native(&["track_parcel", "cancel_parcel", "feed_cat"]);
    registry.write(&text.replace("what: \"feed cat\"", "what: \"give the cat its supper\""));
    let change = reload(&server).await;
    assert_eq!((change.changed, change.embedded_texts), (vec!["feed_cat".to_owned()], 2), "one text, two encoders");
    let answer = server.route("supper for the cat").await.unwrap();
    assert_eq!(candidates(&answer)[0], "feed_cat");
    // What is not embedded costs nothing, and the old text is still known.
    registry.write(&text.replace("timeout_ms: 1000", "timeout_ms: 2000"));
    let change = reload(&server).await;
    assert_eq!((change.changed.len(), change.embedded_texts), (3, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_or_waits_while_the_catalog_changes() {
    let some = native(&["track_parcel", "cancel_parcel"]);
    let more = native(&["track_parcel", "cancel_parcel", "water_plants"]);
    let registry = RegistryFile::new("registry.yaml", &some);
    let server = TestServer::start(settings(&[&registry.path])).await;
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let (mut router, done, answered) = (server.router(), done.clone(), answered.clone());
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let options = pointsman::server::proto::RouteOptions { no_cache: client % 2 == 0, max_calls: 1 };
                    let mut request = crate::support::server::ask("track_parcel please");
                    request.options = Some(options);
                    let answer = router.route(request).await.unwrap().into_inner();
                    assert_eq!(called(&answer).0, "track_parcel");
                    // One version for the whole request.
                    let odd = answer.catalog_version.split_once('-').unwrap().0.parse::<u64>().unwrap() % 2 == 1;
                    assert_eq!(answer.candidates.len(), if odd { 2 } else { 3 }, "{}", answer.catalog_version);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 0..20 {
        registry.write(if round % 2 == 0 { &more } else { &some });
        let change = reload(&server).await;
        assert_eq!(change.catalog_version.split_once('-').unwrap().0, (round + 2).to_string());
    }
    done.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert!(answered.load(Ordering::Relaxed) >= 20, "{answered:?}");
}

#[tokio::test]
async fn a_bad_card_is_reported_with_its_place_and_a_bad_file_changes_nothing() {
    let registry = RegistryFile::of(&["track_parcel", "cancel_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    let version = server.route("track_parcel").await.unwrap().catalog_version;
    for broken in ["tools: [", "", "registry: test\ntools: 7\n"] {
        registry.write(broken);
        let status = server.registry().reload(ReloadRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{broken:?}: {status:?}");
        assert!(status.message().contains("registry.yaml"), "{}", status.message());
        assert_eq!(server.route("track_parcel").await.unwrap().catalog_version, version);
    }
    let half = native(&["track_parcel", "cancel_parcel"]).replacen("timeout_ms: 1000", "timeout_ms: soon", 1);
    registry.write(&half);
    let change = reload(&server).await;
    assert_eq!((change.removed, change.quarantined.len()), (vec!["track_parcel".to_owned()], 1));
    let bad = &change.quarantined[0];
    assert_eq!((bad.card.as_str(), bad.problems[0].pointer.as_str()), ("track_parcel", "/timeout_ms"));
    let line = half.lines().position(|line| line.contains("soon")).unwrap() + 1;
    assert_eq!(bad.problems[0].line as usize, line);
    assert!(bad.source.ends_with("registry.yaml"), "{}", bad.source);
    let list = server.registry().list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.quarantined, change.quarantined);

    // Strict: the start fails, and so does a reload.
    let (code, _, err) =
        cli::run(&[&["serve", "--strict", "--registry", registry.as_str()], &WORDS_ALONE[..]].concat());
    assert_eq!(code, 2, "{err}");
    for part in [&format!("registry.yaml:{line}"), "track_parcel", "/timeout_ms", "strict"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    registry.write(&native(&["track_parcel"]));
    let mut strict = settings(&[&registry.path]);
    strict.pipeline.strict = true;
    let server = TestServer::start(strict).await;
    registry.write(&half);
    let status = server.registry().reload(ReloadRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert_eq!(names(&server).await, ["track_parcel"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_signal_reads_the_files_again() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let served = Served::start(&[&["--registry", registry.as_str()], &WORDS_ALONE[..]].concat());
    let wait_for = async |expected: &[&str]| {
        for _ in 0..500 {
            let list = served.registry().list(ListRequest::default()).await.unwrap().into_inner();
            let names: Vec<_> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
            if names == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{expected:?} did not come");
    };
    registry.write(&native(&["track_parcel", "water_plants"]));
    served.signal("HUP");
    wait_for(&["track_parcel", "water_plants"]).await;
    registry.write("tools: [");
    served.signal("HUP");
    until_failed_reload(&served).await;
    wait_for(&["track_parcel", "water_plants"]).await;
    served.signal("TERM");
    let (code, log) = served.wait();
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("reload failed") && log.contains("registry.yaml"), "{log}");
}

async fn until_failed_reload(served: &Served) {
    for _ in 0..500 {
        let metrics = served.http_get("/metrics").await;
        if metrics.contains("pointsman_catalog_reloads_total{result=\"failed\"} 1") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the failed reload is not counted: {}", served.http_get("/metrics").await);
}
