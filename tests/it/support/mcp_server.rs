//! A small MCP server over streamable HTTP whose tools behave as their names say.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub struct McpServer {
    url: String,
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Inner {
    /// Sessions count up; those below are forgotten.
    sessions: AtomicUsize,
    oldest: AtomicUsize,
    connections: AtomicUsize,
    calls: Mutex<Vec<Value>>,
    cancelled: AtomicUsize,
    keys: Mutex<Vec<String>>,
}

impl McpServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let inner = Arc::new(Inner::default());
        let app = Router::new().fallback(serve).with_state(inner.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, inner, task }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sessions that were begun.
    pub fn sessions(&self) -> usize {
        self.inner.sessions.load(Ordering::SeqCst)
    }

    /// Requests of any kind.
    pub fn requests(&self) -> usize {
        self.inner.connections.load(Ordering::SeqCst)
    }

    /// `params` of each `tools/call`.
    pub fn calls(&self) -> Vec<Value> {
        self.inner.calls.lock().unwrap().clone()
    }

    /// Calls whose client said that it no longer waits.
    pub fn cancelled(&self) -> usize {
        self.inner.cancelled.load(Ordering::SeqCst)
    }

    /// `X-Api-Key` headers.
    pub fn keys(&self) -> Vec<String> {
        self.inner.keys.lock().unwrap().clone()
    }

    /// Forgets every session, as a restart does.
    pub fn forget(&self) {
        self.inner.oldest.store(self.sessions(), Ordering::SeqCst);
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    inner.connections.fetch_add(1, Ordering::SeqCst);
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    inner.keys.lock().unwrap().extend(header("x-api-key"));
    if parts.method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let session = header("mcp-session-id").map(|id| id.trim_start_matches("s-").parse::<usize>().unwrap_or(0));
    if session.is_some_and(|session| session <= inner.oldest.load(Ordering::SeqCst)) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let message: Value = serde_json::from_slice(&to_bytes(body, 1 << 20).await.unwrap()).unwrap();
    let id = message["id"].clone();
    let reply = |result: Value| json_rpc(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let session = inner.sessions.fetch_add(1, Ordering::SeqCst) + 1;
            let mut response = reply(json!({"protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "desk", "version": "1"}}));
            response.headers_mut().insert("mcp-session-id", format!("s-{session}").parse().unwrap());
            response
        }
        "tools/call" => {
            inner.calls.lock().unwrap().push(message["params"].clone());
            call(&message["params"], &id).await
        }
        "notifications/cancelled" => {
            inner.cancelled.fetch_add(1, Ordering::SeqCst);
            StatusCode::ACCEPTED.into_response()
        }
        "tools/list" => reply(json!({"tools": []})),
        _ if id.is_null() => StatusCode::ACCEPTED.into_response(),
        _ => json_rpc(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})),
    }
}

async fn call(params: &Value, id: &Value) -> Response {
    let reply = |result: Value| json_rpc(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    let fail = |code: i64, message: &str| {
        json_rpc(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
    };
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    match params["name"].as_str().unwrap_or_default() {
        "structured" => {
            let mut result = text("for people");
            result["structuredContent"] = json!({"order_id": params["arguments"]["order_id"], "状态": "已发货"});
            reply(result)
        }
        "text" => reply(text(r#"{"status":"30"}"#)),
        "words" => reply(text("没有找到")),
        "long" => reply(text(&"长".repeat(10_000))),
        "fails" => {
            let mut result = text("Traceback: orders.py line 7");
            result["isError"] = true.into();
            reply(result)
        }
        "unwell" => fail(-32603, "internal"),
        "limited" => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "9")]).into_response(),
        "down" => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "locked" => (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response(),
        "garbage" => ([(header::CONTENT_TYPE, "text/html")], "<html>").into_response(),
        "half" => ([(header::CONTENT_TYPE, "application/json")], r#"{"jsonrpc":"2.0","#).into_response(),
        "endless" => ([(header::CONTENT_TYPE, "application/json")], "1".repeat(4 << 20)).into_response(),
        "dies" => std::panic::resume_unwind(Box::new("told to die")),
        "hangs" => std::future::pending().await,
        _ => fail(-32602, "unknown tool"),
    }
}

fn json_rpc(message: Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], Body::from(message.to_string())).into_response()
}
