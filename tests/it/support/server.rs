//! The real server, in this process, on ports the system picks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pointsman::config::{Loaded, Settings, Sources};
use pointsman::decision::log::Target;
use pointsman::server::proto::gate_client::GateClient;
use pointsman::server::proto::registry_client::RegistryClient;
use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::router_client::RouterClient;
use pointsman::server::proto::{Call, Clarify, PlannedCall, RouteRequest, RouteResponse, Trace};
use pointsman::server::{App, Drained, ServeError, serve};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::health_client::HealthClient;

/// Defaults with these registries, words alone (no encoder to load), no decision log, nothing from the environment.
pub fn settings<P: AsRef<Path>>(registries: &[P]) -> Settings {
    let sources = Sources { file: None, env: BTreeMap::new(), flags: Vec::new() };
    let mut settings = Loaded::load(&sources).unwrap().settings;
    settings.pipeline.registries = registries.iter().map(|path| path.as_ref().to_path_buf()).collect();
    settings.pipeline.log.target = Target::Off;
    // A test says itself when files are read.
    settings.server.watch = None;
    settings.pipeline.store = None;
    settings.pipeline.embed.encoders = Vec::new();
    settings.pipeline.allow_lexical_only = true;
    settings
}

/// The same with the encoders that ship with the repository. Loading them takes a second: few, fat tests use them.
pub fn settings_with_encoders<P: AsRef<Path>>(registries: &[P]) -> Settings {
    let lexical = settings(registries);
    let defaults = Loaded::load(&Sources { file: None, env: BTreeMap::new(), flags: Vec::new() }).unwrap().settings;
    let mut settings = lexical;
    settings.pipeline.embed = defaults.pipeline.embed;
    settings.pipeline.embed.models_dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models");
    settings.pipeline.allow_lexical_only = false;
    settings
}

/// Where tests keep vectors between runs: a fresh embedding of the sample cards takes seconds. Nothing is put into it.
pub fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("vectors.db")
}

/// The sample registry with the encoders, and the given settings on top.
pub fn shop_settings(flags: &[(&str, &str)]) -> Settings {
    let models = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models");
    let fixed = [
        ("registry.files", super::shop().display().to_string()),
        ("store.path", vectors().display().to_string()),
        ("embed.models_dir", models.display().to_string()),
        ("log.decisions", "off".to_owned()),
    ];
    let mut settings = load(fixed.into_iter().chain(flags.iter().map(|(key, value)| (*key, (*value).to_owned()))));
    // What one test served says nothing about another.
    if settings.pipeline.store.as_ref() == Some(&vectors()) {
        settings.pipeline.stored_cards = false;
    }
    settings
}

/// The sample registry by words alone, decided by the endpoint at `url`, and the given settings on top.
pub fn llm_settings(url: &str, flags: &[(&str, &str)]) -> Settings {
    let fixed = [
        ("registry.files", super::shop().display().to_string()),
        ("store.path", ":memory:".to_owned()),
        ("log.decisions", "off".to_owned()),
        ("embed.allow_lexical_only", "true".to_owned()),
        ("llm.base_url", url.to_owned()),
        ("llm.model", "scripted".to_owned()),
    ];
    let mut settings = load(fixed.into_iter().chain(flags.iter().map(|(key, value)| (*key, (*value).to_owned()))));
    settings.pipeline.embed.encoders = Vec::new();
    settings
}

fn load<'a>(flags: impl Iterator<Item = (&'a str, String)>) -> Settings {
    let flags = [("registry.watch", "false".to_owned())].into_iter().chain(flags);
    let flags = flags.map(|(key, value)| (key.to_owned(), value)).collect();
    Loaded::load(&Sources { file: None, env: BTreeMap::new(), flags }).unwrap().settings
}

/// A request with nothing but an utterance.
pub fn ask(utterance: &str) -> RouteRequest {
    RouteRequest { utterance: utterance.into(), ..RouteRequest::default() }
}

