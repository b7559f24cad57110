//! One HTTP exchange with an OpenAI-compatible endpoint.
//!
//! Owns: the connection, what is kept of a failed exchange, parameters an endpoint refuses.
//! Does not know: retries, limits, the breaker, or what an answer means.
//!
//! async-openai builds the request and sends it through a service of ours. Its own stack would retry beneath our
//! breaker and deadline, drop the headers of errors, log raw bodies and read bodies of any size.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, Url, redirect, retry};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::super::ApiKey;
use crate::types::retry_after;

/// A chat completion is a few kilobytes; whatever is longer is something else.
const MAX_BODY: usize = 1024 * 1024;
/// Enough of an error body to find the name of a parameter in.
const MAX_ERROR_BODY: usize = 16 * 1024;
/// What an error says is not worth waiting for.
const ERROR_BODY_TIME: Duration = Duration::from_secs(1);
const MAX_CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);

/// A request parameter that some endpoints refuse by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Parameter {
    ParallelToolCalls,
    Seed,
    Temperature,
    ResponseFormat,
    ToolChoice,
    MaxCompletionTokens,
    Logprobs,
    TopLogprobs,
}

impl Parameter {
    pub const ALL: [Self; 8] = [
        Self::ParallelToolCalls,
        Self::Seed,
        Self::Temperature,
        Self::ResponseFormat,
        Self::ToolChoice,
        Self::MaxCompletionTokens,
        Self::Logprobs,
        Self::TopLogprobs,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ParallelToolCalls => "parallel_tool_calls",
            Self::Seed => "seed",
            Self::Temperature => "temperature",
            Self::ResponseFormat => "response_format",
            Self::ToolChoice => "tool_choice",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::Logprobs => "logprobs",
            Self::TopLogprobs => "top_logprobs",
        }
    }

    /// Takes the parameter out of `body`, or puts the older form in its place.
    pub fn withdraw(self, body: &mut Map<String, Value>) {
        let old = body.remove(self.as_str());
        match self {
            Self::ToolChoice if old.is_some() => {
                body.insert("tool_choice".into(), json!("auto"));
            }
            Self::MaxCompletionTokens => {
                if let Some(limit) = old {
                    body.insert("max_tokens".into(), limit);
                }
            }
            // Alternatives to tokens without the tokens are an error of their own.
            Self::Logprobs => {
                body.remove(Self::TopLogprobs.as_str());
            }
            Self::ParallelToolCalls
            | Self::Seed
            | Self::Temperature
            | Self::ResponseFormat
            | Self::ToolChoice
            | Self::TopLogprobs => {}
        }
    }
}

/// Why an exchange gave no JSON body. Holds nothing of the request and nothing of the response but its status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("HTTP status {status}")]
    Status {
        status: u16,
        retry_after: Option<Duration>,
        /// Parameters that the endpoint complains about by name.
        refused: Vec<Parameter>,
    },
    #[error("connection failed")]
    Connect,
    #[error("connection broke off")]
    Broken,
    #[error("response is longer than {MAX_BODY} bytes")]
    TooLong,
    #[error("response is not JSON")]
    NotJson,
    #[error("request could not be built")]
    Request,
}

/// One endpoint. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client<OpenAIConfig>,
    http: reqwest::Client,
    models: Url,
    /// `Bearer` and the key, which no log shows.
    authorization: Option<HeaderValue>,
}

