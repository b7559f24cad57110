//! Who calls: from the transport, never from the request.
//!
//! Owns: which callers are admitted and the scopes they hold.
//! Does not know: what a scope opens (`retrieve` asks the caller) or how the peer was found.

use std::net::SocketAddr;

use crate::types::{Caller, Scope};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Scopes of callers on this machine; `None` means all.
    pub scopes: Option<Vec<Scope>>,
}

/// The caller cannot be identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("callers from other machines cannot be identified yet; call from this machine")]
pub struct Refused;

/// Until callers can be identified, only this machine is served. A peer without an address (a test, a Unix socket) is
/// local.
///
/// # Errors
/// [`Refused`] for a peer on another machine.
pub fn resolve(settings: &Settings, peer: Option<SocketAddr>) -> Result<Caller, Refused> {
    if !is_local(peer) {
        return Err(Refused);
    }
    Ok(match &settings.scopes {
        None => Caller::local(),
        Some(scopes) => Caller::with_scopes("local", scopes.iter().cloned()),
    })
}

/// Whether a peer may change the registry.
pub fn may_administer(peer: Option<SocketAddr>) -> bool {
    is_local(peer)
}

fn is_local(peer: Option<SocketAddr>) -> bool {
    peer.is_none_or(|address| address.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_served_and_scopes_narrow() {
        let read = Scope("orders:read".into());
        let all = resolve(&Settings::default(), Some("127.0.0.1:1".parse().unwrap())).unwrap();
        assert!(all.holds(&read));
        let none = Settings { scopes: Some(vec![]) };
        assert!(!resolve(&none, Some("[::1]:1".parse().unwrap())).unwrap().holds(&read));
        let mapped = "[::ffff:127.0.0.1]:1".parse().unwrap();
        assert!(may_administer(Some(mapped)));
        let other = Some("192.0.2.1:1".parse().unwrap());
        assert_eq!(resolve(&none, other), Err(Refused));
        assert!(!may_administer(other));
    }
}
