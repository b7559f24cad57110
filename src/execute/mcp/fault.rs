//! Why an MCP server gives no list of its tools, told so that an operator can act on it.
//!
//! Owns: what the library's errors mean; how much of a server's own words is repeated.
//! Does not know: what is done about it.

use std::time::Duration;

use rmcp::model::ErrorData;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::open::Closed;
use crate::execute::address::Private;
use crate::execute::client::find;

/// What of a server's own words is repeated.
const MAX_WORDS: usize = 300;

/// Why there is no listing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The settings are wrong: asking again does not help.
    #[error("{0}")]
    Settings(String),
    #[error("the program cannot be started: {0}")]
    Start(String),
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("no listing within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("the server answers with HTTP status {0}")]
    Status(u16),
    /// Error code and words of the server.
    #[error("the server refuses with error {code}: {message}")]
    Refused { code: i32, message: String },
    #[error("what the server answers is no list of tools: {0}")]
    Unreadable(String),
    #[error("page {page} leads back to an earlier one")]
    Circle { page: usize },
    #[error("the list has more than {limit} {what}")]
    TooLong { what: &'static str, limit: usize },
    #[error("the connection was closed{0}")]
    Closed(String),
}

pub(super) fn closed_because(closed: &Closed) -> ListError {
    match closed {
        Closed::Start(error) => ListError::Start(error.to_string()),
        Closed::Refused(error) => match error.as_ref() {
            ClientInitializeError::TransportError { error, .. } => undelivered(error),
            ClientInitializeError::JsonRpcError(error) => refused(error),
            ClientInitializeError::ConnectionClosed(_) => ListError::Closed(String::new()),
            ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
                ListError::Connect("the server speaks no version of the protocol that is known here".into())
            }
            _ => ListError::Unreadable("it does not answer the handshake of MCP".into()),
        },
    }
}

pub(super) fn failed(error: &ServiceError) -> ListError {
    match error {
        ServiceError::McpError(error) => refused(error),
        ServiceError::TransportSend(error) => undelivered(error),
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => ListError::Closed(String::new()),
        _ => ListError::Unreadable("it is the answer to another request".into()),
    }
}

fn refused(error: &ErrorData) -> ListError {
    ListError::Refused { code: error.code.0, message: words(&error.message) }
}

fn undelivered(error: &DynamicTransportError) -> ListError {
    // The library's error does not name the transport's as its source.
    let error = error.error.as_ref();
    let Some(http) = find::<StreamableHttpError<reqwest::Error>>(error) else {
        return ListError::Closed(String::new());
    };
    match http {
        StreamableHttpError::Client(error) if find::<Private>(error).is_some() => {
            ListError::Settings(format!("{Private}; set allow_private to reach it"))
        }
        // Without the address: it stands in the settings already.
        StreamableHttpError::Client(error) if error.is_connect() => {
            ListError::Connect("the server cannot be reached".into())
        }
        StreamableHttpError::Client(error) => match error.status() {
            Some(status) => ListError::Status(status.as_u16()),
            None => ListError::Closed(String::new()),
        },
        StreamableHttpError::HttpStatus(error) => ListError::Status(error.status),
        StreamableHttpError::AuthRequired(_) => ListError::Status(401),
        StreamableHttpError::InsufficientScope(_) => ListError::Status(403),
        StreamableHttpError::SessionExpired => ListError::Closed(": the session expired".into()),
        StreamableHttpError::ResponseBodyTooLarge { max_size } => {
            ListError::TooLong { what: "bytes in one answer", limit: *max_size }
        }
        StreamableHttpError::UnexpectedServerResponse(said) => ListError::Unreadable(words(said)),
        StreamableHttpError::UnexpectedContentType(kind) => {
            ListError::Unreadable(format!("its content type is `{}`", words(kind.as_deref().unwrap_or_default())))
        }
        StreamableHttpError::Deserialize(_) | StreamableHttpError::Sse(_) => {
            ListError::Unreadable("it is broken off or no JSON".into())
        }
        _ => ListError::Closed(String::new()),
    }
}

/// The beginning of what another program said, in one line.
fn words(text: &str) -> String {
    let short = &text[..text.floor_char_boundary(MAX_WORDS)];
    let line: String = short.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if short.len() < text.len() { format!("{line}…") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_words_are_repeated_in_one_short_line() {
        assert_eq!(words("a\nb"), "a b");
        assert!(words(&"长".repeat(1_000)).len() < MAX_WORDS + 4);
    }
}
