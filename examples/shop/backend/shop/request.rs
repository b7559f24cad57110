//! One request, taken apart.

use axum::http::request::Parts;
use reqwest::Url;
use serde_json::{Map, Value};

#[derive(Debug)]
pub struct Asked {
    pub method: String,
    /// Decoded segments.
    pub path: Vec<String>,
    pub query: Vec<(String, String)>,
    pub body: Map<String, Value>,
    /// The `Idempotency-Key` header.
    pub key: Option<String>,
}

impl Asked {
    pub fn read(parts: &Parts, body: &[u8]) -> Result<Self, &'static str> {
        let url = format!("http://shop{}", parts.uri.path_and_query().map_or("/", |path| path.as_str()));
        let url = Url::parse(&url).map_err(|_| "the address cannot be read")?;
        let segments = url.path().split('/').filter(|segment| !segment.is_empty());
        let body = match body {
            b"" => Map::new(),
            body => serde_json::from_slice(body).map_err(|_| "the body is no JSON object")?,
        };
        let key = parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        Ok(Self {
            method: parts.method.to_string(),
            path: segments.map(decode).collect(),
            query: url.query_pairs().into_owned().collect(),
            body,
            key,
        })
    }

    /// The segment after `orders`, wherever the request is about one order.
    pub fn order(&self) -> &str {
        self.path.get(1).map_or("", String::as_str)
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn queries(&self, name: &str) -> Vec<&str> {
        self.query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.query(name)?.parse().ok()
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name)?.as_str()
    }
}

/// Percent-decodes one segment.
fn decode(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = |b: u8| char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (byte, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0));
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
