//! Tools of one MCP server.
//!
//! Owns: the session (made when it is first needed, made anew after a failure), `tools/call`, what of its result is an
//! answer; which tools a server has.
//! Does not know: retries, breakers, what an answer means.

mod bounded;
mod fault;
mod list;
mod open;
mod stderr;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientConfig, ClientRequest, JsonObject, RequestMetaObject,
    ServerResult,
};
use rmcp::service::{ClientInitializeError, PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::{Map, Value, json};
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::McpTarget;
use super::attempt::{Answer, Attempt, Loss, Unsent};
use super::client::{failure, find};
use super::request::header_key;
use crate::tool::McpRun;
use crate::types::{Body, ToolAnswer, retry_after};
use open::{Closed, Opened, Place};

pub use fault::ListError;
pub use list::{Connection, Lost, ToolServer, list_once};

/// Room for what surrounds an answer, and for the list of a server's tools.
const FRAME: usize = 1024 * 1024;
/// Where the call's idempotency key stands in `_meta`.
const KEY: &str = "idempotency-key";

/// One target.
pub(super) struct Server {
    place: Place,
    /// Longest answer that is read.
    max: usize,
    session: Mutex<Option<Arc<Session>>>,
}

struct Session {
    service: RunningService<RoleClient, ClientConfig>,
    /// Ended when the session is dropped.
    _child: Option<Child>,
}

impl Server {
    /// # Errors
    /// A message for the operator.
    pub fn new(target: &McpTarget, max: usize) -> Result<Self, String> {
        let place = Place::new(target)?;
        Ok(Self { place, max, session: Mutex::new(None) })
    }

    /// One `tools/call`, connecting included. When the time is up or the future is dropped, the server is told.
    pub async fn call(
        &self,
        run: &McpRun,
        arguments: &Map<String, Value>,
        key: Option<&str>,
        time: Duration,
    ) -> Attempt {
        let until = Instant::now() + time;
        let session = match timeout_at(until, self.session()).await {
            Ok(Ok(session)) => session,
            Ok(Err(unsent)) => return Attempt::Unsent(unsent),
            Err(_) => return Attempt::Unsent(Unsent::Connect),
        };
        let lost = Attempt::Lost(Loss::Timeout { after: time, cut: false });
        let attempt = timeout_at(until, self.exchange(&session, run, arguments, key)).await.unwrap_or(lost);
        // After an answer the session is known to be sound; a tool that is merely slow is no reason to end a program.
        let sound = match (&attempt, &self.place) {
            (Attempt::Answered(_), _) => true,
            (Attempt::Lost(Loss::Timeout { .. }), Place::Command { .. }) => !session.service.is_closed(),
            _ => false,
        };
        if !sound {
            self.forget(&session).await;
        }
        attempt
    }

    async fn exchange(
        &self,
        session: &Arc<Session>,
        run: &McpRun,
        arguments: &Map<String, Value>,
        key: Option<&str>,
    ) -> Attempt {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(run, arguments, key)));
        let sent = session.service.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let mut pending = match sent {
            Ok(handle) => Pending { handle: Some(handle), session: session.clone() },
            Err(_) => return Attempt::Unsent(Unsent::Connect),
        };
        let result = match &mut pending.handle {
            Some(handle) => (&mut handle.rx).await.unwrap_or(Err(ServiceError::TransportClosed)),
            None => Err(ServiceError::TransportClosed),
        };
        pending.handle = None;
        match result {
            Ok(ServerResult::CallToolResult(result)) => answered(read(result, self.max), false),
            Ok(_) => Attempt::Lost(Loss::Unreadable),
            Err(error) => failed(&error),
        }
    }

    /// The session, made if there is none that is sound. One caller connects while the others wait.
    async fn session(&self) -> Result<Arc<Session>, Unsent> {
        let mut place = self.session.lock().await;
        if let Some(session) = place.as_ref().filter(|session| !session.service.is_closed()) {
            return Ok(session.clone());
        }
        *place = None;
        let session = Arc::new(self.connect().await?);
        *place = Some(session.clone());
        Ok(session)
    }

    async fn connect(&self) -> Result<Session, Unsent> {
        match self.place.open(open::ourselves(), self.max + FRAME, None).await {
            Ok(Opened { service, child }) => Ok(Session { service, _child: child }),
            Err(Closed::Start(_)) => Err(Unsent::Connect),
            Err(Closed::Refused(error)) => Err(refused(&error)),
        }
    }

    async fn forget(&self, session: &Arc<Session>) {
        let mut place = self.session.lock().await;
        if place.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            *place = None;
        }
    }
}

/// Why there is no session.
fn refused(error: &ClientInitializeError) -> Unsent {
    // Neither the library's error nor the transport's names its cause as its source.
    let private = match error {
        ClientInitializeError::TransportError { error, .. } => {
            matches!(undelivered(error.error.as_ref()), Attempt::Unsent(Unsent::Private))
        }
        _ => false,
    };
    if private { Unsent::Private } else { Unsent::Connect }
}

