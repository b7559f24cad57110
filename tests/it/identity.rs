//! Callers with tokens: who is admitted, what each one sees, and that tenants stay apart.

use std::path::Path;

use pointsman::retrieve::Basis;
use pointsman::server::proto::registry_client::RegistryClient;
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::router_client::RouterClient;
use pointsman::server::proto::{
    DeleteRequest, ListRequest, PutRequest, ReloadRequest, ReplaceRequest, RouteRequest, RouteResponse,
};
use sha2::{Digest, Sha256};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;

use crate::support::cli::run;
use crate::support::server::{TestServer, ask, called, question_of, settings};
use crate::support::shop;

const ORDER: &str = "SO-20260418000736";

/// Sends one `authorization` header for each of the values.
#[derive(Clone)]
struct Headers(&'static [&'static str]);

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        for value in self.0 {
            request.metadata_mut().append("authorization", value.parse().unwrap());
        }
        Ok(request)
    }
}

const READER: Headers = Headers(&["Bearer reader-token"]);
const OTHER: Headers = Headers(&["bearer other-token"]);
const ADMIN: Headers = Headers(&["Bearer admin-token"]);

fn entry(name: &str, token: &str, rest: &str) -> String {
    let digest: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[callers]]\nname = \"{name}\"\ntoken_sha256 = \"{digest}\"\n{rest}\n")
}

fn write_callers(path: &Path) {
    let callers = entry("读者", "reader-token", "tenant = \"acme\"\nscopes = [\"orders:read\"]")
        + &entry("other", "other-token", "scopes = [\"orders:read\"]")
        + &entry("admin", "admin-token", "scopes = [\"*\"]\nadmin = true");
    std::fs::write(path, callers).unwrap();
}

struct Fixture {
    server: TestServer,
    folder: tempfile::TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("callers.toml");
        write_callers(&path);
        let mut settings = settings(&[shop()]);
        settings.server.identity.callers = Some(path);
        // What is decided in a degraded mode is not kept.
        settings.pipeline.retrieve.basis = Basis::Lexical;
        Self { server: TestServer::start(settings).await, folder }
    }

    async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.server.grpc)).unwrap().connect().await.unwrap()
    }

    async fn router(&self, headers: Headers) -> RouterClient<InterceptedService<Channel, Headers>> {
        RouterClient::with_interceptor(self.channel().await, headers)
    }

    async fn registry(&self, headers: Headers) -> RegistryClient<InterceptedService<Channel, Headers>> {
        RegistryClient::with_interceptor(self.channel().await, headers)
    }

    async fn route(&self, headers: Headers, request: RouteRequest) -> Result<RouteResponse, Status> {
        self.router(headers).await.route(request).await.map(tonic::Response::into_inner)
    }
}

