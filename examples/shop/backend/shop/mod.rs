//! The shop as a server: requests in, answers out, faults on request.
//!
//! [`Shop::start`] serves until it is dropped. Everything a test wants to know is at `GET /_effects` and in
//! [`Shop::effects`]; how a tool should fail is told at `POST /_faults` or with [`Shop::fault`].

// Programs that include this folder use parts of it each.
#![allow(dead_code)]

mod answer;
mod data;
mod faults;
mod orders;
mod request;
mod routes;
mod service;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use answer::Answer;
pub use faults::Fault;
use faults::Faults;
use request::Asked;
use state::State;

/// The order that most examples speak of: sent, not yet arrived.
pub const SENT: &str = "SO-20260418000736";
/// Paid, not sent: can be cancelled and redirected.
pub const UNSENT: &str = "SO-20260420000151";
/// Arrived: can be returned and refunded.
pub const DELIVERED: &str = "SO-20260402000088";
/// Somebody else's.
pub const FOREIGN: &str = "SO-20260411000999";

const MAX_BODY: usize = 1024 * 1024;

#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Repeat the first answer to the same `Idempotency-Key` instead of doing things again.
    pub honour_keys: bool,
}

/// How often a tool was asked and how often that changed something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub requests: usize,
    pub effects: usize,
}

/// A running shop; it closes when this is dropped.
pub struct Shop {
    address: SocketAddr,
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

struct Inner {
    options: Options,
    state: Mutex<State>,
    faults: Mutex<Faults>,
    counts: Mutex<BTreeMap<&'static str, Count>>,
    keys: Mutex<BTreeMap<String, Answer>>,
    last_keys: Mutex<Vec<String>>,
    open: AtomicUsize,
}

impl Shop {
    /// # Errors
    /// When the address cannot be bound; port 0 takes a free one.
    pub async fn start(listen: &str, options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let inner = Arc::new(Inner {
            options,
            state: Mutex::new(State::new()),
            faults: Mutex::default(),
            counts: Mutex::default(),
            keys: Mutex::default(),
            last_keys: Mutex::default(),
            open: AtomicUsize::new(0),
        });
        let app = Router::new().fallback(serve).with_state(inner.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                eprintln!("the shop closed: {error}");
            }
        });
        Ok(Self { address, inner, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Base URL without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What `tool` was asked and did.
    pub fn count(&self, tool: &str) -> Count {
        lock(&self.inner.counts).get(tool).copied().unwrap_or_default()
    }

    /// All of it, as `GET /_effects` tells.
    pub fn effects(&self) -> Value {
        self.inner.effects()
    }

    /// Requests that are being served at this moment.
    pub fn open(&self) -> usize {
        self.inner.open.load(Ordering::SeqCst)
    }

    /// `Idempotency-Key` headers in the order they came.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.inner.last_keys).clone()
    }

    /// Lets the next `times` requests of `tool` fail, all of them for `None`. Faults of one tool follow each other.
    pub fn fault(&self, tool: &str, fault: Fault, times: Option<usize>) {
        lock(&self.inner.faults).add(tool, fault, times);
    }

    pub fn heal(&self) {
        lock(&self.inner.faults).clear();
    }

    /// As after the start: data, counts, faults.
    pub fn reset(&self) {
        self.inner.reset();
    }

    /// Waits for the server to end, which it does not do by itself.
    pub async fn closed(mut self) {
        let _ = (&mut self.task).await;
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a request while it is served, also when its client goes away.
struct Open(Arc<Inner>);

impl Open {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.open.fetch_add(1, Ordering::SeqCst);
        Self(inner.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(Shared(inner): Shared<Arc<Inner>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "too long").into_response();
    };
    let asked = match Asked::read(&parts, &body) {
        Ok(asked) => asked,
        Err(message) => return Answer::error(400, "BAD_REQUEST", message).into_response(),
    };
    if asked.path.first().is_some_and(|first| first.starts_with('_')) {
        return inner.control(&asked).into_response();
    }
    let Some((tool, action)) = routes::find(&asked) else {
        return Answer::error(404, "NO_SUCH_ROUTE", "nothing is served here").into_response();
    };
    let _open = Open::new(&inner);
    inner.count(tool, |count| count.requests += 1);
    let fault = lock(&inner.faults).take(tool);
    if let Some(fault) = &fault
        && let Some(response) = fault.before().await
    {
        return response;
    }
    let answer = inner.act(tool, action, &asked);
    match fault {
        Some(fault) => fault.after(answer).await,
        None => answer.into_response(),
    }
}

impl Inner {
    fn count(&self, tool: &'static str, change: impl FnOnce(&mut Count)) {
        change(lock(&self.counts).entry(tool).or_default());
    }

    /// Serves one request of a tool.
    fn act(&self, tool: &'static str, action: routes::Action, asked: &Asked) -> Answer {
        if let Some(key) = &asked.key {
            lock(&self.last_keys).push(key.clone());
        }
        // Held to the end: of two requests with one key the second waits for the first.
        let mut state = lock(&self.state);
        let key = asked.key.as_ref().filter(|_| self.options.honour_keys).map(|key| format!("{tool} {key}"));
        if let Some(first) = key.as_ref().and_then(|key| lock(&self.keys).get(key).cloned()) {
            return first;
        }
        let before = state.changes;
        let answer = action(&mut state, asked);
        if state.changes > before {
            self.count(tool, |count| count.effects += state.changes - before);
        }
        if let Some(key) = key.filter(|_| state.changes > before) {
            lock(&self.keys).insert(key, answer.clone());
        }
        answer
    }

    fn control(&self, asked: &Asked) -> Answer {
        match (asked.method.as_str(), asked.path[0].as_str()) {
            ("GET", "_effects") => Answer::ok(self.effects()),
            ("POST", "_faults") => match faults::parse(&asked.body) {
                Ok((tool, fault, times)) => {
                    lock(&self.faults).add(&tool, fault, times);
                    Answer::ok(json!({"ok": true}))
                }
                Err(message) => Answer::error(400, "BAD_FAULT", message),
            },
            ("DELETE", "_faults") => {
                lock(&self.faults).clear();
                Answer::ok(json!({"ok": true}))
            }
            ("POST", "_reset") => {
                self.reset();
                Answer::ok(json!({"ok": true}))
            }
            _ => Answer::error(404, "NO_SUCH_ROUTE", "nothing is served here"),
        }
    }

    fn effects(&self) -> Value {
        let counts = lock(&self.counts);
        let tool = |count: &Count| json!({"requests": count.requests, "effects": count.effects});
        let tools: serde_json::Map<String, Value> =
            counts.iter().map(|(name, count)| ((*name).to_owned(), tool(count))).collect();
        json!({"tools": tools, "open": self.open.load(Ordering::SeqCst)})
    }

    fn reset(&self) {
        *lock(&self.state) = State::new();
        lock(&self.faults).clear();
        lock(&self.counts).clear();
        lock(&self.keys).clear();
        lock(&self.last_keys).clear();
    }
}

/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_secs(24 * 60 * 60);