/// A request that is under way. Dropped before its answer, it tells the server that nobody waits any longer.
struct Pending {
    handle: Option<RequestHandle<RoleClient>>,
    /// Lives until the server was told, also when nobody else uses it any longer.
    session: Arc<Session>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        /// A server that does not even take this is beyond help.
        const PATIENCE: Duration = Duration::from_secs(5);
        let Some(handle) = self.handle.take() else { return };
        let session = self.session.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let told = timeout(PATIENCE, handle.cancel(Some("the caller no longer waits".into()))).await;
                if !matches!(told, Ok(Ok(()))) {
                    tracing::debug!("an MCP server could not be told that a call was cancelled");
                }
                drop(session);
            });
        }
    }
}

fn params(run: &McpRun, arguments: &Map<String, Value>, key: Option<&str>) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(run.tool.clone());
    params.arguments = Some(arguments.clone().into_iter().collect::<JsonObject>());
    if let Some(key) = key.map(header_key)
        && let Ok(key) = key.to_str()
    {
        let mut meta = RequestMetaObject::default();
        meta.0.0.insert(KEY.into(), key.into());
        params.meta = Some(meta);
    }
    params
}

fn answered(answer: ToolAnswer, unwell: bool) -> Attempt {
    Attempt::Answered(Answer { answer, unwell })
}

/// Structured content where there is some, else the text blocks: as JSON if they are JSON.
fn read(result: CallToolResult, max: usize) -> ToolAnswer {
    let failed = result.is_error == Some(true);
    let structured = result.structured_content.filter(|content| !content.is_null());
    let text = match &structured {
        Some(content) => content.to_string(),
        None => text_of(&json!(result.content)),
    };
    let cut = text.len() > max;
    let body = match structured {
        Some(content) if !cut => Body::Json(content),
        _ => super::http::decode(shorten(&text, max).as_bytes(), cut),
    };
    ToolAnswer { status: None, body, failed, cut, retry_after_ms: None }
}

/// Text blocks and embedded texts, one after the other. Pictures and links are left out.
fn text_of(content: &Value) -> String {
    let blocks = content.as_array().map_or(&[][..], Vec::as_slice);
    let texts = blocks.iter().filter_map(|block| block["text"].as_str().or_else(|| block["resource"]["text"].as_str()));
    texts.collect::<Vec<_>>().join("\n")
}

/// At most `max` bytes, whole characters.
fn shorten(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// What is known of a call that brought no result.
fn failed(error: &ServiceError) -> Attempt {
    match error {
        ServiceError::McpError(error) => {
            let code = error.code.0;
            // Internal errors and those a server may define itself; the others dislike the request.
            let unwell = code == -32603 || (-32099..=-32000).contains(&code);
            let body = Body::Json(json!({"code": code, "message": error.message}));
            answered(ToolAnswer { status: None, body, failed: true, cut: false, retry_after_ms: None }, unwell)
        }
        ServiceError::TransportSend(error) => undelivered(error),
        ServiceError::UnexpectedResponse => Attempt::Lost(Loss::Unreadable),
        _ => Attempt::Lost(Loss::Broken),
    }
}

fn undelivered(error: &(dyn Error + 'static)) -> Attempt {
    let Some(http) = find::<StreamableHttpError<reqwest::Error>>(error) else {
        return Attempt::Lost(Loss::Broken);
    };
    match http {
        StreamableHttpError::Client(error) => failure(error),
        StreamableHttpError::HttpStatus(error) => {
            let wish = error.retry_after.as_deref().and_then(|wish| retry_after::parse(wish, SystemTime::now()));
            let wish = wish.and_then(|wish| u64::try_from(wish.as_millis()).ok());
            answered(bare(error.status, wish), error.status >= 500)
        }
        StreamableHttpError::AuthRequired(_) => answered(bare(401, None), false),
        StreamableHttpError::InsufficientScope(_) => answered(bare(403, None), false),
        StreamableHttpError::SessionExpired => Attempt::Unsent(Unsent::Connect),
        StreamableHttpError::UnexpectedServerResponse(_)
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::ResponseBodyTooLarge { .. }
        | StreamableHttpError::Deserialize(_)
        | StreamableHttpError::Sse(_) => Attempt::Lost(Loss::Unreadable),
        _ => Attempt::Lost(Loss::Broken),
    }
}

/// An answer of which only the status is known.
fn bare(status: u16, retry_after_ms: Option<u64>) -> ToolAnswer {
    ToolAnswer { status: Some(status), body: Body::Empty, failed: true, cut: false, retry_after_ms }
}

#[cfg(test)]
mod tests;
