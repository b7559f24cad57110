//! Faults while the registry changes: each leaves a clear report, the catalog before it goes on serving, nothing is lost.

use std::process::Stdio;
use std::time::Duration;

use pointsman::config::Settings;
use pointsman::server::proto::{DiffRequest, HistoryRequest, ListRequest, ListResponse, PutRequest, ReloadRequest};
use pointsman::server::wire::to_struct;
use prost_types::Struct;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::cli::{self, Served, WORDS_ALONE};
use crate::support::server::{TestServer, settings};
use crate::support::{RegistryFile, native};

fn card(name: &str, what: &str) -> Struct {
    let card = json!({
        "name": name, "version": 1,
        "description": {"what": what, "when_to_use": [name], "when_not_to_use": [], "returns": "one object"},
        "parameters": {"type": "object", "properties": {}},
        "side_effect": "read", "idempotent": true, "permissions": [], "timeout_ms": 1000,
    });
    to_struct(card.as_object().unwrap())
}

fn names(list: &ListResponse) -> Vec<&str> {
    list.tools.iter().map(|tool| tool.name.as_str()).collect()
}

async fn list(server: &TestServer) -> ListResponse {
    server.registry().list(ListRequest::default()).await.unwrap().into_inner()
}

fn with_store(registry: &RegistryFile, folder: &tempfile::TempDir) -> Settings {
    let mut settings = settings(&[&registry.path]);
    settings.pipeline.store = Some(folder.path().join("store.db"));
    settings
}

