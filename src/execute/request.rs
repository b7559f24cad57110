//! One HTTP request made of a card's `run` and a call's arguments.
//!
//! Owns: the encoding that keeps an argument where it belongs: no value can change host, path segments, query names or
//! headers.
//! Does not know: how a request is sent (see [`super::http`]).

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request, Url};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::tool::{HttpRun, PathPart, path_parts};
use crate::types::encoding::hex;
use crate::types::{FieldProblem, Problem, ProblemCode};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Most bytes of a request's address, as proxies bear it.
const MAX_URL_BYTES: usize = 8 * 1024;
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Keys of more bytes, or with other characters than a header takes, are sent as their hash.
const MAX_KEY_BYTES: usize = 255;

/// # Errors
/// `INVALID_ARGS` for values that fit no request, `NOT_EXECUTABLE` for a card that makes none.
#[allow(clippy::result_large_err)]
pub(super) fn request(
    base: &str,
    run: &HttpRun,
    arguments: &Map<String, Value>,
    key: Option<&str>,
) -> Result<Request, Problem> {
    let mut rest = arguments.clone();
    let path = fill(&run.path, &mut rest)?;
    let mut url = address(base, &path)?;
    let has_body = !matches!(run.method.as_str(), "GET" | "DELETE");
    let in_query = |name: &str| !has_body || run.query.iter().any(|listed| listed == name);
    let (query, body): (Map<_, _>, Map<_, _>) = rest.into_iter().partition(|(name, _)| in_query(name));
    append(&mut url, &query);
    if url.as_str().len() > MAX_URL_BYTES {
        return Err(Problem::invalid_args("the arguments are too long for the tool's address", Vec::new()));
    }
    let method = Method::from_bytes(run.method.as_bytes()).map_err(|_| unusable())?;
    let mut request = Request::new(method, url);
    if has_body {
        let body = serde_json::to_vec(&body).map_err(|_| unusable())?;
        if body.len() > MAX_BODY_BYTES {
            return Err(Problem::invalid_args("the arguments are too long for the tool", Vec::new()));
        }
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(body.into());
    }
    if let Some(key) = key {
        request.headers_mut().insert(IDEMPOTENCY_KEY, header_key(key));
    }
    Ok(request)
}

fn unusable() -> Problem {
    Problem::refused("not_executable", ProblemCode::NotExecutable, "the tool's card describes no usable request")
}

/// The path with its arguments, which are taken out of `rest`.
#[allow(clippy::result_large_err)]
fn fill(template: &str, rest: &mut Map<String, Value>) -> Result<String, Problem> {
    let mut path = String::with_capacity(template.len() + 32);
    for part in path_parts(template).map_err(|_| unusable())? {
        match part {
            PathPart::Literal(text) => path.push_str(text),
            PathPart::Argument(name) => {
                let value = rest.remove(name).as_ref().and_then(plain).filter(|value| is_segment(value));
                let value = value.ok_or_else(|| unfit(name))?;
                encode(&value, &mut path);
            }
        }
    }
    // Values that are harmless alone may meet in one segment.
    match path.split('/').any(|segment| matches!(segment, "." | "..")) {
        true => Err(Problem::invalid_args("the arguments make no usable path", Vec::new())),
        false => Ok(path),
    }
}

fn is_segment(value: &str) -> bool {
    !matches!(value, "" | "." | "..")
}

fn unfit(name: &str) -> Problem {
    let expected = "a text that is not empty, `.` or `..`, or a number".to_owned();
    let path = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    Problem::invalid_args(
        "an argument does not fit the tool's address",
        vec![FieldProblem { path, expected, example: None }],
    )
}

/// Base and path as one address; nothing else may have become of them.
#[allow(clippy::result_large_err)]
fn address(base: &str, path: &str) -> Result<Url, Problem> {
    let text = format!("{base}{path}");
    let url = Url::parse(&text).map_err(|_| unusable())?;
    match url.as_str() == text {
        true => Ok(url),
        // The parser has tidied something away: whatever it was, this is not the address that was meant.
        false => Err(unusable()),
    }
}

fn append(url: &mut Url, query: &Map<String, Value>) {
    let pairs: Vec<(&str, String)> = query.iter().flat_map(|(name, value)| pairs(name, value)).collect();
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
}

/// A list repeats the name; an object goes as JSON; `null` stays away.
fn pairs<'n>(name: &'n str, value: &Value) -> Vec<(&'n str, String)> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(|item| (name, text(item))).collect(),
        other => vec![(name, text(other))],
    }
}

fn text(value: &Value) -> String {
    plain(value).unwrap_or_else(|| value.to_string())
}

/// Texts, numbers and truth values as they stand in addresses.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        // A schema takes 3.0 for an integer; few servers do.
        Value::Number(number) => Some(match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => {
                format!("{float:.0}")
            }
            _ => number.to_string(),
        }),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Everything but unreserved characters (RFC 3986) is percent-encoded.
