//! A downstream service that counts its effects and can be told to misbehave, and a small registry of tools that run there.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::RegistryFile;
use super::server::{TestServer, settings};

/// How the next request is answered, once its effect has happened.
#[derive(Debug, Clone)]
pub enum Fault {
    /// No answer ever.
    Hang,
    Late(Duration),
    Status(u16, Value),
    /// A body as it is.
    Text(u16, &'static str),
}

/// One request as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub key: Option<String>,
    pub body: Value,
}

#[derive(Debug, Default)]
struct Inner {
    seen: Vec<Seen>,
    faults: VecDeque<Fault>,
    answers: BTreeMap<String, Value>,
}

/// Counts every request as an effect; stops when it is dropped.
#[derive(Debug)]
pub struct Downstream {
    pub address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
    task: tokio::task::JoinHandle<()>,
}

impl Downstream {
    pub async fn start() -> Self {
        let inner = Arc::new(Mutex::new(Inner::default()));
        let app = Router::new().fallback(serve).with_state(inner.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, inner, task }
    }

    /// The next requests go wrong in this way, one each.
    pub fn fault(&self, fault: Fault) {
        self.inner.lock().unwrap().faults.push_back(fault);
    }

    /// What requests to `path` are answered from now on.
    pub fn answer(&self, path: &str, body: Value) {
        self.inner.lock().unwrap().answers.insert(path.into(), body);
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.inner.lock().unwrap().seen.clone()
    }

    /// Requests to `path`.
    pub fn effects(&self, path: &str) -> usize {
        self.inner.lock().unwrap().seen.iter().filter(|seen| seen.path == path).count()
    }

    pub fn target(&self) -> String {
        format!("{{here = {{base_url = \"http://{}\", allow_private = true}}}}", self.address)
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    State(inner): State<Arc<Mutex<Inner>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (fault, answer) = {
        let mut inner = inner.lock().unwrap();
        inner.seen.push(Seen {
            method: method.to_string(),
            path: uri.path().into(),
            query: uri.query().unwrap_or_default().into(),
            key: headers.get("idempotency-key").map(|key| key.to_str().unwrap().into()),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        });
        let count = inner.seen.len();
        let answer = inner.answers.get(uri.path()).cloned();
        (inner.faults.pop_front(), answer.unwrap_or_else(|| json!({"done": true, "number": count})))
    };
    let json = |status: u16, body: Value| {
        let headers = [("content-type", "application/json")];
        (StatusCode::from_u16(status).unwrap(), headers, body.to_string()).into_response()
    };
    match fault {
        None => json(200, answer),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Late(time)) => {
            tokio::time::sleep(time).await;
            json(200, answer)
        }
        Some(Fault::Status(status, body)) => json(status, body),
        Some(Fault::Text(status, body)) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
    }
}

const ID: &str = r"id: {type: string, pattern: '^[A-Z]{2}\d{2}$'}";

/// One native card; `more` are its further lines.
fn card(name: &str, what: &str, properties: &str, required: &str, class: &str, run: &str, more: &str) -> String {
    let idempotent = class == "read";
    format!(
        "  - name: {name}\n    version: 1\n    description: {{what: \"{what}\", when_to_use: [\"{name}\"], \
         when_not_to_use: [], returns: \"one object\"}}\n    parameters: {{type: object, additionalProperties: false, \
         properties: {{{properties}}}, required: [{required}]}}\n    side_effect: {class}\n    idempotent: {idempotent}\n    \
         timeout_ms: 1000\n    run: {{target: here, {run}}}\n{more}"
    )
}

fn cards() -> String {
    let amount = "amount: {type: number, minimum: 1}";
    let token = "confirm_token: {type: string, pattern: '^ct_[a-z0-9]{16}$'}";
    let free = "    permissions: []\n";
    let all = [
        card("read_thing", "Read one thing", ID, "id", "read", "method: GET, path: \"/things/{id}\"", free),
        card(
            "write_note",
            "Write a note",
            &format!("{ID}, text: {{type: string, maxLength: 200}}"),
            "id, text",
            "write",
            "method: POST, path: /notes",
            "    permissions: []\n    idempotency_ttl_s: 600\n",
        ),
        card(
            "wipe",
            "Wipe a thing for good",
            ID,
            "id",
            "destructive",
            "method: DELETE, path: \"/things/{id}\"",
            "    permissions: []\n    confirmation: {by: gate}\n    fallback: read_thing\n",
        ),
        card(
            "preview_pay",
            "Compute a payment",
            &format!("{ID}, {amount}"),
            "id",
            "read",
            "method: POST, path: /previews",
            free,
        ),
        card(
            "pay",
            "Pay out a previewed sum",
            &format!("{ID}, {amount}, {token}"),
            "id, confirm_token",
            "destructive",
            "method: POST, path: /payments",
            "    permissions: [\"pay:write\"]\n    confirmation: {by: preview_tool, tool: preview_pay, token_param: confirm_token}\n",
        ),
        card(
            "fire",
            "Set off the fireworks",
            ID,
            "id",
            "destructive",
            "method: POST, path: /fire",
            "    permissions: []\n    execution: propose_only\n",
        ),
    ];
    format!(
        "registry: here\nversion: 1\nscopes:\n  - {{name: \"pay:write\", about: \"Pay money out\", granted_by: \"the head of \
         finance\"}}\ntools:\n{}",
        all.concat()
    )
}

/// A registry of tools that run at a target named `here`.
pub fn registry() -> RegistryFile {
    RegistryFile::new("registry.yaml", &cards())
}

/// A server over [`registry`] whose tools run at `downstream`.
pub async fn serve_at(downstream: &Downstream, store: Option<&std::path::Path>) -> (TestServer, RegistryFile) {
    let registry = registry();
    let mut settings = settings(&[&registry.path]);
    let flags = vec![("execute.targets".to_owned(), downstream.target())];
    let sources = pointsman::config::Sources { flags, ..Default::default() };
    settings.pipeline.execute = pointsman::config::Loaded::load(&sources).unwrap().settings.pipeline.execute;
    settings.pipeline.store = store.map(Into::into);
    (TestServer::start(settings).await, registry)
}
