//! Callers with tokens: who is admitted, what each one sees, and that tenants stay apart.

use std::path::Path;

use pointsman::config::{AuditTarget, Loaded, Sources};
use pointsman::retrieve::Basis;
use pointsman::server::proto::registry_client::RegistryClient;
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::router_client::RouterClient;
use pointsman::server::proto::{
    ChangeResponse, DeleteRequest, GetRequest, LintRequest, ListRequest, PutRequest, ReloadRequest, ReplaceRequest,
    RouteRequest, RouteResponse,
};
use pointsman::server::wire::to_struct;
use serde_json::{Value, json};
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
const ACME: Headers = Headers(&["Bearer acme-token"]);
const GLOBEX: Headers = Headers(&["Bearer globex-token"]);

fn entry(name: &str, token: &str, rest: &str) -> String {
    let digest: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[callers]]\nname = \"{name}\"\ntoken_sha256 = \"{digest}\"\n{rest}\n")
}

fn write_callers(path: &Path) {
    let callers = entry("读者", "reader-token", "tenant = \"acme\"\nscopes = [\"orders:read\"]")
        + &entry("other", "other-token", "scopes = [\"orders:read\"]")
        + &entry("admin", "admin-token", "scopes = [\"*\"]\noperator = true")
        + &entry("acme 管理员", "acme-token", "tenant = \"acme\"\nadmin = true")
        + &entry("globex admin", "globex-token", "tenant = \"globex\"\nscopes = [\"*\"]\nadmin = true");
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
        settings.server.audit = AuditTarget::File(folder.path().join("audit.jsonl"));
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

    async fn names(&self, headers: Headers) -> Vec<String> {
        let list = self.registry(headers).await.list(ListRequest::default()).await.unwrap().into_inner();
        list.tools.into_iter().map(|tool| tool.name).collect()
    }

    async fn put(&self, headers: Headers, cards: &[Value]) -> Result<ChangeResponse, Status> {
        let cards = cards.iter().map(|card| to_struct(card.as_object().unwrap())).collect();
        self.registry(headers).await.put(PutRequest { cards }).await.map(tonic::Response::into_inner)
    }

    async fn delete(&self, headers: Headers, names: &[&str]) -> Result<ChangeResponse, Status> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.registry(headers).await.delete(DeleteRequest { names }).await.map(tonic::Response::into_inner)
    }

    /// Caller, method and outcome of every line of the audit record.
    fn audited(&self) -> Vec<(String, String, String)> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let word = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
        lines.map(|line| (word(&line, "caller"), word(&line, "method"), word(&line, "outcome"))).collect()
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
    std::fs::write(&path, entry("admin", "admin-token", "operator = true")).unwrap();
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

fn card(name: &str, more: Value) -> Value {
    let mut card = json!({
        "name": name, "version": 1,
        "description": {"what": name.replace('_', " "), "when_to_use": [name.replace('_', " ")],
                        "when_not_to_use": [], "returns": "one object"},
        "parameters": {"type": "object", "properties": {}},
        "side_effect": "read", "idempotent": true, "permissions": [], "timeout_ms": 1000,
    });
    card.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    card
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|one| one == name)
}

