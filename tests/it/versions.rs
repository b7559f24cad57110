//! Versions of the catalog: what is kept of them, going back, changes that wait for approval, and the stream of them.

use std::collections::BTreeMap;
use std::time::Duration;

use pointsman::config::{AuditTarget, Settings};
use pointsman::registry::pin::Pins;
use pointsman::server::proto::{
    Approval, ApproveRequest, ChangeResponse, DeleteRequest, DiffRequest, DiffResponse, GetRequest, HeldRequest,
    HistoryRequest, ListRequest, PutRequest, ReloadRequest, ReplaceRequest, RollbackRequest, Version, WatchRequest,
};
use pointsman::server::wire::to_struct;
use prost_types::Struct;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tonic::{Code, Request, Status, Streaming};

use crate::support::RegistryFile;
use crate::support::server::{TestServer, settings};

/// A native card; what `more` says wins.
fn card(name: &str, more: &Value) -> Value {
    let mut card = json!({
        "name": name, "version": 1,
        "description": {"what": name.replace('_', " "), "when_to_use": [name], "when_not_to_use": [], "returns": "one"},
        "parameters": {"type": "object", "additionalProperties": false,
            "properties": {"limit": {"type": "integer", "maximum": 20}}},
        "side_effect": "write", "idempotent": false, "permissions": ["orders:read"], "timeout_ms": 1000,
    });
    card.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    card
}

fn limit(maximum: u32) -> Value {
    json!({"parameters": {"type": "object", "additionalProperties": false,
        "properties": {"limit": {"type": "integer", "maximum": maximum}}}})
}

fn file(cards: &[Value]) -> String {
    json!({"registry": "test", "tools": cards}).to_string()
}

fn structs(cards: &[Value]) -> Vec<Struct> {
    cards.iter().map(|card| to_struct(card.as_object().unwrap())).collect()
}

/// One registry file and a store that outlive the servers on them.
struct World {
    registry: RegistryFile,
    folder: tempfile::TempDir,
    settings: Settings,
}

impl World {
    fn new(cards: &[Value]) -> Self {
        let registry = RegistryFile::new("registry.json", &file(cards));
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(&[&registry.path]);
        settings.pipeline.store = Some(folder.path().join("store.db"));
        settings.server.audit = AuditTarget::File(folder.path().join("audit.jsonl"));
        Self { registry, folder, settings }
    }

    async fn start(&self) -> Server {
        Server(TestServer::start(self.settings.clone()).await)
    }

    fn write(&self, cards: &[Value]) {
        self.registry.write(&file(cards));
    }

    fn audit(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap()
    }
}

struct Server(TestServer);

impl Server {
    async fn stop(self) {
        self.0.stop();
        self.0.stopped().await.unwrap();
    }

    async fn reload(&self) -> ChangeResponse {
        self.0.registry().reload(ReloadRequest {}).await.unwrap().into_inner()
    }

    async fn put(&self, card: Value) -> ChangeResponse {
        self.0.registry().put(PutRequest { cards: structs(&[card]) }).await.unwrap().into_inner()
    }

    async fn rollback(&self, version: &str) -> Result<ChangeResponse, Status> {
        let request = RollbackRequest { version: version.into() };
        self.0.registry().rollback(request).await.map(tonic::Response::into_inner)
    }

    async fn approve(&self, name: &str, hash: &str) -> Result<ChangeResponse, Status> {
        let approvals = vec![Approval { name: name.into(), hash: hash.into() }];
        self.0.registry().approve(ApproveRequest { approvals }).await.map(tonic::Response::into_inner)
    }

    async fn history(&self) -> Vec<Version> {
        self.0.registry().history(HistoryRequest {}).await.unwrap().into_inner().versions
    }

    async fn diff(&self, from: &str, to: &str) -> Result<DiffResponse, Status> {
        let request = DiffRequest { from: from.into(), to: to.into() };
        self.0.registry().diff(request).await.map(tonic::Response::into_inner)
    }

    async fn version(&self) -> String {
        self.0.registry().list(ListRequest::default()).await.unwrap().into_inner().catalog_version
    }

    async fn names(&self) -> Vec<String> {
        let list = self.0.registry().list(ListRequest::default()).await.unwrap().into_inner();
        list.tools.into_iter().map(|tool| tool.name).collect()
    }