async fn end(server: TestServer) {
    server.stop();
    server.stopped().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_a_reload() {
    let some: Vec<String> = (0..200).map(|n| format!("tool_{n:03}")).collect();
    let some: Vec<&str> = some.iter().map(String::as_str).collect();
    let registry = RegistryFile::of(&some);
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store.path={}", folder.path().join("store.db").display());
    let serve = || Served::start(&[&["--registry", registry.as_str(), "--set", &store], &WORDS_ALONE[..]].concat());
    let mut before = 0;
    for (round, pause_ms) in [0, 4, 15, 40, 90].into_iter().enumerate() {
        let served = serve();
        let text = native(&some).replace("timeout_ms: 1000", &format!("timeout_ms: {}", 2000 + round));
        registry.write(&text);
        served.signal("HUP");
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        served.signal("KILL");
        served.wait();

        // The store is sound, and its history leads to what is served: all of a version or nothing of it.
        let served = serve();
        let list = served.registry().list(ListRequest::default()).await.unwrap().into_inner();
        assert_eq!(list.tools.len(), 200);
        let versions = served.registry().history(HistoryRequest {}).await.unwrap().into_inner().versions;
        assert_eq!(versions[0].catalog_version, list.catalog_version);
        assert!(versions[0].generation > before, "the changed files are served after the restart at the latest");
        assert!(versions.iter().all(|version| version.changed.is_empty() || version.changed.len() == 200));
        let diff = DiffRequest { from: versions.last().unwrap().catalog_version.clone(), to: String::new() };
        assert_eq!(served.registry().diff(diff).await.unwrap().into_inner().changed.len(), 200);
        before = versions[0].generation;
        served.signal("KILL");
        served.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_changes_nothing() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store.path={}", folder.path().join("store.db").display());
    let args = [&["--registry", registry.as_str(), "--set", &store], &WORDS_ALONE[..]].concat();
    // No file may grow beyond a few hundred kilobytes; the write that would make it fails.
    let limited = {
        let mut command = cli::pointsman_under("trap '' XFSZ; ulimit -f 600; exec \"$0\" \"$@\"");
        command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]).args(&args);
        Served::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let mut client = limited.registry();
    client.put(PutRequest { cards: vec![card("water_plants", "Water the plants.")] }).await.unwrap();
    let before = client.list(ListRequest::default()).await.unwrap().into_inner();
    let long = "many words ".repeat(2_500);
    let many: Vec<Struct> = (0..60).map(|n| card(&format!("big_{n}"), &long)).collect();
    let status = client.put(PutRequest { cards: many.clone() }).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status:?}");
    assert!(status.message().contains("the catalog is unchanged"), "{status:?}");
    let after = client.list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(
        (names(&after), &after.catalog_version),
        (vec!["track_parcel", "water_plants"], &before.catalog_version)
    );
    limited.signal("TERM");
    let (code, log) = limited.wait();
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("request failed"), "{log}");

    // With room again nothing is missing, and the change can be made.
    let served = Served::start(&args);
    let again = served.registry().list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!((names(&again), &again.catalog_version), (names(&before), &before.catalog_version));
    let change = served.registry().put(PutRequest { cards: many }).await.unwrap().into_inner();
    assert_eq!(change.added.len(), 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_writers_at_once_none_is_lost() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let folder = tempfile::tempdir().unwrap();
    let mut settings = with_store(&registry, &folder);
    settings.pipeline.history = 100;
    let server = TestServer::start(settings.clone()).await;
    let writers: Vec<_> = (0..16)
        .map(|n| {
            let mut registry = server.registry();
            tokio::spawn(async move { registry.put(PutRequest { cards: vec![card(&format!("tool_{n}"), "x")] }).await })
        })
        .collect();
    let mut generations = Vec::new();
    for writer in writers {
        let change = writer.await.unwrap().unwrap().into_inner();
        assert_eq!(change.added.len(), 1, "each saw its own change alone");
        generations.push(change.catalog_version.split_once('-').unwrap().0.parse::<u64>().unwrap());
    }
    generations.sort_unstable();
    assert_eq!(generations, (2..18).collect::<Vec<_>>());
    assert_eq!(list(&server).await.tools.len(), 17);

    // A second process on the same store, which is no good idea: nothing that was put is lost, no version is written twice.
    let second = TestServer::start(settings.clone()).await;
    let both: Vec<_> = (0..8)
        .map(|n| {
            let mut registry = [server.registry(), second.registry()][n % 2].clone();
            tokio::spawn(async move { registry.put(PutRequest { cards: vec![card(&format!("late_{n}"), "x")] }).await })
        })
        .collect();
    for writer in both {
        assert_eq!(writer.await.unwrap().unwrap().into_inner().added.len(), 1);
    }
    let history = server.registry().history(HistoryRequest {}).await.unwrap().into_inner().versions;
    let generations: Vec<u64> = history.iter().map(|version| version.generation).collect();
    assert_eq!(generations, (1..26).rev().collect::<Vec<_>>());
    end(server).await;
    end(second).await;
    let server = TestServer::start(settings).await;
    assert_eq!(list(&server).await.tools.len(), 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_cannot_be_read_leaves_the_last_good_catalog() {
    let good = native(&["track_parcel", "cancel_parcel"]);
    let registry = RegistryFile::new("registry.yaml", &good);
    let folder = tempfile::tempdir().unwrap();
    let settings = with_store(&registry, &folder);
    let server = TestServer::start(settings.clone()).await;
    server.registry().put(PutRequest { cards: vec![card("water_plants", "Water the plants.")] }).await.unwrap();
    let version = list(&server).await.catalog_version;
    end(server).await;

    let half = good.as_bytes()[..good.len() / 2 + 3].to_vec();
    type Damage<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let damages: [Damage<'_>; 5] = [
        ("missing", Box::new(|| std::fs::remove_file(&registry.path).unwrap())),
        ("half written", Box::new(|| std::fs::write(&registry.path, &half).unwrap())),
        ("empty", Box::new(|| std::fs::write(&registry.path, "").unwrap())),
        (
            "no text",
            Box::new(|| std::fs::write(&registry.path, b"registry: test\ntools:\n  - name: \xff\xfe").unwrap()),
        ),
        (
            "a folder",
            Box::new(|| {
                std::fs::remove_file(&registry.path).unwrap();
                std::fs::create_dir(&registry.path).unwrap();
            }),
        ),
    ];
    for (what, damage) in damages {
        damage();
        let server = TestServer::start(settings.clone()).await;
        let served = list(&server).await;
        assert_eq!(names(&served), ["cancel_parcel", "track_parcel", "water_plants"], "{what}");
        assert_eq!(served.catalog_version, version, "{what}");
        let notice = served.notices.iter().find(|notice| notice.contains("the last good catalog"));
        assert!(
            notice.is_some_and(|notice| notice.contains("registry.yaml") && notice.contains(&version)),
            "{served:?}"
        );
        let (code, body) = server.http_get("/readyz").await;
        assert!(code == 200 && body.contains("last_good_catalog"), "{what}: {code} {body}");
        let status = server.registry().reload(ReloadRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{what}: {status:?}");
        assert_eq!(names(&list(&server).await).len(), 3, "{what}");

        let mut strict = settings.clone();
        strict.pipeline.strict = true;
        let failed = TestServer::start_loading(strict).await;
        let error = failed.stopped().await.unwrap_err().to_string();
        assert!(error.contains("registry.yaml"), "{what}: {error}");

        if registry.path.is_dir() {
            std::fs::remove_dir(&registry.path).unwrap();
        }
        registry.write(&good);
        let change = server.registry().reload(ReloadRequest {}).await.unwrap().into_inner();
        assert_eq!(change.catalog_version, version, "{what}");
        assert!(!server.http_get("/readyz").await.1.contains("last_good_catalog"), "{what}");
        end(server).await;
    }

    // Nothing was ever served of these files: the start fails and says what is wrong.
    let unknown = RegistryFile::new("other.yaml", "tools: [");
    let mut other = settings.clone();
    other.pipeline.registries = vec![unknown.path.clone()];
    let error = TestServer::start_loading(other).await.stopped().await.unwrap_err().to_string();
    assert!(error.contains("other.yaml"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = TestServer::start_loading(with_store(&unknown, &empty)).await.stopped().await.unwrap_err().to_string();
    assert!(error.contains("other.yaml"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_said_in_the_log_and_the_metrics() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store.path={}", folder.path().join("store.db").display());
    let args = [&["--registry", registry.as_str(), "--set", &store], &WORDS_ALONE[..]].concat();
    let served = Served::start(&args);
    assert!(served.http_get("/metrics").await.contains("pointsman_catalog_last_good 0"));
    served.signal("TERM");
    served.wait();
    registry.write("tools: [");
    let served = Served::start(&args);
    assert!(served.http_get("/metrics").await.contains("pointsman_catalog_last_good 1"));
    served.signal("TERM");
    let (_, log) = served.wait();
    assert!(log.contains("ERROR") && log.contains("the last good catalog is served"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_tells_which_tools_are_gone() {
    let registry = RegistryFile::of(&["track_parcel", "cancel_parcel"]);
    let folder = tempfile::tempdir().unwrap();
    end(TestServer::start(with_store(&registry, &folder)).await).await;
    registry.write(&native(&["track_parcel"]));
    let server = TestServer::start(with_store(&registry, &folder)).await;
    let notices = list(&server).await.notices;
    let expected = "1 tools that were served before this start are there no more: cancel_parcel";
    assert!(notices.iter().any(|notice| notice == expected), "{notices:?}");
    end(server).await;
    let server = TestServer::start(with_store(&registry, &folder)).await;
    assert_eq!(list(&server).await.notices, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_denial_says_of_scopes_outlives_a_registry_that_cannot_be_read() {
    let scoped = native(&["track_parcel"]).replace("permissions: []", "permissions: [\"parcels:read\"]");
    let frame = "version: 1\nscopes: [{name: \"parcels:read\", about: 查询包裹, granted_by: the desk}]\n";
    let registry = RegistryFile::new("registry.yaml", &scoped.replacen("version: 1\n", frame, 1));
    let folder = tempfile::tempdir().unwrap();
    let scopes = async || {
        let server = TestServer::start(with_store(&registry, &folder)).await;
        let (_, registry) = server.app.router().unwrap().registry();
        end(server).await;
        (registry.last_good.is_some(), registry.scopes.clone())
    };
    let (_, before) = scopes().await;
    assert_eq!(before.values().next().unwrap().granted_by.as_deref(), Some("the desk"));
    registry.write("tools: [");
    assert_eq!(scopes().await, (true, before));
}

/// What a file may be beside a registry: larger than any, deeper than any, longer than any, or one that unfolds.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_files_are_refused_and_change_nothing() {
    const MEBI: usize = 1024 * 1024;
    let good = native(&["track_parcel"]);
    let registry = RegistryFile::new("registry.yaml", &good);
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(with_store(&registry, &folder)).await;
    let version = list(&server).await.catalog_version;
    let of =
        |tool: &str, length: usize| format!("{{\"tools\": [{}]}}", vec![tool; length / (tool.len() + 1)].join(","));
    for (what, text, part) in [
        ("100 MB of brackets", "[".repeat(100 * MEBI), "larger than"),
        ("100 MB of tools", of("{\"name\":\"a\",\"description\":\"退款\"}", 100 * MEBI), "larger than"),
        ("30 MB of brackets", "[".repeat(30 * MEBI), "more values than"),
        ("30 MB of numbers", of("1", 30 * MEBI), "more values than"),
        ("deep flow", format!("tools: {}1{}", "[".repeat(500), "]".repeat(500)), "recursion limit"),
    ] {
        registry.write(&text);
        let status = server.registry().reload(ReloadRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{what}");
        assert!(status.message().contains("registry.yaml") && status.message().contains(part), "{what}: {status:?}");
        assert!(status.message().len() < 2_000, "{what}");
        assert_eq!(list(&server).await.catalog_version, version, "{what}");
    }
    // What unfolds without end, refers in a circle or speaks for a megabyte is one card among others.
    let doubling: serde_json::Map<String, Value> = (0..60)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"type": "object", "properties": {"a": next, "b": next}}))
        })
        .collect();
    let hostile = |name: &str, what: &str, parameters: Value| {
        json!({"name": name, "description": what, "parameters": parameters, "side_effect": "read", "permissions": [],
            "timeout_ms": 1000})
    };
    let object = || json!({"type": "object", "properties": {}});
    let circle = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    let cards = [
        hostile(
            "doubles",
            "x",
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": doubling}),
        ),
        hostile("circles", "x", circle),
        hostile("speaks", &"退款".repeat(MEBI / 6), object()),
        hostile("lists", "x", json!({"type": "object", "properties": {"a": {"enum": vec!["v"; 200_000]}}})),
        hostile("track_parcel", "track parcel", object()),
    ];
    registry.write(&json!({"registry": "test", "tools": cards}).to_string());
    let change = server.registry().reload(ReloadRequest {}).await.unwrap().into_inner();
    let told: Vec<&str> = change.quarantined.iter().map(|card| card.card.as_str()).collect();
    for name in ["doubles", "circles", "speaks", "lists"] {
        let served = names(&list(&server).await).contains(&name);
        assert!(told.contains(&name) != served, "{name} is quarantined or served: {told:?}");
    }
    assert!(told.contains(&"speaks") && told.contains(&"lists"), "{told:?}");
    assert!(change.quarantined.iter().all(|card| !card.problems.is_empty()));
    assert!(names(&list(&server).await).contains(&"track_parcel"));
    end(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_cards_are_reported_and_change_nothing() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(with_store(&registry, &folder)).await;
    let version = list(&server).await.catalog_version;
    let of = |parameters: Value| {
        let mut card = card("hostile", "x");
        let more = to_struct(json!({ "parameters": parameters }).as_object().unwrap());
        card.fields.extend(more.fields);
        card
    };
    let deep =
        (0..80).fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"x": inner}}));
    let cyclic = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    let hostile = [
        ("a description of a megabyte", card("hostile", &"退款".repeat(200_000))),
        ("endless keys", of(json!({"type": "object", "properties": {"x".repeat(2_000_000): {}}}))),
        ("nested deeply", of(deep)),
        ("a huge list", of(json!({"type": "object", "properties": {"x": {"enum": vec!["value"; 500_000]}}}))),
        ("no object", of(json!({"type": "string"}))),
        ("a reference elsewhere", of(json!({"$ref": "http://127.0.0.1:9/schema.json"}))),
    ];
    for (what, card) in hostile {
        match server.registry().put(PutRequest { cards: vec![card] }).await {
            Ok(change) => {
                let change = change.into_inner();
                let told = change.quarantined.iter().any(|card| !card.problems.is_empty());
                assert!(told || !change.added.is_empty() || !change.changed.is_empty(), "{what}: {change:?}");
            }
            Err(status) => {
                let code = status.code();
                assert!(
                    matches!(code, Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted),
                    "{what}: {code}"
                );
            }
        }
        assert!(names(&list(&server).await).contains(&"track_parcel"), "{what}");
    }
    // A schema that only refers to itself may be served or not; it ends in any case, and is compared with what was before.
    let _ = server.registry().put(PutRequest { cards: vec![of(cyclic)] }).await;
    let now = list(&server).await;
    assert!(now.catalog_version == version || now.tools.len() == 2, "{now:?}");
    end(server).await;
    let server = TestServer::start(with_store(&registry, &folder)).await;
    assert_eq!(names(&list(&server).await), names(&now));
}