#[tokio::test]
async fn a_token_admits_and_its_scopes_decide_what_is_seen() {
    let fixture = Fixture::start().await;
    let refused: [&[&str]; 6] = [
        &[],
        &["Bearer wrong-token"],
        &["Basic reader-token"],
        &["Bearer "],
        &["reader-token"],
        &["Bearer reader-token", "Bearer admin-token"],
    ];
    for headers in refused {
        let status = fixture.route(Headers(headers), ask("get_order")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{headers:?}: {status:?}");
        assert!(!status.message().contains("-token"), "{status:?}");
    }
    let utterance = format!("get_order {ORDER}");
    let answer = fixture.route(READER, ask(&utterance)).await.unwrap();
    assert_eq!(called(&answer).0, "get_order");
    let refund = ask(&format!("preview_refund {ORDER}"));
    let answer = fixture.route(READER, refund.clone()).await.unwrap();
    assert!(answer.candidates.iter().all(|candidate| candidate.tool != "preview_refund"), "{answer:?}");
    assert_eq!(called(&fixture.route(ADMIN, refund).await.unwrap()).0, "preview_refund");

    // Probes need no token.
    let health = HealthCheckRequest { service: String::new() };
    assert!(fixture.server.health().check(health).await.is_ok());
    assert_eq!(fixture.server.http_get("/readyz").await.0, 200);
}

#[tokio::test]
async fn only_an_administrator_changes_the_registry_or_sees_all_of_it() {
    let fixture = Fixture::start().await;
    let mut reader = fixture.registry(READER).await;
    let seen = reader.list(ListRequest::default()).await.unwrap().into_inner().tools;
    let all = fixture.registry(ADMIN).await.list(ListRequest::default()).await.unwrap().into_inner().tools;
    assert!(!seen.is_empty() && seen.len() < all.len(), "{} of {}", seen.len(), all.len());
    let refused = [
        reader.put(PutRequest::default()).await.unwrap_err(),
        reader.delete(DeleteRequest { names: vec!["get_order".into()] }).await.unwrap_err(),
        reader.replace(ReplaceRequest::default()).await.unwrap_err(),
        reader.reload(ReloadRequest::default()).await.unwrap_err(),
    ];
    assert_eq!(refused.map(|status| status.code()), [Code::PermissionDenied; 4]);
    let mut nobody = fixture.registry(Headers(&[])).await;
    assert_eq!(nobody.list(ListRequest::default()).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(nobody.reload(ReloadRequest::default()).await.unwrap_err().code(), Code::Unauthenticated);

    // The callers are read with the rest: a token that was taken away stops working, a broken file changes nothing.
    let mut admin = fixture.registry(ADMIN).await;
    let path = fixture.folder.path().join("callers.toml");
    std::fs::write(&path, "callers = 7").unwrap();
    assert_eq!(admin.reload(ReloadRequest::default()).await.unwrap_err().code(), Code::FailedPrecondition);
    assert!(reader.list(ListRequest::default()).await.is_ok());
    std::fs::write(&path, entry("admin", "admin-token", "admin = true")).unwrap();
    admin.reload(ReloadRequest::default()).await.unwrap();
    assert_eq!(reader.list(ListRequest::default()).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn tenants_share_neither_cached_decisions_nor_open_questions() {
    let fixture = Fixture::start().await;
    let cached = |answer: &RouteResponse| answer.trace.as_ref().unwrap().cache.clone();
    let request = ask(&format!("get_order {ORDER}"));
    assert_eq!(cached(&fixture.route(READER, request.clone()).await.unwrap()), "miss");
    assert_eq!(cached(&fixture.route(READER, request.clone()).await.unwrap()), "hit");
    assert_eq!(cached(&fixture.route(OTHER, request).await.unwrap()), "miss");

    let open = fixture.route(READER, ask("get_order")).await.unwrap();
    let pending = question_of(&open).pending.clone();
    assert!(!pending.is_empty());
    let answer = RouteRequest { pending, ..ask(ORDER) };
    let crossed = fixture.route(OTHER, answer.clone()).await.unwrap();
    let notes = &crossed.trace.as_ref().unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("not known any more")), "{notes:?}");
    let own = fixture.route(READER, answer).await.unwrap();
    assert!(matches!(own.outcome, Some(Outcome::Call(_))), "{own:?}");
    assert!(own.trace.as_ref().unwrap().notes.iter().any(|note| note.contains("answers an open question")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_shows_a_token_from_a_file() {
    let fixture = Fixture::start().await;
    let token = fixture.folder.path().join("token");
    std::fs::write(&token, "reader-token\n").unwrap();
    let address = format!("http://{}", fixture.server.grpc);
    let utterance = format!("get_order {ORDER}");
    let route = async |rest: &[&str]| {
        let flags = [&["route", "--addr", &address, &utterance][..], rest].concat();
        let flags: Vec<String> = flags.into_iter().map(str::to_owned).collect();
        let work = move || run(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        tokio::task::spawn_blocking(work).await.unwrap()
    };
    let (code, out, err) = route(&["--token-file", &token.display().to_string()]).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("get_order"), "{out}");
    let (code, _, err) = route(&[]).await;
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("--token-file"), "{err}");
}
