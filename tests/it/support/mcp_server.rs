//! A small MCP server over streamable HTTP whose tools behave as their names say, and whose list of tools is as a test
//! wants it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

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
    list: Mutex<List>,
    /// Those who listen for notifications.
    listeners: Mutex<Vec<UnboundedSender<String>>>,
}

/// What `tools/list` answers.
#[derive(Default)]
struct List {
    tools: Vec<Value>,
    /// 0: all on one page.
    per_page: usize,
    fault: Option<ListFault>,
    /// Listings that were begun.
    asked: usize,
}

/// What is wrong with a listing.
#[derive(Clone)]
pub enum ListFault {
    /// Not only listings: nothing is answered but 503, and whoever listens is cut off.
    Down,
    Hangs,
    /// An error of JSON-RPC.
    Refuses,
    /// This result, whatever it is.
    Says(Value),
    /// This body, whatever it is, as JSON.
    Sends(Vec<u8>),
    /// Every page leads to the same next one.
    Circles,
    /// Every page leads to another.
    NeverEnds,
}

impl McpServer {
    /// A server with these tools that tells its listeners of changes.
    pub async fn of(tools: Vec<Value>) -> Self {
        let server = Self::start().await;
        server.inner.list.lock().unwrap().tools = tools;
        server
    }

    /// Changes the list without a word.
    pub fn set_tools(&self, tools: Vec<Value>) {
        self.inner.list.lock().unwrap().tools = tools;
    }

    pub fn per_page(&self, tools: usize) {
        self.inner.list.lock().unwrap().per_page = tools;
    }

    pub fn set_fault(&self, fault: Option<ListFault>) {
        if matches!(fault, Some(ListFault::Down)) {
            self.inner.listeners.lock().unwrap().clear();
        }
        self.inner.list.lock().unwrap().fault = fault;
    }

    /// Listings that were begun.
    pub fn listings(&self) -> usize {
        self.inner.list.lock().unwrap().asked
    }

    pub fn listeners(&self) -> usize {
        self.inner.listeners.lock().unwrap().len()
    }

    /// Says that the list changed.
    pub fn tell(&self) {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let event = format!("event: message\ndata: {note}\n\n");
        self.inner.listeners.lock().unwrap().retain(|listener| listener.send(event.clone()).is_ok());
    }

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
    if matches!(inner.list.lock().unwrap().fault, Some(ListFault::Down)) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if parts.method == Method::GET && !inner.list.lock().unwrap().tools.is_empty() {
        return listen(&inner);
    }
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
        "tools/list" => list(&inner, &message["params"], &id).await,
        "ping" => reply(json!({})),
        _ if id.is_null() => StatusCode::ACCEPTED.into_response(),
        _ => json_rpc(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})),
    }
}

/// A stream of notifications.
fn listen(inner: &Inner) -> Response {
    let (sender, events) = unbounded_channel();
    inner.listeners.lock().unwrap().push(sender);
    let events = UnboundedReceiverStream::new(events).map(Ok::<_, std::convert::Infallible>);
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

async fn list(inner: &Inner, params: &Value, id: &Value) -> Response {
    let reply = |result: Value| json_rpc(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    let (tools, next, fault) = {
        let mut list = inner.list.lock().unwrap();
        let start: usize = params["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
        list.asked += usize::from(start == 0);
        let per_page = if list.per_page == 0 { list.tools.len() } else { list.per_page };
        let tools: Vec<Value> = list.tools.iter().skip(start).take(per_page).cloned().collect();
        let end = start + tools.len();
        (tools, (end < list.tools.len()).then(|| end.to_string()), list.fault.clone())
    };
    match fault {
        None | Some(ListFault::Down) => {
            let mut result = json!({"tools": tools});
            if let Some(next) = next {
                result["nextCursor"] = next.into();
            }
            reply(result)
        }
        Some(ListFault::Hangs) => std::future::pending().await,
        Some(ListFault::Refuses) => {
            let error = json!({"code": -32603, "message": "database\nis down"});
            json_rpc(json!({"jsonrpc": "2.0", "id": id, "error": error}))
        }
        Some(ListFault::Says(result)) => reply(result),
        Some(ListFault::Sends(body)) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Some(ListFault::Circles) => reply(json!({"tools": [], "nextCursor": "7"})),
        Some(ListFault::NeverEnds) => {
            let page: usize = params["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
            reply(json!({"tools": [], "nextCursor": (page + 1).to_string()}))
        }
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
