//! How the shop fails when it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use tokio::time::sleep;

use super::FOR_EVER;
use super::answer::{Answer, response};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done and nothing is answered.
    Hang,
    /// Nothing is done; `status` and `body` are answered, JSON or not.
    Fail { status: u16, body: String, retry_after: Option<String> },
    /// It is done at once and answered after this time.
    Late(Duration),
    /// It is done, and something odd is answered with status 200.
    Odd(Odd),
    /// It is done, and the connection is closed without an answer.
    Die,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Odd {
    /// No body at all.
    Empty,
    /// `{}`.
    Object,
    Html,
    /// A stack trace with a password and the name of an internal host.
    Trace,
    /// A state that no card knows.
    Code,
}

/// What [`Odd::Trace`] plants, for tests that look for it.
pub const PLANTED_SECRET: &str = "hunter2-s3cr3t";
pub const PLANTED_HOST: &str = "db-7.shop.internal";

impl Fault {
    /// Status and JSON body.
    pub fn status(status: u16) -> Self {
        let body = format!(r#"{{"code":"FAULT_{status}","message":"told to fail"}}"#);
        Self::Fail { status, body, retry_after: None }
    }

    /// The answer where nothing is to be done.
    pub(super) async fn before(&self) -> Option<Response> {
        match self {
            Self::Hang => {
                sleep(FOR_EVER).await;
                None
            }
            Self::Fail { status, body, retry_after } => {
                let kind = if body.starts_with(['{', '[']) { "application/json" } else { "text/plain; charset=utf-8" };
                let mut response = response(*status, kind, body.clone());
                if let Some(wish) = retry_after.as_ref().and_then(|wish| HeaderValue::from_str(wish).ok()) {
                    response.headers_mut().insert(header::RETRY_AFTER, wish);
                }
                Some(response)
            }
            Self::Late(_) | Self::Odd(_) | Self::Die => None,
        }
    }

    /// The answer after it was done.
    pub(super) async fn after(self, answer: Answer) -> Response {
        match self {
            Self::Late(time) => {
                sleep(time).await;
                answer.into_response()
            }
            Self::Odd(odd) => odd.answer(answer),
            // Unwinding ends the connection's task, and the connection with it; no message is printed.
            Self::Die => std::panic::resume_unwind(Box::new("told to die")),
            Self::Hang | Self::Fail { .. } => answer.into_response(),
        }
    }
}

impl Odd {
    fn answer(self, mut answer: Answer) -> Response {
        let trace = || {
            format!(
                "java.sql.SQLException: SELECT * FROM orders WHERE id = ?\n\tat com.shop.OrderDao.find(OrderDao.java:42)\n\t\
                 password={PLANTED_SECRET} host={PLANTED_HOST}\n"
            )
        };
        match self {
            Self::Empty => response(200, "application/json", String::new()),
            Self::Object => response(200, "application/json", "{}".into()),
            Self::Html => {
                response(200, "text/html", "<html><body><h1>502 Bad Gateway</h1>nginx/1.25</body></html>".into())
            }
            Self::Trace => response(200, "text/plain", trace()),
            Self::Code => {
                answer.body["status"] = "35".into();
                answer.into_response()
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Faults(BTreeMap<String, VecDeque<(Fault, Option<usize>)>>);

impl Faults {
    pub fn add(&mut self, tool: &str, fault: Fault, times: Option<usize>) {
        self.0.entry(tool.to_owned()).or_default().push_back((fault, times));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn take(&mut self, tool: &str) -> Option<Fault> {
        let waiting = self.0.get_mut(tool)?;
        while let Some((fault, times)) = waiting.front_mut() {
            match times {
                None => return Some(fault.clone()),
                Some(0) => drop(waiting.pop_front()),
                Some(times) => {
                    *times -= 1;
                    return Some(fault.clone());
                }
            }
        }
        None
    }
}

/// `{"tool": …, "fault": "hang" | "fail" | "late" | "odd" | "die", "times": n, …}` with `status`, `body` and
/// `retry_after` of `fail`, `ms` of `late`, `as` of `odd`.
pub fn parse(body: &Map<String, Value>) -> Result<(String, Fault, Option<usize>), &'static str> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let number = |name: &str| body.get(name).and_then(Value::as_u64);
    let tool = text("tool").ok_or("`tool` is missing")?;
    let fault = match text("fault") {
        Some("hang") => Fault::Hang,
        Some("die") => Fault::Die,
        Some("late") => Fault::Late(Duration::from_millis(number("ms").ok_or("`ms` is missing")?)),
        Some("fail") => {
            let status = number("status").and_then(|status| u16::try_from(status).ok()).unwrap_or(500);
            let Fault::Fail { body: usual, .. } = Fault::status(status) else { return Err("no such status") };
            let body = body.get("body").map_or(usual, |body| match body {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            Fault::Fail { status, body, retry_after: text("retry_after").map(str::to_owned) }
        }
        Some("odd") => Fault::Odd(match text("as") {
            Some("empty") => Odd::Empty,
            Some("object") => Odd::Object,
            Some("html") => Odd::Html,
            Some("trace") => Odd::Trace,
            Some("code") => Odd::Code,
            _ => return Err("`as` is one of empty, object, html, trace, code"),
        }),
        _ => return Err("`fault` is one of hang, fail, late, odd, die"),
    };
    let times = number("times").and_then(|times| usize::try_from(times).ok());
    Ok((tool.to_owned(), fault, times))
}
