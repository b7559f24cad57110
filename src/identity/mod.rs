//! Who calls: from the transport, never from the request.
//!
//! Owns: which callers are admitted, by what, their tenants and the scopes they hold.
//! Does not know: what a scope opens (`retrieve` asks the caller) or how the credentials travelled.
//!
//! Credentials count in this order, and the first that is there decides alone: a bearer token (of the file of callers,
//! else a signed one), the header of a proxy on this machine, the certificate of the connection. A token that is there
//! and no good is not made up for by what comes after it.

mod callers;
mod certificate;
mod header;
mod jwt;
mod keys;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::types::{Caller, Scope};

use callers::{Callers, Owner};
pub use callers::{CallersError, Fault};
use certificate::Certificate;
use jwt::Jwt;
pub use jwt::{Algorithm, Settings as JwtSettings};
pub use keys::{KeysError, Source as KeySource};

/// Longer tokens are not looked at.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Scopes of callers on this machine while callers are not identified; `None` means all.
    pub scopes: Option<Vec<Scope>>,
    /// File of callers with their tokens and certificates.
    pub callers: Option<PathBuf>,
    /// Signed tokens of an issuer.
    pub jwt: Option<JwtSettings>,
    /// Lower-case name of the header in which a proxy on this machine names the caller.
    pub header: Option<String>,
    pub offices: Offices,
}

impl Settings {
    /// Whether callers are identified; if not, this machine alone is served, and everybody on it.
    pub fn identifies(&self) -> bool {
        self.callers.is_some() || self.jwt.is_some() || self.header.is_some()
    }
}

/// Scopes that make an administrator, for tokens and headers, which have no other way to say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offices {
    /// May change the cards of its tenant.
    pub admin: Scope,
    /// May change the whole registry.
    pub operator: Scope,
}

impl Default for Offices {
    fn default() -> Self {
        Self { admin: Scope("pointsman:admin".into()), operator: Scope("pointsman:operator".into()) }
    }
}

impl Offices {
    fn caller(&self, name: &str, tenant: &str, scopes: BTreeSet<Scope>) -> Caller {
        let (admin, operator) = (scopes.contains(&self.admin), scopes.contains(&self.operator));
        let caller = Caller::with_scopes(tenant, scopes).named(name);
        match (operator, admin) {
            (true, _) => caller.operating(),
            (false, true) => caller.administering(),
            (false, false) => caller,
        }
    }
}

/// What the transport knows of one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// A peer without an address (a test, a Unix socket) is local.
    pub peer: Option<SocketAddr>,
    /// The `authorization` header as text; `None` when there is none or it is no text.
    pub authorization: Option<&'a str>,
    /// The header of [`Settings::header`], likewise.
    pub header: Option<&'a str>,
    /// The certificate of the connection, DER, whose chain the transport has checked.
    pub certificate: Option<&'a [u8]>,
}

/// The caller is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("callers from other machines are served once [identity] names them; call from this machine")]
    NotLocal,
    #[error("a bearer token is needed in the `authorization` metadata")]
    NoToken,
    /// Also said of a token that is no longer valid: which it is, is nobody's business.
    #[error("the bearer token is not known")]
    UnknownToken,
    #[error("the header that names the caller counts only from a proxy on the server's machine")]
    HeaderFromAfar,
    #[error("the header that names the caller is not of the form `name; tenant; scopes`")]
    BadHeader,
    #[error("the certificate of this connection belongs to no caller")]
    UnknownCertificate,
    #[error("several credentials that exclude each other were sent; send one")]
    Ambiguous,
}

impl Refused {
    /// A word for a metric: a closed set.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotLocal => "not_local",
            Self::NoToken => "no_token",
            Self::UnknownToken => "unknown_token",
            Self::HeaderFromAfar => "header_from_afar",
            Self::BadHeader => "bad_header",
            Self::UnknownCertificate => "unknown_certificate",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// What identifies callers cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Callers(#[from] CallersError),
    #[error(transparent)]
    Keys(#[from] KeysError),
}

/// Who is admitted: this machine, or whoever shows a credential.
#[derive(Debug)]
pub struct Identity {
    settings: Settings,
    callers: Option<ArcSwap<Callers>>,
    jwt: Option<Jwt>,
}

impl Identity {
    /// # Errors
    /// [`LoadError`] when the file of callers or of keys cannot be used. Keys behind a URL come with
    /// [`Self::fetch_keys`].
    pub fn load(settings: Settings) -> Result<Self, LoadError> {
        let callers = settings.callers.as_deref().map(read).transpose()?.map(ArcSwap::new);
        let jwt = settings.jwt.clone().map(Jwt::load).transpose()?;
        Ok(Self { settings, callers, jwt })
    }