#[tokio::test]
async fn lint_speaks_of_what_its_caller_administers_alone() {
    let fixture = Fixture::start().await;
    // Two cards that say the same, each of another tenant.
    for (headers, name) in [(ACME, "acme_report"), (GLOBEX, "globex_report")] {
        let change = fixture.put(headers, &[card(name, json!({}))]).await.unwrap();
        assert!(change.findings.iter().all(|finding| finding.tool == name), "{change:?}");
    }
    let lint = async |headers: Headers| {
        let answer = fixture.registry(headers).await.lint(LintRequest::default()).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status.code())
    };
    let (all, acme) = (lint(ADMIN).await.unwrap(), lint(ACME).await.unwrap());
    assert_eq!((all.cards, acme.cards), (28, 27));
    let said = format!("{acme:?}");
    assert!(said.contains("acme_report") && !said.contains("globex") && !said.contains(".yaml"), "{said}");
    assert!(all.findings.iter().any(|finding| finding.tool == "globex_report"), "{all:?}");
    assert_eq!(lint(READER).await.unwrap_err(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_tenants_administrator_changes_and_sees_its_own_cards_alone() {
    let fixture = Fixture::start().await;
    let shared = fixture.names(ADMIN).await.len();
    let change = fixture.put(ACME, &[card("acme_report", json!({}))]).await.unwrap();
    assert_eq!(change.added, ["acme_report"]);
    fixture.put(GLOBEX, &[card("globex_report", json!({"tenants": ["globex"]}))]).await.unwrap();

    // Views: shared cards and one's own, whatever scopes; everything for the operator.
    let (acme, globex, reader) = (fixture.names(ACME).await, fixture.names(GLOBEX).await, fixture.names(READER).await);
    assert_eq!((acme.len(), globex.len()), (shared + 1, shared + 1));
    assert!(has(&acme, "acme_report") && !has(&acme, "globex_report"), "{acme:?}");
    assert!(has(&globex, "globex_report") && !has(&globex, "acme_report"), "{globex:?}");
    assert!(has(&reader, "acme_report") && !has(&reader, "globex_report"), "{reader:?}");
    assert_eq!(fixture.names(ADMIN).await.len(), shared + 2);
    let get = async |headers: Headers, name: &str| {
        fixture
            .registry(headers)
            .await
            .get(GetRequest { name: name.into() })
            .await
            .map(drop)
            .map_err(|status| status.code())
    };
    assert_eq!(get(ACME, "acme_report").await, Ok(()));
    assert_eq!(get(GLOBEX, "acme_report").await, Err(Code::NotFound));
    assert_eq!(get(OTHER, "acme_report").await, Err(Code::NotFound));

    // Names that are taken, by all or by somebody else; tenants and executors that are not one's own to name.
    for bad in [
        card("get_order", json!({})),
        card("acme_report", json!({})),
        card("mine", json!({"tenants": ["acme", "globex"]})),
        card("mine", json!({"tenants": ["acme"]})),
        card("mine", json!({"run": {"kind": "http"}})),
    ] {
        let status = fixture.put(GLOBEX, std::slice::from_ref(&bad)).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{bad} {status:?}");
    }
    // A card may not point to what its tenant cannot see, and the answer is that of a name nobody has.
    let pointing = |tool: &str| card("mine", json!({"conflicts_with": [tool]}));
    let seen = fixture.put(GLOBEX, &[pointing("acme_report")]).await.unwrap().quarantined;
    let unseen = fixture.put(GLOBEX, &[pointing("acme_repork")]).await.unwrap().quarantined;
    assert_eq!((seen.len(), unseen.len()), (1, 1));
    let text = |quarantined: &[pointsman::server::proto::Quarantined]| {
        format!("{quarantined:?}").replace("acme_report", "x").replace("acme_repork", "x")
    };
    assert_eq!(text(&seen), text(&unseen));

    // Nothing of others is deleted, and what one cannot see is as if it were not there.
    assert_eq!(fixture.delete(GLOBEX, &["get_order"]).await.unwrap_err().code(), Code::PermissionDenied);
    let change = fixture.delete(GLOBEX, &["acme_report", "no_such_tool"]).await.unwrap();
    assert!(change.removed.is_empty() && change.notices.len() == 1, "{change:?}");
    assert!(has(&fixture.names(ACME).await, "acme_report"));
    for headers in [ACME, GLOBEX] {
        let mut registry = fixture.registry(headers).await;
        assert_eq!(registry.replace(ReplaceRequest::default()).await.unwrap_err().code(), Code::PermissionDenied);
        assert_eq!(registry.reload(ReloadRequest::default()).await.unwrap_err().code(), Code::PermissionDenied);
    }
    assert_eq!(
        fixture.put(ACME, &[card("acme_report", json!({"version": 2}))]).await.unwrap().changed,
        ["acme_report"]
    );
    assert_eq!(fixture.delete(ACME, &["acme_report"]).await.unwrap().removed, ["acme_report"]);
    assert_eq!(fixture.delete(ADMIN, &["globex_report"]).await.unwrap().removed, ["globex_report"]);
}

#[tokio::test]
async fn a_tenants_tool_is_open_to_its_callers_alone_and_answers_do_not_cross() {
    let fixture = Fixture::start().await;
    let report = || card("quarterly_turnover_report", json!({}));
    fixture.put(ACME, &[report()]).await.unwrap();
    let request = ask("quarterly_turnover_report");
    let own = fixture.route(READER, request.clone()).await.unwrap();
    assert_eq!(called(&own).0, "quarterly_turnover_report");
    let again = fixture.route(READER, request.clone()).await.unwrap();
    assert_eq!(again.trace.as_ref().unwrap().cache, "hit");
    // The operator is of another tenant, too.
    for headers in [OTHER, GLOBEX, ADMIN] {
        let answer = fixture.route(headers, request.clone()).await.unwrap();
        assert!(!format!("{answer:?}").contains("turnover_report\""), "{answer:?}");
        assert_ne!(answer.trace.as_ref().unwrap().cache, "hit");
    }
}

#[tokio::test]
async fn every_change_is_recorded_before_and_after_and_refused_without_a_record() {
    let fixture = Fixture::start().await;
    let mut reader = fixture.registry(READER).await;
    reader.delete(DeleteRequest { names: vec!["get_order".into()] }).await.unwrap_err();
    fixture.put(ACME, &[card("acme_report", json!({"owner": "a-secret-value"}))]).await.unwrap();
    fixture.put(ACME, &[card("get_order", json!({}))]).await.unwrap_err();
    fixture.registry(ADMIN).await.reload(ReloadRequest::default()).await.unwrap();
    let line = |caller: &str, method: &str, outcome: &str| (caller.to_owned(), method.to_owned(), outcome.to_owned());
    assert_eq!(
        fixture.audited(),
        [
            line("读者", "Delete", "refused"),
            line("acme 管理员", "Put", "begun"),
            line("acme 管理员", "Put", "done"),
            line("acme 管理员", "Put", "begun"),
            line("acme 管理员", "Put", "refused"),
            line("admin", "Reload", "begun"),
            line("admin", "Reload", "done"),
        ]
    );
    let path = fixture.folder.path().join("audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("acme_report") && text.contains("catalog_version"), "{text}");
    assert!(!text.contains("a-secret-value") && !text.contains("-token"), "{text}");

    // A folder cannot be appended to.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let status = fixture.put(ACME, &[card("acme_other", json!({}))]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(!has(&fixture.names(ACME).await, "acme_other"));
}

/// What an issuer publishes, and how it signs.
struct Issuer {
    key: jsonwebtoken::EncodingKey,
    url: String,
    folder: tempfile::TempDir,
}

impl Issuer {
    /// Serves its keys over HTTP until the test ends.
    async fn start() -> Self {
        let key = jsonwebtoken::EncodingKey::from_ec_der(&rcgen::KeyPair::generate().unwrap().serialize_der());
        let mut jwk = serde_json::to_value(
            jsonwebtoken::jwk::Jwk::from_encoding_key(&key, jsonwebtoken::Algorithm::ES256).unwrap(),
        )
        .unwrap();
        jwk["kid"] = "k1".into();
        let body = json!({"keys": [jwk]}).to_string();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("jwks.json"), &body).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let routes = axum::Router::new().route("/jwks.json", axum::routing::get(async move || body));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { key, url, folder }
    }

    fn token(&self, audience: &str, scope: &str) -> String {
        let exp = jsonwebtoken::get_current_timestamp() + 600;
        let claims =
            json!({"iss": "test-issuer", "aud": audience, "sub": "bot", "tenant": "acme", "exp": exp, "scope": scope});
        let header = jsonwebtoken::Header {
            kid: Some("k1".into()),
            ..jsonwebtoken::Header::new(jsonwebtoken::Algorithm::ES256)
        };
        jsonwebtoken::encode(&header, &claims, &self.key).unwrap()
    }
}

#[tokio::test]
async fn signed_tokens_and_the_proxys_header_name_callers() {
    let issuer = Issuer::start().await;
    let file = issuer.folder.path().join("jwks.json").display().to_string();
    for keys in [("identity.jwt_keys", file), ("identity.jwt_keys_url", issuer.url.clone())] {
        let flags = [
            keys,
            ("identity.jwt_issuer", "test-issuer".to_owned()),
            ("identity.jwt_audience", "pointsman".to_owned()),
            ("identity.header", "X-Pointsman-Caller".to_owned()),
        ];
        let flags = flags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let loaded = Loaded::load(&Sources { flags, ..Sources::default() }).unwrap().settings;
        let mut settings = settings(&[shop()]);
        settings.server.identity = loaded.server.identity;
        let server = TestServer::start(settings).await;
        let list = async |headers: &[(&'static str, String)]| {
            let mut request = Request::new(ListRequest::default());
            for (name, value) in headers {
                request.metadata_mut().append(*name, value.parse().unwrap());
            }
            let answer = server.registry().list(request).await;
            answer.map(|list| list.into_inner().tools.len()).map_err(|status| status.code())
        };
        let bearer =
            |audience: &str, scope: &str| ("authorization", format!("Bearer {}", issuer.token(audience, scope)));
        let some = list(&[bearer("pointsman", "orders:read")]).await.unwrap();
        let all = list(&[bearer("pointsman", "pointsman:operator")]).await.unwrap();
        assert!(0 < some && some < all, "{some} {all}");
        assert_eq!(list(&[bearer("another-service", "pointsman:operator")]).await, Err(Code::Unauthenticated));
        let header = |value: &str| ("x-pointsman-caller", value.to_owned());
        assert_eq!(list(&[header("bot; acme; orders:read")]).await, Ok(some));
        assert_eq!(
            list(&[header("bot; acme"), header("root; x; pointsman:operator")]).await,
            Err(Code::Unauthenticated)
        );
        assert_eq!(list(&[header("bot"), bearer("pointsman", "")]).await, Err(Code::Unauthenticated));
        assert_eq!(list(&[]).await, Err(Code::Unauthenticated), "no credential is no operator, also on this machine");
    }
}
