//! Which tools an MCP server has: `tools/list` page by page, and word of changes.
//!
//! Owns: the bounds of a listing (pages, tools, bytes, time), what is told of a server that does not give one.
//! Does not know: what becomes of the tools, when a lost server is asked again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientConfig, ClientRequest, ListToolsRequest, PaginatedRequestParams, PingRequest, ServerResult};
use rmcp::service::{NotificationContext, Peer, ServiceError};
use serde_json::Value;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::fault::{ListError, closed_because, failed};
use super::open::{Opened, Place, ourselves};
use crate::execute::McpTarget;

/// Most pages, tools and bytes (of the tools as JSON) of one listing.
const MAX_PAGES: usize = 1_000;
const MAX_TOOLS: usize = 10_000;
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Longest single message, which holds one page.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// Longest cursor that is sent back.
const MAX_CURSOR: usize = 64 * 1024;

/// A server and how long it may take to list its tools, connecting included.
#[derive(Debug, Clone)]
pub struct ToolServer {
    pub place: McpTarget,
    pub timeout: Duration,
}

/// How a connection ended that had been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// Lists the tools of a server once, each as the server wrote it, by name.
///
/// # Errors
/// [`ListError`] says what is wrong with the server or the settings.
pub async fn list_once(server: &ToolServer) -> Result<Vec<Value>, ListError> {
    Connection::open("", server).await.map(|(_, tools)| tools)
}

/// A session with a server, for listing alone. Dropping it ends the session, and the program if it is one.
pub struct Connection {
    peer: Peer<RoleClient>,
    /// The session's own end. Dropped, it ends the session.
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    changed: Arc<Notify>,
    child: Option<Child>,
    timeout: Duration,
}

impl Connection {
    /// Whether the settings can be used at all.
    ///
    /// # Errors
    /// [`ListError::Settings`].
    pub fn check(server: &ToolServer) -> Result<(), ListError> {
        Place::new(&server.place).map(drop).map_err(ListError::Settings)
    }

    /// Connects and lists the tools. `name` stands in log lines about what a program says.
    ///
    /// # Errors
    /// [`ListError`]; nothing of the session is left then.
    pub async fn open(name: &str, server: &ToolServer) -> Result<(Self, Vec<Value>), ListError> {
        let place = Place::new(&server.place).map_err(ListError::Settings)?;
        let whole = async {
            let mut connection = Self::connect(name, &place, server.timeout).await?;
            let tools = connection.pages().await?;
            Ok((connection, tools))
        };
        timeout(server.timeout, whole).await.unwrap_or(Err(ListError::Timeout(server.timeout)))
    }

    async fn connect(name: &str, place: &Place, timeout: Duration) -> Result<Self, ListError> {
        let changed = Arc::new(Notify::new());
        let listener = Listener { config: ourselves(), changed: Arc::clone(&changed) };
        let opened = place.open(listener, MAX_MESSAGE, Some(name)).await;
        let Opened { service, child } = opened.map_err(|closed| closed_because(&closed))?;
        let peer = service.peer().clone();
        let ended = Box::pin(async move { drop(service.waiting().await) });
        Ok(Self { peer, ended, changed, child, timeout })
    }

    /// Lists the tools anew.
    ///
    /// # Errors
    /// [`ListError`]; what it means for the connection is the caller's to say.
    pub async fn list(&mut self) -> Result<Vec<Value>, ListError> {
        timeout(self.timeout, self.pages()).await.unwrap_or(Err(ListError::Timeout(self.timeout)))
    }

    /// Asks for a sign of life. A server that does not know the request is alive.
    ///
    /// # Errors
    /// [`ListError`] when none comes.
    pub async fn ping(&mut self) -> Result<(), ListError> {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        match timeout(self.timeout, self.peer.send_request(ping)).await {
            Ok(Ok(_) | Err(ServiceError::McpError(_) | ServiceError::UnexpectedResponse)) => Ok(()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(ListError::Timeout(self.timeout)),
        }
    }

    /// Returns when the server has said that its tools changed, or with `Err` when the connection has ended. Cancel safe:
    /// what was said meanwhile is kept, several words as one.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn changed(&mut self) -> Result<(), Lost> {
        tokio::select! {
            biased;
            () = &mut self.ended => Err(Lost),
            () = self.changed.notified() => Ok(()),
        }
    }

    /// What is known of an end, for the operator.
    pub async fn epitaph(mut self) -> ListError {
        /// A program that has closed its streams is about to end.
        const PATIENCE: Duration = Duration::from_millis(200);
        let Some(child) = &mut self.child else { return ListError::Closed(String::new()) };
        match timeout(PATIENCE, child.wait()).await {
            Ok(Ok(status)) => ListError::Closed(format!(": the program ended with {status}")),
            _ => ListError::Closed(": the program closed its output".into()),
        }
    }

    async fn pages(&mut self) -> Result<Vec<Value>, ListError> {
        let mut listing = Listing::default();
        let mut cursor = None;
        loop {
            let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let request = ListToolsRequest { params, ..ListToolsRequest::default() };
            let result = self.peer.send_request(ClientRequest::ListToolsRequest(request)).await;
            let (tools, next) = page(result.map_err(|error| failed(&error))?)?;
            listing.add(tools)?;
            match next {
                Some(next) => cursor = Some(listing.follow(next)?),
                None => return Ok(listing.sorted()),
            }
        }
    }
}

/// The tools of the pages so far.
#[derive(Default)]
struct Listing {
    tools: Vec<Value>,
    bytes: usize,
    cursors: std::collections::BTreeSet<String>,
}

