//! Who calls: from the transport, never from the request.
//!
//! Owns: which callers are admitted, their tenants and the scopes they hold.
//! Does not know: what a scope opens (`retrieve` asks the caller) or how the credentials travelled.

mod callers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::types::{Caller, Scope};

use callers::Callers;
pub use callers::{CallersError, Fault};

/// Longer tokens are not looked at.
const MAX_TOKEN_BYTES: usize = 4 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Scopes of callers on this machine while callers are not identified; `None` means all.
    pub scopes: Option<Vec<Scope>>,
    /// File of callers with their tokens. With it every caller has to show a token, also on this machine.
    pub callers: Option<PathBuf>,
}

/// What the transport knows of one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// A peer without an address (a test, a Unix socket) is local.
    pub peer: Option<SocketAddr>,
    /// Every `authorization` header as text; `None` for one that is no text.
    pub authorization: Option<&'a str>,
}

/// The caller is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("callers from other machines are served once identity.callers names them; call from this machine")]
    NotLocal,
    #[error("a bearer token is needed in the `authorization` metadata")]
    NoToken,
    /// Also said of a token that is no longer valid: which it is, is nobody's business.
    #[error("the bearer token is not known")]
    UnknownToken,
}

/// Who is admitted: this machine, or the callers of a file.
#[derive(Debug)]
pub struct Identity {
    settings: Settings,
    callers: Option<ArcSwap<Callers>>,
}

impl Identity {
    /// # Errors
    /// [`CallersError`] when the file of callers cannot be used.
    pub fn load(settings: Settings) -> Result<Self, CallersError> {
        let callers = settings.callers.as_deref().map(read).transpose()?.map(ArcSwap::new);
        Ok(Self { settings, callers })
    }

    /// Reads the file of callers again; `None` when there is none, else how many callers there are now.
    ///
    /// # Errors
    /// [`CallersError`]; the callers known so far stay.
    pub fn reload(&self) -> Result<Option<usize>, CallersError> {
        let (Some(path), Some(callers)) = (&self.settings.callers, &self.callers) else { return Ok(None) };
        let next = read(path)?;
        let count = next.len();
        callers.store(next);
        Ok(Some(count))
    }

    /// # Errors
    /// [`Refused`] for a caller who is not admitted.
    pub fn resolve(&self, credentials: Credentials<'_>) -> Result<Caller, Refused> {
        let Some(callers) = &self.callers else {
            return if is_local(credentials.peer) { Ok(local(&self.settings)) } else { Err(Refused::NotLocal) };
        };
        let token = credentials.authorization.and_then(bearer).ok_or(Refused::NoToken)?;
        callers.load().find(token).ok_or(Refused::UnknownToken)
    }
}

/// The operator at this machine, as commands that route in their own process call.
pub fn local(settings: &Settings) -> Caller {
    match &settings.scopes {
        None => Caller::local(),
        Some(scopes) => Caller::with_scopes("local", scopes.iter().cloned()).administering(),
    }
}

fn read(path: &Path) -> Result<Arc<Callers>, CallersError> {
    Callers::read(path).map(Arc::new)
}

/// The token of `Bearer <token>` (RFC 6750, section 2.1); the scheme's case does not matter.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN_BYTES).then_some(token)
}

fn is_local(peer: Option<SocketAddr>) -> bool {
    peer.is_none_or(|address| address.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> Credentials<'_> {
        Credentials { peer: Some(address.parse().unwrap()), authorization: None }
    }

    #[test]
    fn without_a_file_only_this_machine_is_served_and_scopes_narrow() {
        let read = Scope("orders:read".into());
        let all = Identity::load(Settings::default()).unwrap();
        assert!(all.resolve(from("127.0.0.1:1")).unwrap().holds(&read));
        let none = Identity::load(Settings { scopes: Some(vec![]), callers: None }).unwrap();
        let caller = none.resolve(from("[::1]:1")).unwrap();
        assert!(!caller.holds(&read) && caller.administers());
        assert!(none.resolve(from("[::ffff:127.0.0.1]:1")).is_ok());
        assert_eq!(none.resolve(from("192.0.2.1:1")), Err(Refused::NotLocal));
        assert_eq!(none.reload().unwrap(), None);
    }

    #[test]
    fn tokens_are_read_from_the_header_the_standard_names() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        let long = format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1));
        for bad in ["", "Bearer", "Bearer ", "Basic abc", "abc", "令牌 abc", &long] {
            assert_eq!(bearer(bad), None, "{bad}");
        }
    }

    #[test]
    fn with_a_file_everybody_shows_a_token_and_a_reload_takes_one_away() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let digest = |token: &str| crate::types::encoding::hex(&<sha2::Sha256 as sha2::Digest>::digest(token));
        let entry = |name: &str, token: &str| {
            format!(
                "[[callers]]\nname = \"{name}\"\ntoken_sha256 = \"{}\"\nscopes = [\"orders:read\"]\n",
                digest(token)
            )
        };
        std::fs::write(file.path(), entry("bot", "t-1") + &entry("客服", "t-2")).unwrap();
        let identity = Identity::load(Settings { scopes: None, callers: Some(file.path().into()) }).unwrap();
        let resolve = |header: Option<&str>| {
            identity.resolve(Credentials { authorization: header, ..from("192.0.2.1:1") }).map(|caller| caller.name)
        };
        assert_eq!(resolve(Some("Bearer t-1")).as_deref(), Ok("bot"));
        assert_eq!(resolve(Some("Bearer t-2")).as_deref(), Ok("客服"));
        assert_eq!(resolve(Some("Bearer t-3")), Err(Refused::UnknownToken));
        assert_eq!(resolve(None), Err(Refused::NoToken));
        assert_eq!(identity.resolve(from("127.0.0.1:1")), Err(Refused::NoToken), "this machine too");

        std::fs::write(file.path(), entry("bot", "t-1")).unwrap();
        assert_eq!(identity.reload().unwrap(), Some(1));
        assert_eq!(resolve(Some("Bearer t-2")), Err(Refused::UnknownToken));
        std::fs::write(file.path(), "half a fi").unwrap();
        assert!(identity.reload().is_err());
        assert_eq!(resolve(Some("Bearer t-1")).as_deref(), Ok("bot"), "the callers known so far stay");
    }
}
