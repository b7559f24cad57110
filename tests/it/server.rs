//! What the transport promises, whatever the router decides.

use pointsman::server::Phase;
use pointsman::server::proto::registry_client::RegistryClient;
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::router_client::RouterClient;
use pointsman::server::proto::{
    DeleteRequest, GetRequest, ListRequest, PutRequest, ReloadRequest, ReplaceRequest, RouteRequest, RouteResponse,
    Turn,
};
use pointsman::server::wire::to_struct;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::support::cli::{self, Served};
use crate::support::server::{TestServer, settings};
use crate::support::{RegistryFile, native};

const SERVICES: [&str; 3] = ["", "pointsman.v1.Router", "pointsman.v1.Registry"];

async fn health_of(server: &TestServer, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.into() };
    server.health().check(request).await.unwrap().into_inner().status()
}

fn card(name: &str) -> prost_types::Struct {
    let card = json!({
        "name": name, "version": 1,
        "description": {"what": name.replace('_', " "), "when_to_use": [name.replace('_', " ")],
                        "when_not_to_use": [], "returns": "one object"},
        "parameters": {"type": "object", "properties": {}},
        "side_effect": "read", "idempotent": true, "permissions": [], "timeout_ms": 1000,
    });
    to_struct(card.as_object().unwrap())
}

async fn names(server: &TestServer) -> Vec<String> {
    let list = server.registry().list(ListRequest::default()).await.unwrap().into_inner();
    list.tools.into_iter().map(|tool| tool.name).collect()
}

/// Whether a tool was chosen or at least among those to choose from.
fn considers(response: &RouteResponse, tool: &str) -> bool {
    let chosen = match &response.outcome {
        Some(Outcome::Call(call)) => call.calls.iter().any(|call| call.tool == tool),
        Some(Outcome::Clarify(clarify)) => clarify.tool == tool,
        Some(Outcome::NoTool(_) | Outcome::Handoff(_)) | None => false,
    };
    chosen || response.candidates.iter().any(|candidate| candidate.tool == tool)
}

#[tokio::test]
async fn health_follows_the_catalog_for_every_service() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    for service in SERVICES {
        assert_eq!(health_of(&server, service).await, ServingStatus::Serving, "{service}");
    }
    let unknown = HealthCheckRequest { service: "pointsman.v1.Nothing".into() };
    assert_eq!(server.health().check(unknown).await.unwrap_err().code(), Code::NotFound);

    let (code, body) = server.http_get("/readyz").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(code, 200, "{body}");
    assert_eq!((&body["status"], &body["tools"]), (&json!("ready"), &json!(1)));
    assert_eq!(body["degraded"], json!(["lexical_only"]));
    assert_eq!(server.http_get("/healthz").await.0, 200);

    let mut watch = server.health().watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
    server.stop();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(server.app.phase(), Phase::Stopping);
    // The open watch does not keep the server from ending.
    let drained = server.stopped().await.unwrap();
    assert_eq!((drained.in_flight, drained.cut), (0, 0));
}

#[tokio::test]
async fn a_catalog_that_cannot_be_loaded_ends_the_server() {
    let server = TestServer::start_loading(settings(&["does/not/exist.yaml"])).await;
    let error = server.stopped().await.unwrap_err();
    assert!(error.to_string().contains("does/not/exist.yaml"), "{error}");
}

#[tokio::test]
async fn reflection_lists_the_services_and_describes_them() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    let ask = async |request| -> ServerReflectionResponse {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let mut client = ServerReflectionClient::new(server.channel.clone());
        let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
        answers.next().await.unwrap().unwrap()
    };
    let Some(MessageResponse::ListServicesResponse(list)) =
        ask(MessageRequest::ListServices(String::new())).await.message_response
    else {
        panic!("no list of services")
    };
    let listed: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["pointsman.v1.Router", "pointsman.v1.Registry", "grpc.health.v1.Health"] {
        assert!(listed.iter().any(|listed| listed == name), "{name} is not in {listed:?}");
    }
    let described = ask(MessageRequest::FileContainingSymbol("pointsman.v1.Router.Route".into())).await;
    assert!(matches!(described.message_response, Some(MessageResponse::FileDescriptorResponse(_))), "{described:?}");
}