/// The one call of an answer.
#[track_caller]
pub fn call_of(response: &RouteResponse) -> &PlannedCall {
    match &response.outcome {
        Some(Outcome::Call(Call { calls })) if calls.len() == 1 => &calls[0],
        other => panic!("no single call: {other:?}"),
    }
}

/// Tool and exact arguments of the one call of an answer.
#[track_caller]
pub fn called(response: &RouteResponse) -> (&str, Value) {
    let call = call_of(response);
    (&call.tool, serde_json::from_str(&call.arguments_json).unwrap())
}

#[track_caller]
pub fn question_of(response: &RouteResponse) -> &Clarify {
    match &response.outcome {
        Some(Outcome::Clarify(clarify)) => clarify,
        other => panic!("no question: {other:?}"),
    }
}

/// Why no tool was chosen.
#[track_caller]
pub fn declined(response: &RouteResponse) -> &str {
    match &response.outcome {
        Some(Outcome::NoTool(none)) => &none.reason,
        other => panic!("not declined: {other:?}"),
    }
}

/// The tools among which the decision was made, best first.
pub fn candidates(response: &RouteResponse) -> Vec<&str> {
    response.candidates.iter().map(|candidate| candidate.tool.as_str()).collect()
}

pub fn trace(response: &RouteResponse) -> &Trace {
    response.trace.as_ref().unwrap()
}

/// A server that stops when this is dropped.
pub struct TestServer {
    pub app: Arc<App>,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub channel: Channel,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<Drained, ServeError>>>,
}

impl TestServer {
    /// Returns when the catalog is loaded.
    pub async fn start(settings: Settings) -> Self {
        let mut server = Self::start_loading(settings).await;
        let app = server.app.clone();
        let task = server.task.as_mut().unwrap();
        tokio::select! {
            ready = app.ready() => assert!(ready, "the server stopped while loading"),
            ended = task => panic!("the server did not start: {:?}", ended.unwrap()),
        }
        server
    }

    /// Returns as soon as the ports are open.
    pub async fn start_loading(settings: Settings) -> Self {
        let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (grpc_addr, http_addr) = (grpc.local_addr().unwrap(), http.local_addr().unwrap());
        let app = Arc::new(App::new(settings.server, settings.pipeline).unwrap());
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(grpc, http, app.clone(), stop.clone()));
        let channel = Endpoint::from_shared(format!("http://{grpc_addr}")).unwrap().connect_lazy();
        Self { app, grpc: grpc_addr, http: http_addr, channel, stop, task: Some(task) }
    }

    pub fn router(&self) -> RouterClient<Channel> {
        RouterClient::new(self.channel.clone())
    }

    pub fn registry(&self) -> RegistryClient<Channel> {
        RegistryClient::new(self.channel.clone())
    }

    pub fn gate(&self) -> GateClient<Channel> {
        GateClient::new(self.channel.clone())
    }

    pub fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel.clone())
    }

    pub fn http_url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Routes a bare utterance.
    pub async fn route(&self, utterance: &str) -> Result<RouteResponse, Status> {
        self.ask(ask(utterance)).await
    }

    pub async fn ask(&self, request: RouteRequest) -> Result<RouteResponse, Status> {
        self.router().route(request).await.map(tonic::Response::into_inner)
    }

    /// Routes with the time the caller has.
    pub async fn ask_within(&self, request: RouteRequest, time: Duration) -> Result<RouteResponse, Status> {
        let mut request = tonic::Request::new(request);
        request.set_timeout(time);
        self.router().route(request).await.map(tonic::Response::into_inner)
    }

    /// Status code and body of a path on the HTTP port.
    pub async fn http_get(&self, path: &str) -> (u16, String) {
        let response = reqwest::get(format!("{}{path}", self.http_url())).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// The signal alone; [`Self::stopped`] waits for the end.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub async fn stopped(mut self) -> Result<Drained, ServeError> {
        self.task.take().unwrap().await.unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