impl Endpoint {
    /// # Errors
    /// A message for the operator; it never repeats the key, nor credentials inside the address.
    pub fn new(base_url: &str, key: Option<&ApiKey>, timeout: Duration) -> Result<Self, String> {
        let url = Url::parse(base_url).map_err(|error| format!("llm.base_url is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err("llm.base_url must start with http:// or https:// and name a host".into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("llm.base_url must not hold credentials; use llm.api_key".into());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("llm.base_url must not hold a query or a fragment".into());
        }
        let key = key.map_or("", ApiKey::expose);
        let Ok(mut authorization) = HeaderValue::from_str(&format!("Bearer {key}")) else {
            return Err("llm.api_key holds characters that cannot be sent in a header".into());
        };
        authorization.set_sensitive(true);
        let mut http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .connect_timeout(MAX_CONNECT.min(timeout))
            .pool_idle_timeout(IDLE)
            .user_agent(concat!("pointsman/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| format!("no HTTP client: {error}"))?;
        let base = url.as_str().trim_end_matches('/');
        let models = Url::parse(&format!("{base}/models")).map_err(|error| format!("llm.base_url: {error}"))?;
        // The empty strings keep the library's own environment variables out.
        let config = OpenAIConfig::new().with_org_id("").with_project_id("").with_api_base(base).with_api_key(key);
        let service = Transport { http: http.clone(), send_key: !key.is_empty() };
        Ok(Self {
            client: Client::build(http.clone(), config).with_http_service(service),
            http,
            models,
            authorization: (!key.is_empty()).then_some(authorization),
        })
    }

    /// The list of models, for probing. Dropping the future aborts the exchange.
    pub async fn models(&self) -> Result<Value, ExchangeError> {
        let mut request = reqwest::Request::new(reqwest::Method::GET, self.models.clone());
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let body = exchange(&self.http, request).await?;
        serde_json::from_slice(&body).map_err(|_| ExchangeError::NotJson)
    }

    /// One POST, one response. Dropping the future aborts the exchange.
    pub async fn chat(&self, body: &Map<String, Value>) -> Result<Value, ExchangeError> {
        let chat = self.client.chat();
        chat.create_byot::<_, Value>(body).await.map_err(|error| match error {
            OpenAIError::Boxed(error) => match error.downcast::<ExchangeError>() {
                Ok(error) => *error,
                Err(_) => ExchangeError::Broken,
            },
            OpenAIError::JSONDeserialize(..) => ExchangeError::NotJson,
            OpenAIError::InvalidArgument(_) => ExchangeError::Request,
            OpenAIError::Reqwest(error) if error.is_builder() => ExchangeError::Request,
            _ => ExchangeError::Broken,
        })
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The service beneath async-openai: sends once, reads a bounded body, and only lets valid JSON through, because the
/// library writes whatever it cannot parse to the log.
#[derive(Clone)]
struct Transport {
    http: reqwest::Client,
    send_key: bool,
}

impl tower::Service<HttpRequestFactory> for Transport {
    type Response = Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        let Self { http, send_key } = self.clone();
        Box::pin(async move {
            let mut request = factory.build().await?;
            guard_key(request.headers_mut(), send_key);
            let body = exchange(&http, request).await.map_err(|error| OpenAIError::Boxed(Box::new(error)))?;
            Ok(http::Response::new(body).into())
        })
    }
}

/// Without a key no header is sent; with one, no log of the libraries below shows it, at whatever level.
fn guard_key(headers: &mut HeaderMap, send_key: bool) {
    if !send_key {
        headers.remove(AUTHORIZATION);
    }
    if let Some(value) = headers.get_mut(AUTHORIZATION) {
        value.set_sensitive(true);
    }
}

async fn exchange(http: &reqwest::Client, request: reqwest::Request) -> Result<Vec<u8>, ExchangeError> {
    let mut response = http.execute(request).await.map_err(|error| broken(&error))?;
    let status = response.status();
    if !status.is_success() {
        let retry_after = wish(response.headers());
        // Half an error body is as good as a whole one.
        let body = timeout(ERROR_BODY_TIME, read_body(&mut response, MAX_ERROR_BODY)).await;
        let body = body.map(|(body, _)| body).unwrap_or_default();
        let refused = if matches!(status.as_u16(), 400 | 422) { refused(&body) } else { Vec::new() };
        return Err(ExchangeError::Status { status: status.as_u16(), retry_after, refused });
    }
    let (body, end) = read_body(&mut response, MAX_BODY).await;
    end?;
    // As the library reads it: what only skips over JSON lets through what a value cannot hold.
    serde_json::from_slice::<Value>(&body).map_err(|_| ExchangeError::NotJson)?;
    Ok(body)
}

/// What could be read up to `max` bytes, and how the reading ended.
async fn read_body(response: &mut Response, max: usize) -> (Vec<u8>, Result<(), ExchangeError>) {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = max - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    return (body, Err(ExchangeError::TooLong));
                }
            }
            Ok(None) => return (body, Ok(())),
            Err(error) => return (body, Err(broken(&error))),
        }
    }
}