impl Listing {
    fn add(&mut self, tools: Vec<Value>) -> Result<(), ListError> {
        if self.tools.len() + tools.len() > MAX_TOOLS {
            return Err(ListError::TooLong { what: "tools", limit: MAX_TOOLS });
        }
        self.bytes += tools.iter().map(|tool| tool.to_string().len()).sum::<usize>();
        if self.bytes > MAX_BYTES {
            return Err(ListError::TooLong { what: "bytes", limit: MAX_BYTES });
        }
        self.tools.extend(tools);
        Ok(())
    }

    /// The cursor of the next page, if that is one that has not been read.
    fn follow(&mut self, cursor: String) -> Result<String, ListError> {
        let page = self.cursors.len() + 1;
        if page >= MAX_PAGES {
            return Err(ListError::TooLong { what: "pages", limit: MAX_PAGES });
        }
        if cursor.len() > MAX_CURSOR {
            return Err(ListError::Unreadable(format!(
                "the cursor after page {page} is longer than {MAX_CURSOR} bytes"
            )));
        }
        if !self.cursors.insert(cursor.clone()) {
            return Err(ListError::Circle { page });
        }
        Ok(cursor)
    }

    /// In an order of our own: servers need not keep theirs, and the same tools are to be the same list.
    fn sorted(self) -> Vec<Value> {
        let key = |tool: &Value| (tool["name"].as_str().unwrap_or_default().to_owned(), tool.to_string());
        let mut tools = self.tools;
        tools.sort_by_cached_key(key);
        tools
    }
}

/// Tools and cursor of one answer. The library gives up on a list with one odd tool in it and hands over the bare JSON;
/// the odd tool is for the registry to report, beside the others.
fn page(result: ServerResult) -> Result<(Vec<Value>, Option<String>), ListError> {
    let unreadable = |what: String| ListError::Unreadable(what);
    match result {
        ServerResult::ListToolsResult(list) => {
            let tools: Result<Vec<Value>, _> = list.tools.iter().map(serde_json::to_value).collect();
            Ok((tools.map_err(|error| unreadable(error.to_string()))?, list.next_cursor))
        }
        ServerResult::CustomResult(custom) => match custom.0 {
            Value::Object(mut map) => {
                let Some(Value::Array(tools)) = map.remove("tools") else {
                    return Err(unreadable("it has no `tools`".into()));
                };
                let next = match map.remove("nextCursor") {
                    None | Some(Value::Null) => None,
                    Some(Value::String(cursor)) => Some(cursor),
                    Some(_) => return Err(unreadable("its `nextCursor` is no text".into())),
                };
                Ok((tools, next))
            }
            _ => Err(unreadable("it is no JSON object".into())),
        },
        _ => Err(unreadable("it is the answer to another request".into())),
    }
}

/// Hears that the tools changed; offers the server nothing.
struct Listener {
    config: ClientConfig,
    changed: Arc<Notify>,
}

impl rmcp::ClientHandler for Listener {
    fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) -> impl Future<Output = ()> + Send + '_ {
        self.changed.notify_one();
        std::future::ready(())
    }

    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(result: Value) -> Result<(Vec<Value>, Option<String>), ListError> {
        page(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn tools_are_read_as_they_were_written() {
        let tool = json!({"name": "查订单", "title": "Orders", "description": "查询订单", "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true}});
        let (tools, next) = read(json!({"tools": [tool.clone()], "nextCursor": "2"})).unwrap();
        assert_eq!((tools, next.as_deref()), (vec![tool.clone()], Some("2")));
        // One that fits no model does not cost the others.
        for odd in [json!({"name": "a"}), json!(7), json!({"name": "b", "inputSchema": "none"})] {
            let (tools, next) = read(json!({"tools": [tool.clone(), odd.clone()], "nextCursor": null})).unwrap();
            assert_eq!((tools, next), (vec![tool.clone(), odd], None));
        }
    }

    #[test]
    fn what_is_no_list_is_said() {
        for result in [json!({}), json!({"tools": {}}), json!([1]), json!({"tools": [7], "nextCursor": 7})] {
            assert!(matches!(read(result.clone()), Err(ListError::Unreadable(_))), "{result}");
        }
    }

    #[test]
    fn listings_are_bounded_and_have_an_order_of_their_own() {
        let mut listing = Listing::default();
        listing.add(vec![json!({"name": "b"}), json!({"name": "a", "x": 2}), json!({"name": "a"}), json!(1)]).unwrap();
        assert_eq!(listing.follow("1".into()).unwrap(), "1");
        assert_eq!(listing.follow("2".into()).unwrap(), "2");
        assert_eq!(listing.follow("1".into()), Err(ListError::Circle { page: 3 }));
        assert!(listing.follow("x".repeat(MAX_CURSOR + 1)).is_err());
        assert!(matches!(listing.add(vec![json!(1); MAX_TOOLS]), Err(ListError::TooLong { what: "tools", .. })));
        let large = json!("x".repeat(MAX_BYTES));
        assert!(matches!(listing.add(vec![large]), Err(ListError::TooLong { what: "bytes", .. })));
        let names: Vec<Value> = listing.sorted().iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, [Value::Null, "a".into(), "a".into(), "b".into()]);
        let mut listing = Listing::default();
        let ended = (0..).find_map(|page| listing.follow(page.to_string()).err());
        assert_eq!(ended, Some(ListError::TooLong { what: "pages", limit: MAX_PAGES }));
    }
}