#[tokio::test]
async fn bad_input_is_refused_with_the_path_of_its_field() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    let check = async |request: RouteRequest, path: &str| {
        let status = server.router().route(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status:?}");
        assert!(status.message().starts_with(&format!("{path}: ")), "{}", status.message());
        assert!(status.message().len() < 1024);
    };
    let request = |utterance: &str| RouteRequest { utterance: utterance.into(), ..RouteRequest::default() };
    check(request(""), "utterance").await;
    check(request(" \u{3000}\n"), "utterance").await;
    let turn = |role| Turn { role, content: "好的".into() };
    check(RouteRequest { history: vec![turn(1), turn(2), turn(7)], ..request("退款") }, "history[2].role").await;
    check(RouteRequest { history: vec![turn(1); 1001], ..request("refund") }, "history").await;
    assert_eq!(server.registry().put(PutRequest::default()).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(server.registry().replace(ReplaceRequest::default()).await.unwrap_err().code(), Code::InvalidArgument);
    let timeout = {
        let mut request = Request::new(request("refund"));
        request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
        server.router().route(request).await.unwrap_err()
    };
    assert_eq!(timeout.code(), Code::InvalidArgument, "{timeout:?}");
}

#[tokio::test]
async fn the_callers_trace_is_continued() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut request = Request::new(RouteRequest { utterance: "track parcel".into(), ..RouteRequest::default() });
    request.metadata_mut().insert("traceparent", format!("00-{id}-00f067aa0ba902b7-01").parse().unwrap());
    assert_eq!(server.router().route(request).await.unwrap().into_inner().trace_id, id);
}

#[tokio::test]
async fn what_was_put_is_seen_by_the_next_route_and_gone_after_delete() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    let mut client = server.registry();
    let before = server.route("water the flowers with water_plants").await.unwrap();
    let change = client.put(PutRequest { cards: vec![card("water_plants")] }).await.unwrap().into_inner();
    assert_eq!(change.added, ["water_plants"], "{change:?}");
    assert_ne!(change.catalog_version, before.catalog_version);

    let after = server.route("water the flowers with water_plants").await.unwrap();
    assert_eq!(after.catalog_version, change.catalog_version);
    assert!(considers(&after, "water_plants"), "{after:?}");
    assert!(!considers(&before, "water_plants"), "{before:?}");

    let got = client.get(GetRequest { name: "water_plants".into() }).await.unwrap().into_inner();
    assert_eq!(got.summary.unwrap().what, "water plants");
    assert_eq!(names(&server).await, ["track_parcel", "water_plants"]);

    let gone = client.delete(DeleteRequest { names: vec!["water_plants".into()] }).await.unwrap().into_inner();
    assert_eq!(gone.removed, ["water_plants"]);
    assert_eq!(client.get(GetRequest { name: "water_plants".into() }).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(names(&server).await, ["track_parcel"]);
}

#[tokio::test]
async fn a_large_registry_fits_into_one_call() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    // More than the 4 MiB at which gRPC libraries stop by default.
    let cards: Vec<_> = (0..250)
        .map(|i| {
            let mut card = card(&format!("tool_number_{i}"));
            let padding = prost_types::Value {
                kind: Some(prost_types::value::Kind::StringValue("填充 padding ".repeat(1_300))),
            };
            card.fields.insert("owner".into(), padding);
            card
        })
        .collect();
    assert!(prost::Message::encoded_len(&PutRequest { cards: cards.clone() }) > 4 << 20);
    let change = server.registry().put(PutRequest { cards }).await.unwrap().into_inner();
    assert_eq!(change.added.len(), 250, "{:?}", change.quarantined);
    assert_eq!(names(&server).await.len(), 251);
}