fn broken(error: &reqwest::Error) -> ExchangeError {
    if error.is_connect() { ExchangeError::Connect } else { ExchangeError::Broken }
}

fn wish(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let milliseconds = text("retry-after-ms").and_then(|text| text.trim().parse().ok()).map(Duration::from_millis);
    milliseconds.or_else(|| retry_after::parse(text(RETRY_AFTER.as_str())?, std::time::SystemTime::now()))
}

fn refused(body: &[u8]) -> Vec<Parameter> {
    let text = String::from_utf8_lossy(body);
    Parameter::ALL.into_iter().filter(|parameter| names(&text, parameter.as_str())).collect()
}

/// Whether `word` stands in `text` as a whole word.
fn names(text: &str, word: &str) -> bool {
    let edge = |c: Option<char>| !c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(word)
        .any(|(at, _)| edge(text[..at].chars().next_back()) && edge(text[at + word.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_shows_in_no_log_of_headers() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer 123454321"));
        guard_key(&mut headers, true);
        assert!(!format!("{headers:?}").contains("123454321"));
        guard_key(&mut headers, false);
        assert!(headers.is_empty());
    }

    #[test]
    fn unusable_settings_are_named_without_secrets() {
        let check = |url: &str, key: Option<&str>| {
            let key = key.map(ApiKey::new);
            Endpoint::new(url, key.as_ref(), Duration::from_secs(1)).err().unwrap_or_default()
        };
        assert_eq!(check("https://api.example/v1/", Some("sk-1")), "");
        assert_eq!(check("http://127.0.0.1:8080/v1", None), "");
        for bad in
            ["", "api.example/v1", "ftp://api.example", "https://u:secret@api.example", "https://api.example?k=secret"]
        {
            let message = check(bad, None);
            assert!(message.starts_with("llm.base_url") && !message.contains("secret"), "{bad}: {message}");
        }
        let message = check("https://api.example", Some("sk-secret\n"));
        assert!(message.starts_with("llm.api_key") && !message.contains("secret"), "{message}");
    }

    #[test]
    fn refused_parameters_are_found_as_whole_words() {
        let found = |text: &str| refused(text.as_bytes());
        assert_eq!(
            found("Unsupported parameter: 'parallel_tool_calls' is not supported with this model."),
            [Parameter::ParallelToolCalls]
        );
        assert_eq!(found(r#"{"error":{"param":"temperature"}}"#), [Parameter::Temperature]);
        assert_eq!(found("unseeded max_completion_tokens_x toolchoice"), []);
        assert_eq!(found("'max_completion_tokens' or seed"), [Parameter::Seed, Parameter::MaxCompletionTokens]);
        assert_eq!(found("上下文过长"), []);
    }

    #[test]
    fn withdrawing_leaves_the_older_form() {
        let mut body =
            json!({"seed": 1, "tool_choice": "required", "max_completion_tokens": 9, "logprobs": true, "top_logprobs": 20})
                .as_object()
                .unwrap()
                .clone();
        Parameter::ALL.into_iter().for_each(|parameter| parameter.withdraw(&mut body));
        assert_eq!(Value::Object(body), json!({"tool_choice": "auto", "max_tokens": 9}));
    }
}
