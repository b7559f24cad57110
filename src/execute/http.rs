//! One HTTP exchange with a tool.
//!
//! Owns: what is read of an answer.
//! Does not know: how a request is made (see [`super::request`]), whether it is repeated.

use std::time::{Duration, SystemTime};

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Request, Response};
use tokio::time::timeout;

use super::attempt::{Answer, Attempt, Loss};
use super::client::failure;
use crate::types::{Body, ToolAnswer, retry_after};

/// Sends `request` and reads at most `max` bytes of the answer, all within `time`. Dropping the future aborts the
/// exchange.
pub(super) async fn exchange(client: &Client, request: Request, max: usize, time: Duration) -> Attempt {
    let exchange = async {
        match client.execute(request).await {
            Ok(response) => read(response, max).await,
            Err(error) => failure(&error),
        }
    };
    timeout(time, exchange).await.unwrap_or(Attempt::Lost(Loss::Timeout { after: time, cut: false }))
}

async fn read(mut response: Response, max: usize) -> Attempt {
    let status = response.status().as_u16();
    let retry_after_ms = retry_after(&response);
    let mut bytes = Vec::new();
    let mut cut = false;
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk[..chunk.len().min(max - bytes.len() + 1)]),
            Ok(None) => break,
            Err(_) => return Attempt::Lost(Loss::Broken),
        }
        if bytes.len() > max {
            bytes.truncate(max);
            cut = true;
            break;
        }
    }
    let answer = ToolAnswer { status: Some(status), body: decode(&bytes, cut), failed: false, cut, retry_after_ms };
    Attempt::Answered(Answer { answer, unwell: status >= 500 })
}

fn retry_after(response: &Response) -> Option<u64> {
    let wish = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    u64::try_from(retry_after::parse(wish, SystemTime::now())?.as_millis()).ok()
}

/// JSON whatever the content type says, else text; bytes that are no UTF-8 are replaced.
pub(super) fn decode(bytes: &[u8], cut: bool) -> Body {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Body::Empty;
    }
    match serde_json::from_slice(bytes) {
        Ok(value) if !cut => Body::Json(value),
        _ => Body::Text(String::from_utf8_lossy(bytes).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_are_json_or_text() {
        assert_eq!(decode(b"", false), Body::Empty);
        assert_eq!(decode(b" \r\n", false), Body::Empty);
        assert_eq!(decode("\u{feff}{\"状态\": 30}".as_bytes(), false), Body::Json(json!({"状态": 30})));
        assert_eq!(decode(b"{}", false), Body::Json(json!({})));
        assert_eq!(decode(b"<html>", false), Body::Text("<html>".into()));
        assert_eq!(decode(b"{\"a\":", false), Body::Text("{\"a\":".into()));
        // The beginning of a number is a number, but not the one that was sent.
        assert_eq!(decode(b"123", true), Body::Text("123".into()));
        assert_eq!(decode(b"a\xff", false), Body::Text("a\u{fffd}".into()));
        assert!(matches!(decode("[".repeat(1_000).as_bytes(), false), Body::Text(_)));
    }
}