#[tokio::test]
async fn reload_reads_the_files_again() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    registry.write(&native(&["track_parcel", "cancel_parcel"]));
    let change = server.registry().reload(ReloadRequest {}).await.unwrap().into_inner();
    assert_eq!(change.added, ["cancel_parcel"]);
    registry.write("tools: [");
    let status = server.registry().reload(ReloadRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert_eq!(names(&server).await, ["cancel_parcel", "track_parcel"], "the last good catalog keeps serving");
}

#[test]
fn the_program_prints_its_addresses_serves_and_drains_on_sigterm() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let served = Served::start(&["--registry", registry.as_str()]);
    assert!(!served.grpc.ends_with(":0") && !served.http.ends_with(":0"), "{} {}", served.grpc, served.http);
    let ask = ["--addr", &served.grpc, "--format", "json", "use track_parcel"];
    let (code, out, err) = cli::run(&[&["route"], &ask[..]].concat());
    assert_eq!(code, 0, "{err}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["outcome"]["tool"], "track_parcel", "{answer}");

    let (code, _, err) = cli::run(&["route", "--addr", &served.grpc, " "]);
    assert_eq!(code, 2, "{err}");
    served.signal("HUP");
    served.signal("TERM");
    let (code, log) = served.wait();
    assert_eq!(code, 0, "{log}");
}

#[test]
fn the_program_says_what_it_cannot_use_with_exit_code_2() {
    let check = |args: &[&str], expect: &str| {
        let (code, out, err) = cli::run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(expect), "{args:?}: {err}");
    };
    check(&["serve", "--listen", "nonsense"], "nonsense");
    check(&["route", ""], "the utterance is empty");
    check(&["route", "where is my parcel"], "--registry");
    check(&["route", "--registry", "does/not/exist.yaml", "我的快递到哪了"], "does/not/exist.yaml");
    check(&["route", "--history", "does/not/exist.jsonl", "ok"], "does/not/exist.jsonl");
    let history = RegistryFile::new("turns.jsonl", "{\"role\":\"boss\",\"content\":\"x\"}\n");
    check(&["route", "--history", history.as_str(), "ok"], "turns.jsonl:1:");
    check(&["config", "check", "--set", "server.listen=nowhere"], "server.listen");
}

#[tokio::test]
async fn the_program_fails_with_exit_code_1() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let registry = RegistryFile::of(&["track_parcel"]);
    let args = ["serve", "--registry", registry.as_str(), "--http", "127.0.0.1:0", "--listen", &address];
    let (code, _, err) = cli::run(&args);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains(&format!("cannot listen on {address}")) && err.contains("--listen"), "{err}");

    drop(taken);
    let (code, _, err) = cli::run(&["route", "--addr", &address, "where is my parcel"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains(&format!("cannot reach a server at {address}")) && err.contains("pointsman serve"), "{err}");
}

#[test]
fn help_names_commands_and_exit_codes() {
    let (code, out, _) = cli::run(&["--help"]);
    assert_eq!(code, 0);
    for word in ["serve", "route", "config", "Exit codes", "POINTSMAN_"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

/// Clients are cheap to make from an address, which is all a user has.
#[tokio::test]
async fn clients_connect_by_address() {
    let registry = RegistryFile::of(&["track_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    let address = format!("http://{}", server.grpc);
    let mut router: RouterClient<Channel> = RouterClient::connect(address.clone()).await.unwrap();
    let mut registry: RegistryClient<Channel> = RegistryClient::connect(address).await.unwrap();
    let request = RouteRequest { utterance: "track_parcel".into(), ..RouteRequest::default() };
    let version = router.route(request).await.unwrap().into_inner().catalog_version;
    assert_eq!(registry.list(ListRequest::default()).await.unwrap().into_inner().catalog_version, version);
}
