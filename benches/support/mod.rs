//! What the benches share: settings, cards, a scripted endpoint without delay.
#![allow(dead_code, reason = "each bench uses a part")]

pub mod varied;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pointsman::config::{Loaded, Sources};
use pointsman::pipeline::{RouteRequest, Router, Settings};
use pointsman::types::{Caller, Deadline};

pub const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/shop/registry.yaml");
const CARDS: &str = include_str!("../data/tools.jsonl");

/// The product's defaults with the given settings on top; vectors are kept under `target/` between runs.
pub fn settings(flags: &[(&str, &str)]) -> Settings {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let store = root.join("target/bench-vectors.db");
    let mut all = vec![
        ("store.path".to_owned(), store.display().to_string()),
        ("log.decisions".to_owned(), "off".to_owned()),
        ("embed.models_dir".to_owned(), root.join("models").display().to_string()),
    ];
    let runtime = root.join(".runtime/onnxruntime");
    if let Some(library) = std::fs::read_dir(runtime).into_iter().flatten().flatten().map(|entry| entry.path()).next() {
        all.push(("embed.onnxruntime".to_owned(), library.display().to_string()));
    }
    all.extend(flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let sources = Sources { file: None, env: Default::default(), flags: all };
    Loaded::load(&sources).expect("bench settings are valid").settings.pipeline
}

/// The first `count` cards in a file of their own.
pub fn cards(count: usize) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/bench-cards-{count}.jsonl"));
    let mut file = std::fs::File::create(&path).expect("target/ is writable");
    for line in CARDS.lines().take(count) {
        writeln!(file, "{line}").expect("target/ is writable");
    }
    path
}

pub async fn router(registry: PathBuf, mut settings: Settings) -> Arc<Router> {
    settings.registries = vec![registry];
    Router::start(settings, &|_, _| {}).await.expect("the router starts; run `make setup` first")
}

pub fn request(utterance: &str) -> RouteRequest {
    RouteRequest { utterance: utterance.to_owned(), no_cache: true, ..RouteRequest::default() }
}

pub fn caller() -> Caller {
    Caller::local()
}

pub fn deadline() -> Deadline {
    Deadline::after(std::time::Duration::from_secs(30))
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be built")
}

/// A read tool that needs no argument: all three deciders answer it alike.
pub const UTTERANCE: &str = "我有多少积分";

/// The three ways a decision is made: name, settings on top of the defaults, whether the cache may answer.
pub async fn cases() -> Vec<(&'static str, Vec<(String, String)>, bool)> {
    let llm = llm().await;
    let llm = vec![("llm.base_url".to_owned(), llm), ("llm.model".to_owned(), "scripted".to_owned())];
    let cached = vec![("cache.min_confidence".to_owned(), "0".to_owned())];
    vec![("cache", cached, true), ("local", Vec::new(), false), ("llm", llm, false)]
}

/// An OpenAI-compatible endpoint that chooses the account tool at once; returns its base URL.
async fn llm() -> String {
    let answer = serde_json::json!({"choices": [{"message": {"role": "assistant", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "get_account_overview", "arguments": "{}"}}
    ]}}]});
    let answer = answer.to_string();
    let headers = [("content-type", "application/json")];
    let app = axum::Router::new().fallback(move || std::future::ready((headers, answer.clone())));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let address = listener.local_addr().expect("a bound port has an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/v1")
}

/// A router over the shop's cards.
pub async fn shop(flags: &[(String, String)]) -> Arc<Router> {
    router(SHOP.into(), settings(&borrowed(flags))).await
}

fn borrowed(flags: &[(String, String)]) -> Vec<(&str, &str)> {
    flags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// A real server over the shop's cards on a free loopback port; it runs as long as the runtime. Returns its URL.
pub async fn served_shop(flags: &[(String, String)]) -> String {
    let pipeline = Settings { registries: vec![SHOP.into()], ..settings(&borrowed(flags)) };
    let sources = Sources { file: None, env: Default::default(), flags: Vec::new() };
    let server = Loaded::load(&sources).expect("the defaults are valid").settings.server;
    let grpc = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let http = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let url = format!("http://{}", grpc.local_addr().expect("a bound port has an address"));
    let app = Arc::new(pointsman::server::App::new(server, pipeline).expect("no file of callers is named"));
    let serving = Arc::clone(&app);
    tokio::spawn(async move { pointsman::server::serve(grpc, http, serving, Default::default()).await });
    app.ready().await;
    url
}