    /// Reads the files of callers and keys again; `None` when there is no file of callers, else how many callers it
    /// names now. Keys behind a URL are fetched soon.
    ///
    /// # Errors
    /// [`LoadError`]; callers and keys known so far stay, all of them.
    pub fn reload(&self) -> Result<Option<usize>, LoadError> {
        let callers = self.settings.callers.as_deref().map(read).transpose()?;
        if let Some(jwt) = &self.jwt {
            match jwt.keys.reread()? {
                Some(set) => jwt.keys.replace(set),
                None => jwt.keys.want(),
            }
        }
        let (Some(next), Some(callers)) = (callers, &self.callers) else { return Ok(None) };
        let count = next.len();
        callers.store(next);
        Ok(Some(count))
    }

    /// Fetches the keys of signed tokens once.
    ///
    /// # Errors
    /// [`KeysError`]; the keys known so far stay.
    pub async fn fetch_keys(&self) -> Result<(), KeysError> {
        match &self.jwt {
            Some(jwt) => jwt.keys.refresh().await.map(drop),
            None => Ok(()),
        }
    }

    /// Keeps the keys of signed tokens fresh for as long as it is polled, and tells of each attempt how many keys there
    /// are now. Without signed tokens it only waits.
    pub async fn keep_keys_fresh(&self, tell: impl Fn(Result<usize, KeysError>)) {
        match &self.jwt {
            Some(jwt) => jwt.keep_fresh(tell).await,
            None => std::future::pending().await,
        }
    }

    /// Lower-case name of the header that may name a caller.
    pub fn header(&self) -> Option<&str> {
        self.settings.header.as_deref()
    }

    /// Whether some caller is told by a certificate alone, which asks for one from the transport.
    pub fn knows_certificates(&self) -> bool {
        self.callers.as_ref().is_some_and(|callers| callers.load().know_certificates())
    }

    /// # Errors
    /// [`Refused`] for a caller who is not admitted.
    pub fn resolve(&self, credentials: Credentials<'_>) -> Result<Caller, Refused> {
        let Credentials { peer, authorization, header, certificate } = credentials;
        if !self.settings.identifies() {
            return if is_local(peer) { Ok(local(&self.settings)) } else { Err(Refused::NotLocal) };
        }
        let header = header.filter(|_| self.settings.header.is_some());
        match (authorization, header, certificate) {
            (Some(_), Some(_), _) => Err(Refused::Ambiguous),
            (Some(authorization), None, _) => self.by_token(authorization),
            (None, Some(value), _) if is_local(peer) => {
                header::caller(value, &self.settings.offices).ok_or(Refused::BadHeader)
            }
            (None, Some(_), _) => Err(Refused::HeaderFromAfar),
            (None, None, Some(der)) => self.by_certificate(der),
            (None, None, None) => Err(Refused::NoToken),
        }
    }

    fn by_token(&self, authorization: &str) -> Result<Caller, Refused> {
        let token = bearer(authorization).ok_or(Refused::NoToken)?;
        if let Some(caller) = self.callers.as_ref().and_then(|callers| callers.load().find(token)) {
            return Ok(caller);
        }
        match &self.jwt {
            Some(jwt) if Jwt::has_form(token) => jwt.resolve(token, &self.settings.offices),
            Some(_) | None => Err(Refused::UnknownToken),
        }
    }