fn encode(text: &str, out: &mut String) {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.extend(['%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// The key as a header takes it; the same key always gives the same header.
pub(super) fn header_key(key: &str) -> HeaderValue {
    let fits = (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    let value = if fits { key.to_owned() } else { hex(&Sha256::digest(key)) };
    HeaderValue::from_str(&value).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const BASE: &str = "https://shop.example/api";

    fn run(method: &str, path: &str, query: &[&str]) -> HttpRun {
        let query = query.iter().map(|name| (*name).to_owned()).collect();
        HttpRun { target: "shop".into(), method: method.into(), path: path.into(), query }
    }

    fn make(run: &HttpRun, arguments: Value) -> Result<Request, Problem> {
        request(BASE, run, arguments.as_object().unwrap(), None)
    }

    #[track_caller]
    fn url(run: &HttpRun, arguments: Value) -> String {
        make(run, arguments).unwrap().url().to_string()
    }

    fn body(request: &Request) -> Value {
        serde_json::from_slice(request.body().unwrap().as_bytes().unwrap()).unwrap()
    }

    #[test]
    fn arguments_go_to_path_query_and_body() {
        let get = run("GET", "/orders/{order_id}", &[]);
        assert_eq!(
            url(
                &get,
                json!({"order_id": "SO-1", "fields": ["status", "amount"], "limit": 3.0, "all": true, "no": null})
            ),
            "https://shop.example/api/orders/SO-1?all=true&fields=status&fields=amount&limit=3"
        );
        let post = run("POST", "/orders/{order_id}/refund", &["dry"]);
        let made = make(&post, json!({"order_id": "SO-1", "amount": 1.5, "dry": false, "原因": "坏了"})).unwrap();
        assert_eq!(made.url().as_str(), "https://shop.example/api/orders/SO-1/refund?dry=false");
        assert_eq!(body(&made), json!({"amount": 1.5, "原因": "坏了"}));
        assert_eq!(made.headers()[CONTENT_TYPE], "application/json");
        let delete = make(&run("DELETE", "/orders/{id}", &[]), json!({"id": 7, "why": "a b"})).unwrap();
        assert_eq!((delete.url().query(), delete.body().is_none()), (Some("why=a+b"), true));
        assert_eq!(body(&make(&run("PUT", "/a", &[]), json!({})).unwrap()), json!({}));
    }

    #[test]
    fn no_value_leaves_its_place() {
        let get = run("GET", "/orders/{id}/lines", &[]);
        for (value, expected) in [
            ("../../admin", "..%2F..%2Fadmin"),
            ("%2e%2e", "%252e%252e"),
            ("a\r\nHost: evil.example", "a%0D%0AHost%3A%20evil.example"),
            ("{x}", "%7Bx%7D"),
            ("?a=b", "%3Fa%3Db"),
            ("#f", "%23f"),
            ("http://evil.example/", "http%3A%2F%2Fevil.example%2F"),
            ("//evil.example", "%2F%2Fevil.example"),
            ("..\\..", "..%5C.."),
            ("@evil.example", "%40evil.example"),
            (" ", "%20"),
            ("退款", "%E9%80%80%E6%AC%BE"),
            ("...", "..."),
            ("a\0b", "a%00b"),
        ] {
            assert_eq!(url(&get, json!({ "id": value })), format!("{BASE}/orders/{expected}/lines"));
        }
        for value in [json!(""), json!("."), json!(".."), Value::Null, json!([1]), json!({})] {
            let problem = make(&get, json!({ "id": value })).unwrap_err();
            assert_eq!((problem.code, problem.fields[0].path.as_str()), (ProblemCode::InvalidArgs, "/id"));
        }
        assert!(make(&get, json!({})).is_err());
        let met = run("GET", "/a/.{id}", &[]);
        assert!(make(&met, json!({"id": "."})).is_err());
        assert_eq!(url(&run("GET", "/a", &[]), json!({"q": "a&b=c#d\r\n"})), format!("{BASE}/a?q=a%26b%3Dc%23d%0D%0A"));
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let long = "长".repeat(3_000);
        assert!(make(&run("GET", "/a/{id}", &[]), json!({ "id": long })).is_err());
        assert!(make(&run("GET", "/a", &[]), json!({ "id": long })).is_err());
        assert!(make(&run("POST", "/a", &[]), json!({ "id": "长".repeat(400_000) })).is_err());
        assert!(make(&run("POST", "/a", &[]), json!({ "id": long })).is_ok());
    }

    #[test]
    fn the_key_is_a_header_whatever_it_holds() {
        let made = request(BASE, &run("POST", "/a", &[]), &Map::new(), Some("k-1")).unwrap();
        assert_eq!(made.headers()[IDEMPOTENCY_KEY], "k-1");
        for key in ["", "退款", "a\r\nX: y", "a b", &"k".repeat(300)] {
            let header = header_key(key);
            assert!(header.len() == 64 && header == header_key(key), "{key:?}");
        }
        assert_ne!(header_key("退款"), header_key("退货"));
    }

    proptest! {
        #[test]
        fn host_and_segments_are_the_templates(value in any::<String>(), other in any::<String>()) {
            let made = make(&run("GET", "/orders/{id}/lines/{line}", &["q"]), json!({"id": value, "line": 1, "q": other}));
            if let Ok(made) = made {
                let url = made.url();
                prop_assert_eq!((url.scheme(), url.host_str(), url.port()), ("https", Some("shop.example"), None));
                let segments: Vec<&str> = url.path_segments().unwrap().collect();
                prop_assert_eq!(segments.len(), 5);
                prop_assert_eq!((segments[0], segments[1], segments[3], segments[4]), ("api", "orders", "lines", "1"));
                prop_assert!(url.fragment().is_none());
                prop_assert_eq!(url.query_pairs().count(), 1);
                prop_assert_eq!(url.query_pairs().next().unwrap().1.into_owned(), other);
            }
        }
    }
}