    async fn held(&self) -> BTreeMap<String, Vec<String>> {
        let held = self.0.registry().held(HeldRequest {}).await.unwrap().into_inner();
        held.cards.into_iter().map(|card| (card.name, card.reasons)).collect()
    }

    /// What is served: `limit` of the tool's schema.
    async fn maximum(&self, name: &str) -> String {
        let got = self.0.registry().get(GetRequest { name: name.into() }).await.unwrap().into_inner();
        let card = format!("{:?}", got.card.unwrap());
        card.split("\"maximum\"")
            .nth(1)
            .unwrap()
            .split("NumberValue(")
            .nth(1)
            .unwrap()
            .split(')')
            .next()
            .unwrap()
            .into()
    }

    async fn watch(&self) -> Streaming<Version> {
        self.0.registry().watch(WatchRequest {}).await.unwrap().into_inner()
    }
}

fn generation(version: &str) -> u64 {
    version.split_once('-').unwrap().0.parse().unwrap()
}

fn digest(version: &str) -> &str {
    version.split_once('-').unwrap().1
}

fn causes(versions: &[Version]) -> Vec<&str> {
    versions.iter().map(|version| version.cause.as_str()).collect()
}

#[tokio::test]
async fn versions_go_on_over_a_restart_and_are_told_with_what_they_changed() {
    let mut world = World::new(&[card("a", &json!({})), card("b", &json!({}))]);
    world.settings.pipeline.history = 4;
    let server = world.start().await;
    let first = server.version().await;
    assert_eq!(generation(&first), 1);
    let put = server.put(card("退款", &limit(5))).await.catalog_version;
    world.write(&[card("a", &json!({"timeout_ms": 2000})), card("c", &json!({}))]);
    let reloaded = server.reload().await.catalog_version;
    assert_eq!(server.reload().await.catalog_version, reloaded, "unchanged files are no version");
    let versions = server.history().await;
    assert_eq!(causes(&versions), ["reload", "put", "start"]);
    let newest = &versions[0];
    assert_eq!(
        (&newest.added, &newest.changed, &newest.removed),
        (&vec!["c".to_owned()], &vec!["a".to_owned()], &vec!["b".to_owned()])
    );
    assert_eq!((newest.tools, versions[2].added.len(), newest.catalog_version.as_str()), (3, 2, reloaded.as_str()));
    assert!(versions.iter().all(|version| version.made_ms > 1_600_000_000_000));

    let told = server.diff(&put, "").await.unwrap();
    assert_eq!((told.from.as_str(), told.to.as_str()), (put.as_str(), reloaded.as_str()));
    assert_eq!((told.added, told.removed), (vec!["c".to_owned()], vec!["b".to_owned()]));
    let fields: Vec<_> = told.changed[0].fields.iter().map(|field| field.pointer.as_str()).collect();
    assert_eq!((told.changed[0].name.as_str(), fields.as_slice()), ("a", ["/timeout/secs"].as_slice()));
    assert_eq!(server.diff("", "2").await.unwrap().added, ["退款"]);
    // Backwards as well.
    assert_eq!(server.diff(&reloaded, "1").await.unwrap().removed, ["c", "退款"]);
    server.stop().await;

    let server = world.start().await;
    assert_eq!(server.version().await, reloaded, "the same cards are the same version");
    assert_eq!(server.history().await.len(), 3);
    server.stop().await;
    world.write(&[card("a", &json!({"timeout_ms": 2000}))]);
    let server = world.start().await;
    let started = server.version().await;
    assert_eq!(generation(&started), 4);
    server.put(card("d", &json!({}))).await;
    let versions = server.history().await;
    assert_eq!(causes(&versions), ["put", "start", "reload", "put"], "older ones are gone");

    for (from, to) in [("1", ""), ("", "1"), ("9", ""), ("", "2"), ("2-000000000000", "3"), ("nonsense", "")] {
        let status = server.diff(from, to).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{from} {to}: {status:?}");
        assert!(status.message().contains(&format!("{put} to {}", versions[0].catalog_version)), "{status:?}");
    }
    assert_eq!(server.rollback("1").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(server.rollback("").await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_rollback_lasts_until_the_files_change() {
    let world = World::new(&[card("a", &limit(20)), card("b", &json!({}))]);
    let server = world.start().await;
    let first = server.version().await;
    world.write(&[card("a", &limit(10)), card("c", &json!({}))]);
    server.reload().await;
    let back = server.rollback(&first).await.unwrap();
    assert_eq!(generation(&back.catalog_version), 3);
    assert_eq!(digest(&back.catalog_version), digest(&first), "the same cards under a new generation");
    assert_eq!(
        (back.added, back.changed, back.removed),
        (vec!["b".to_owned()], vec!["a".to_owned()], vec!["c".to_owned()])
    );
    assert_eq!(server.maximum("a").await, "20.0");
    // Neither a reload nor a restart of unchanged files undoes it; what is put comes on top.
    let same = server.reload().await;
    assert_eq!(same.catalog_version, back.catalog_version);
    assert!(same.notices.iter().any(|notice| notice.contains(&format!("rollback to version {first}"))), "{same:?}");
    server.put(card("d", &json!({}))).await;
    assert_eq!(server.reload().await.removed, Vec::<String>::new());
    let version = server.version().await;
    server.stop().await;
    let server = world.start().await;
    assert_eq!(server.version().await, version);
    assert_eq!(server.names().await, ["a", "b", "d"]);
    assert_eq!(causes(&server.history().await), ["put", "rollback", "reload", "start"]);
    // White space is no change, a card is.
    world.registry.write(&file(&[card("a", &limit(10)), card("c", &json!({}))]).replace(",\"", ", \""));
    assert_eq!(server.reload().await.catalog_version, version);
    world.write(&[card("a", &limit(10)), card("c", &json!({"timeout_ms": 7}))]);
    let change = server.reload().await;
    assert!(change.notices.iter().any(|notice| notice.contains("is over")), "{change:?}");
    assert_eq!(server.names().await, ["a", "c", "d"]);
    let again = server.reload().await;
    assert!(!again.notices.iter().any(|notice| notice.contains("rollback")), "{again:?}");

    // `Replace` ends it too: nothing of what was rolled back is left.
    server.rollback("1").await.unwrap();
    server.0.registry().replace(ReplaceRequest { cards: structs(&[card("z", &json!({}))]) }).await.unwrap();
    assert_eq!(server.names().await, ["z"]);
    server.reload().await;
    assert_eq!(server.names().await, ["a", "c", "z"]);
    let audit = world.audit();
    assert!(audit.contains("\"Rollback\"") && audit.contains("\"version\":\"1\""), "{audit}");
}

#[tokio::test]
async fn what_widens_waits_and_the_card_before_it_serves() {
    let world = World::new(&[card("a", &limit(20)), card("b", &json!({}))]);
    let server = world.start().await;
    let first = server.version().await;
    let wider = [card("a", &limit(50)), card("b", &json!({"side_effect": "read", "permissions": []}))];
    world.write(&wider);
    let change = server.reload().await;
    assert_eq!(
        (change.catalog_version.as_str(), change.held.as_slice()),
        (first.as_str(), ["a".to_owned(), "b".to_owned()].as_slice())
    );
    assert!(change.notices.iter().any(|notice| notice.contains("`a`") && notice.contains("schema_widened")));
    let expected = BTreeMap::from([
        ("a".to_owned(), vec!["schema_widened".to_owned()]),
        ("b".to_owned(), vec!["side_effect_lowered".to_owned(), "permissions_changed".to_owned()]),
    ]);
    assert_eq!(server.held().await, expected);
    assert_eq!(server.maximum("a").await, "20.0");
    let (_, body) = server.0.http_get("/readyz").await;
    assert!(body.contains("\"held\":2"), "{body}");
    server.stop().await;

    // A restart is no way round it, nor is taking the card away for a while.
    let server = world.start().await;
    assert_eq!((server.held().await, server.version().await), (expected, first));
    world.write(&[wider[1].clone()]);
    assert_eq!(server.reload().await.removed, ["a"]);
    world.write(&wider);
    let change = server.reload().await;
    assert_eq!((change.added.as_slice(), change.held.len()), (["a".to_owned()].as_slice(), 2));
    assert_eq!(server.maximum("a").await, "20.0");

    // Benign words, a narrower schema and a raised side effect pass at once.
    let narrower = json!({"description": "另一种说法", "side_effect": "destructive"});
    let mut milder = card("a", &limit(10));
    milder.as_object_mut().unwrap().extend(narrower.as_object().unwrap().clone());
    world.write(&[milder, wider[1].clone()]);
    let change = server.reload().await;
    assert_eq!(
        (change.changed.as_slice(), change.held.as_slice()),
        (["a".to_owned()].as_slice(), ["b".to_owned()].as_slice())
    );

    world.write(&wider);
    server.reload().await;
    let held = server.0.registry().held(HeldRequest {}).await.unwrap().into_inner().cards;
    let pointers: Vec<_> = held[0].fields.iter().map(|field| field.pointer.as_str()).collect();
    assert!(pointers.contains(&"/parameters/properties/limit/maximum"), "{pointers:?}");
    assert_eq!(server.approve("a", "not its hash").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(server.approve("nobody", "").await.unwrap_err().code(), Code::NotFound);
    let approved = server.approve("a", &held[0].hash).await.unwrap();
    assert_eq!(
        (approved.changed.as_slice(), approved.held.as_slice()),
        (["a".to_owned()].as_slice(), ["b".to_owned()].as_slice())
    );
    assert_eq!(server.maximum("a").await, "50.0");
    assert_eq!(server.reload().await.catalog_version, approved.catalog_version);
    server.stop().await;
    let server = world.start().await;
    assert_eq!((server.maximum("a").await.as_str(), server.held().await.len()), ("50.0", 1));
    assert_eq!(causes(&server.history().await)[0], "approve");

    // What the operator puts is the operator's word.
    let put = server.put(card("b", &json!({"permissions": []}))).await;
    assert_eq!((put.changed.as_slice(), put.held.len()), (["b".to_owned()].as_slice(), 0));
    assert!(world.audit().contains("\"Approve\""));
}

#[tokio::test]
async fn pins_may_be_for_imported_cards_alone_or_off() {
    let flat = |maximum: u32| {
        json!({"name": "search", "description": "Search.", "parameters": {"type": "object",
            "properties": {"limit": {"type": "integer", "maximum": maximum}}}})
        .to_string()
    };
    let exported = RegistryFile::new("exported.jsonl", &flat(20));
    let mut world = World::new(&[card("a", &limit(20))]);
    world.settings.pipeline.registries.push(exported.path.clone());
    world.settings.pipeline.pins = Pins::Imported;
    let server = world.start().await;
    world.write(&[card("a", &limit(50))]);
    exported.write(&flat(50));
    let change = server.reload().await;
    assert_eq!(
        (change.changed.as_slice(), change.held.as_slice()),
        (["a".to_owned()].as_slice(), ["search".to_owned()].as_slice())
    );
    server.stop().await;
    world.settings.pipeline.pins = Pins::Off;
    let server = world.start().await;
    assert_eq!((server.held().await.len(), server.maximum("search").await.as_str()), (0, "50.0"));
    // Another list of files is another registry: what was served of the one before says nothing about it.
    server.stop().await;
    world.settings.pipeline.pins = Pins::All;
    let other = RegistryFile::new("registry.json", &file(&[card("a", &limit(99))]));
    world.settings.pipeline.registries = vec![other.path.clone()];
    let server = world.start().await;
    assert_eq!((server.held().await.len(), server.maximum("a").await.as_str()), (0, "99.0"));
}

async fn next(stream: &mut Streaming<Version>) -> Option<Version> {
    tokio::time::timeout(Duration::from_secs(20), stream.message()).await.expect("a version in time").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_hears_of_each_version_and_a_slow_one_of_the_newest() {
    let world = World::new(&[card("a", &json!({})), card("internal", &json!({"tenants": ["acme"]}))]);
    let server = world.start().await;
    let mut stream = server.watch().await;
    let first = next(&mut stream).await.unwrap();
    assert_eq!(
        (first.catalog_version.clone(), first.cause.as_str(), first.tools),
        (server.version().await, "start", 2)
    );
    assert!(first.added.is_empty());
    let put = server.put(card("查询", &json!({}))).await;
    let second = next(&mut stream).await.unwrap();
    assert_eq!((second.catalog_version, second.cause.as_str(), second.added), (put.catalog_version, "put", put.added));
    server.0.registry().delete(DeleteRequest { names: vec!["a".into()] }).await.unwrap();
    let third = next(&mut stream).await.unwrap();
    assert_eq!((third.removed.as_slice(), third.skipped, third.generation), (["a".to_owned()].as_slice(), 0, 3));

    // Nobody reads the second stream: the writer does not wait, and what is read in the end leads to the newest.
    let mut slow = server.watch().await;
    let names = |n: u32| format!("{}_{n}", "x".repeat(200));
    let many: Vec<Value> = (0..300).map(|n| card(&names(n), &json!({}))).collect();
    for round in 0..40u32 {
        let cards: Vec<Value> = many
            .iter()
            .map(|card| {
                let mut card = card.clone();
                card["version"] = round.into();
                card
            })
            .collect();
        server.0.registry().put(PutRequest { cards: structs(&cards) }).await.unwrap();
    }
    let newest = server.version().await;
    let (mut last, mut told, mut skipped) = (0, 0, 0);
    while last != generation(&newest) {
        let version = next(&mut slow).await.unwrap();
        assert!(version.generation > last);
        (last, told, skipped) = (version.generation, told + 1, skipped + version.skipped);
    }
    assert_eq!(told + skipped, 41, "every version was sent or told as skipped");

    server.0.stop();
    // What is left in the stream, then its end.
    while next(&mut stream).await.is_some() {}
    while next(&mut slow).await.is_some() {}
    server.stop().await;
}

#[tokio::test]
async fn callers_read_of_versions_what_the_list_shows_them() {
    let secret = json!({"permissions": ["secrets:read"]});
    let mut world = World::new(&[card("a", &json!({})), card("hidden", &secret)]);
    let callers = world.folder.path().join("callers.toml");
    let entry = |name: &str, rest: &str| {
        let digest: String = Sha256::digest(name).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[callers]]\nname = \"{name}\"\ntoken_sha256 = \"{digest}\"\n{rest}\n")
    };
    let text = entry("reader", "scopes = [\"orders:read\"]")
        + &entry("op", "operator = true\nscopes = [\"*\"]")
        + &entry("acme", "tenant = \"acme\"\nadmin = true");
    std::fs::write(&callers, text).unwrap();
    world.settings.server.identity.callers = Some(callers);
    let server = world.start().await;
    fn with<T>(token: &str, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    }
    let mut registry = server.0.registry();
    let mut stream = registry.watch(with("reader", WatchRequest {})).await.unwrap().into_inner();
    assert_eq!(next(&mut stream).await.unwrap().tools, 1);
    let mut cards = structs(&[card("hidden", &json!({"permissions": ["secrets:read"], "timeout_ms": 5}))]);
    registry.put(with("op", PutRequest { cards: cards.clone() })).await.unwrap();
    let told = next(&mut stream).await.unwrap();
    assert_eq!((told.changed.len(), told.tools, told.added.len()), (0, 1, 0));
    // A card that comes into sight is an addition.
    cards = structs(&[card("hidden", &json!({"timeout_ms": 5}))]);
    registry.put(with("op", PutRequest { cards })).await.unwrap();
    let told = next(&mut stream).await.unwrap();
    assert_eq!((told.added.as_slice(), told.tools), (["hidden".to_owned()].as_slice(), 2));
    let history = registry.history(with("reader", HistoryRequest {})).await.unwrap().into_inner().versions;
    let seen: Vec<_> = history.iter().map(|version| (version.added.clone(), version.changed.len())).collect();
    assert_eq!(seen, [(vec!["hidden".to_owned()], 0), (vec![], 0), (vec!["a".to_owned()], 0)]);
    let diff = registry.diff(with("reader", DiffRequest { from: "1".into(), to: "2".into() })).await.unwrap();
    assert!(diff.into_inner().changed.is_empty());
    for token in ["reader", "acme"] {
        let request = with(token, RollbackRequest { version: "1".into() });
        assert_eq!(registry.rollback(request).await.unwrap_err().code(), Code::PermissionDenied);
        let approvals = vec![Approval { name: "a".into(), hash: String::new() }];
        let status = registry.approve(with(token, ApproveRequest { approvals })).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
    }

    // What the administrator of a tenant widens waits for the operator.
    let own = |maximum: u32| PutRequest { cards: structs(&[card("report", &limit(maximum))]) };
    registry.put(with("acme", own(5))).await.unwrap();
    let change = registry.put(with("acme", own(9))).await.unwrap().into_inner();
    assert_eq!((change.changed.len(), change.held.as_slice()), (0, ["report".to_owned()].as_slice()));
    let held = registry.held(with("acme", HeldRequest {})).await.unwrap().into_inner();
    assert_eq!(held.cards.len(), 1);
    assert_eq!(registry.held(with("reader", HeldRequest {})).await.unwrap().into_inner().cards.len(), 0);
    let approvals = vec![Approval { name: "report".into(), hash: held.cards[0].hash.clone() }];
    let change = registry.approve(with("op", ApproveRequest { approvals })).await.unwrap().into_inner();
    assert_eq!(change.changed, ["report"]);
}
