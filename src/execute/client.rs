//! HTTP clients of one target.
//!
//! Owns: what of a target may be used, and how connections are made: no redirects, no proxy, no repeats, no private
//! address unless the operator allows it.
//! Does not know: what is sent (see [`super::request`], [`super::mcp`]).

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Url, redirect, retry};

use super::address::{Private, PublicOnly, is_public};
use super::attempt::{Attempt, Loss, Unsent};
use super::{HttpTarget, Secret};

/// Long enough for a second try of the first packet, which the kernel makes after a second.
const CONNECT: Duration = Duration::from_millis(1_200);
const IDLE: Duration = Duration::from_secs(15);
/// Headers that belong to the exchange itself, or to what we say in it.
const RESERVED: [&str; 19] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// One target, ready to be called. Its headers are sent with every request.
pub(super) struct Clients {
    /// Without a slash at the end.
    pub base: String,
    /// Keeps connections.
    pub kept: Client,
    /// A new connection for each request: one that was kept may have been closed by the other side at this very
    /// moment, and then nobody knows whether a request on it arrived.
    pub fresh: Client,
}

impl Clients {
    /// # Errors
    /// A message for the operator; it never repeats a header's value, nor credentials inside the address.
    pub fn new(target: &HttpTarget) -> Result<Self, String> {
        let url = base_url(&target.base_url, target.allow_private)?;
        let headers = headers(&target.headers)?;
        let builder = || {
            let builder = common().default_headers(headers.clone());
            if target.allow_private { builder } else { builder.dns_resolver(Arc::new(PublicOnly)) }
        };
        let build = |builder: ClientBuilder| builder.build().map_err(|error| format!("no HTTP client: {error}"));
        Ok(Self {
            base: url.as_str().trim_end_matches('/').to_owned(),
            kept: build(builder().pool_idle_timeout(IDLE))?,
            fresh: build(builder().pool_max_idle_per_host(0))?,
        })
    }
}

fn common() -> ClientBuilder {
    Client::builder()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .referer(false)
        .connect_timeout(CONNECT)
        .user_agent(concat!("pointsman/", env!("CARGO_PKG_VERSION")))
}

fn base_url(text: &str, allow_private: bool) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("base_url is not a URL: {error}"))?;
    let Some(host) = url.host_str().filter(|_| matches!(url.scheme(), "http" | "https")) else {
        return Err("base_url must start with http:// or https:// and name a host".into());
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("base_url must not hold credentials; use headers".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("base_url must not hold a query or a fragment".into());
    }
    // Names are judged when they are resolved; addresses are never asked for.
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    if !allow_private && address.is_some_and(|address| !is_public(address)) {
        return Err(format!("base_url: {Private}; set allow_private to reach it"));
    }
    Ok(url)
}

fn headers(given: &[(String, Secret)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, Secret(value)) in given {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            return Err(format!("header {name:?} has no valid name"));
        };
        if RESERVED.contains(&name.as_str()) {
            return Err(format!("header {name} is set by the exchange itself"));
        }
        let Ok(mut value) = HeaderValue::from_str(value) else {
            return Err(format!("header {name} holds characters that cannot be sent"));
        };
        value.set_sensitive(true);
        if headers.insert(&name, value).is_some() {
            return Err(format!("header {name} is given twice"));
        }
    }
    Ok(headers)
}

/// What is known of a request that failed.
pub(super) fn failure(error: &reqwest::Error) -> Attempt {
    if find::<Private>(error).is_some() {
        Attempt::Unsent(Unsent::Private)
    } else if error.is_connect() || error.is_builder() {
        Attempt::Unsent(Unsent::Connect)
    } else {
        Attempt::Lost(Loss::Broken)
    }
}

/// The first error of type `E` in the chain.
pub(super) fn find<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(base_url: &str) -> HttpTarget {
        HttpTarget { base_url: base_url.into(), headers: Vec::new(), allow_private: false }
    }

    #[track_caller]
    fn refused(target: &HttpTarget) -> String {
        Clients::new(target).err().expect("the target should be refused")
    }

    #[test]
    fn only_a_plain_base_url_is_a_target() {
        for (url, expected) in [
            ("", "is not a URL"),
            ("ftp://shop.example", "http:// or https://"),
            ("file:///etc/passwd", "http:// or https://"),
            ("https://me:secret@shop.example", "credentials"),
            ("https://shop.example/?a=1", "a query"),
            ("https://shop.example/#a", "a fragment"),
        ] {
            let message = refused(&target(url));
            assert!(message.contains(expected) && !message.contains("secret"), "{url}: {message}");
        }
        let clients = Clients::new(&target("https://shop.example/api/v1/")).unwrap();
        assert_eq!(clients.base, "https://shop.example/api/v1");
    }

    #[test]
    fn private_addresses_are_refused_in_every_notation() {
        for host in ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"] {
            let target = target(&format!("http://{host}:8080"));
            assert!(refused(&target).contains("private network"), "{host}");
            assert!(Clients::new(&HttpTarget { allow_private: true, ..target }).is_ok(), "{host}");
        }
    }

    #[test]
    fn headers_are_checked_and_never_shown() {
        for (name, value, expected) in [
            ("X Y", "s3cret", "no valid name"),
            ("X-Key", "s3cret\r\nHost: evil.example", "cannot be sent"),
            ("X-Key", "钥匙s3cret\u{1}", "cannot be sent"),
            ("Host", "s3cret.example", "set by the exchange"),
            ("Idempotency-Key", "s3cret", "set by the exchange"),
        ] {
            let target =
                HttpTarget { headers: vec![(name.into(), Secret(value.into()))], ..target("https://shop.example") };
            let message = refused(&target);
            assert!(message.contains(expected) && !message.contains("s3cret"), "{name}: {message}");
            assert!(!format!("{target:?}").contains("s3cret"));
        }
    }
}
