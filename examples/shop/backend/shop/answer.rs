//! What the shop answers.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A status and a JSON body, as all its own answers are.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    pub fn ok(body: Value) -> Self {
        Self { status: 200, body }
    }

    /// One thing; the shop's own bookkeeping comes along, as it does in most systems.
    pub fn one(mut body: Value) -> Self {
        body["_internal"] = json!({"host": "orders-3.shop.internal", "shard": 7, "trace": "9f2c-01"});
        Self::ok(body)
    }

    /// A list; an empty one says why.
    pub fn list(items: Vec<Value>, next_cursor: Option<String>) -> Self {
        let mut body = json!({"items": items, "shard": 7, "took_ms": 3});
        if let Some(cursor) = next_cursor {
            body["next_cursor"] = cursor.into();
        }
        if items_of(&body).is_empty() {
            body["reason"] = "no_match".into();
        }
        Self::ok(body)
    }

    pub fn error(status: u16, code: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            status,
            body: json!({"code": code, "message": message, "request_id": "r-00017", "host": "orders-3.shop.internal"}),
        }
    }
}

fn items_of(body: &Value) -> &[Value] {
    body["items"].as_array().map_or(&[], Vec::as_slice)
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        response(self.status, "application/json; charset=utf-8", self.body.to_string())
    }
}

pub fn response(status: u16, content_type: &'static str, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, content_type)], Body::from(body)).into_response()
}