    fn by_certificate(&self, der: &[u8]) -> Result<Caller, Refused> {
        let Some(callers) = &self.callers else { return Err(Refused::NoToken) };
        let callers = callers.load();
        if !callers.know_certificates() {
            return Err(Refused::NoToken);
        }
        let certificate = Certificate::read(der).ok_or(Refused::UnknownCertificate)?;
        match callers.owner(&certificate) {
            Owner::One(caller) => Ok(caller),
            Owner::Nobody => Err(Refused::UnknownCertificate),
            Owner::Several => Err(Refused::Ambiguous),
        }
    }
}

/// The operator at this machine, as commands that route in their own process call.
pub fn local(settings: &Settings) -> Caller {
    match &settings.scopes {
        None => Caller::local(),
        Some(scopes) => Caller::with_scopes("local", scopes.iter().cloned()).operating(),
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
    use crate::types::Administers;

    fn from(address: &str) -> Credentials<'_> {
        Credentials { peer: Some(address.parse().unwrap()), ..Credentials::default() }
    }

    #[test]
    fn without_a_file_only_this_machine_is_served_and_scopes_narrow() {
        let read = Scope("orders:read".into());
        let all = Identity::load(Settings::default()).unwrap();
        assert!(all.resolve(from("127.0.0.1:1")).unwrap().holds(&read));
        let none = Identity::load(Settings { scopes: Some(vec![]), ..Settings::default() }).unwrap();
        let caller = none.resolve(from("[::1]:1")).unwrap();
        assert!(!caller.holds(&read) && caller.administers() == Administers::Everything);
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
        let identity = Identity::load(Settings { callers: Some(file.path().into()), ..Settings::default() }).unwrap();
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

    #[test]
    fn the_first_credential_that_is_there_decides_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let entry = "[[callers]]\nname = \"cert\"\ncertificate = \"DNS=bot.example\"\n[[callers]]\nname = \"token\"\n\
                     token_sha256 = \"";
        let digest = crate::types::encoding::hex(&<sha2::Sha256 as sha2::Digest>::digest("t-1"));
        let other = "[[callers]]\nname = \"twin\"\ncertificate = \"CN=twin\"\n";
        std::fs::write(file.path(), format!("{entry}{digest}\"\n{other}")).unwrap();
        let settings = |header: Option<&str>| Settings {
            callers: Some(file.path().into()),
            header: header.map(str::to_owned),
            ..Settings::default()
        };
        let identity = Identity::load(settings(Some("x-caller"))).unwrap();
        let made = |names: &[&str], common_name: &str| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = rcgen::CertificateParams::new(names).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
        };
        let known = made(&["bot.example"], "x");
        let certificate = Some(known.as_slice());
        let header = Some("proxied; acme; a");
        let near = from("127.0.0.1:1");
        let name = |credentials: Credentials<'_>| identity.resolve(credentials).map(|caller| caller.name);
        let token = Some("Bearer t-1");
        assert_eq!(name(Credentials { authorization: token, certificate, ..near }).as_deref(), Ok("token"));
        assert_eq!(name(Credentials { header, certificate, ..near }).as_deref(), Ok("proxied"));
        assert_eq!(name(Credentials { certificate, ..from("192.0.2.1:1") }).as_deref(), Ok("cert"));
        // What is no good is not made up for by what comes after it.
        let wrong = Some("Bearer t-2");
        assert_eq!(name(Credentials { authorization: wrong, certificate, ..near }), Err(Refused::UnknownToken));
        assert_eq!(name(Credentials { authorization: Some(""), certificate, ..near }), Err(Refused::NoToken));
        assert_eq!(name(Credentials { header: Some(""), certificate, ..near }), Err(Refused::BadHeader));
        assert_eq!(name(Credentials { authorization: token, header, ..near }), Err(Refused::Ambiguous));
        assert_eq!(name(Credentials { header, ..from("192.0.2.1:1") }), Err(Refused::HeaderFromAfar));
        assert_eq!(name(near), Err(Refused::NoToken));
        let (stranger, twins) = (made(&["other.example"], "x"), made(&["bot.example"], "twin"));
        let shown = |der: &[u8]| name(Credentials { certificate: Some(der), ..near });
        assert_eq!(shown(&stranger), Err(Refused::UnknownCertificate));
        assert_eq!(shown(&twins), Err(Refused::Ambiguous));
        assert_eq!(shown(b"nonsense"), Err(Refused::UnknownCertificate));
        // A header that is not configured is not read at all.
        let identity = Identity::load(settings(None)).unwrap();
        assert_eq!(identity.resolve(Credentials { header, ..near }), Err(Refused::NoToken));
        assert_eq!(
            identity.resolve(Credentials { authorization: token, header, ..near }).map(|caller| caller.name).as_deref(),
            Ok("token")
        );
    }
}
