//! Who may call, the certificates of the port, and the record of changes.

use std::path::PathBuf;
use std::time::Duration;

use super::Check;
use crate::config::raw;
use crate::config::{AuditTarget, TlsSettings};
use crate::identity::{Algorithm, JwtSettings, KeySource, Offices, Settings};
use crate::types::Scope;

/// Headers that mean something else already.
const NOT_OURS: [&str; 5] = ["authorization", "content-type", "te", "host", "user-agent"];

impl Check<'_> {
    pub(super) fn identity(
        &mut self,
        raw: &raw::Identity,
        scopes: &Option<Vec<String>>,
        notices: &mut Vec<String>,
    ) -> Option<Settings> {
        let scopes = self.scopes("server.scopes", scopes);
        let callers = self.path("identity.callers", &raw.callers);
        let header = self.header(raw);
        let jwt = self.jwt(raw, notices);
        let offices = self.offices(raw);
        let settings = Settings { scopes: scopes?, callers: callers?, header: header?, jwt: jwt?, offices: offices? };
        if settings.identifies() && settings.scopes.is_some() {
            let message =
                "has no meaning beside [identity], by which each caller has scopes of its own; remove one of them";
            return self.fail("server.scopes", message);
        }
        Some(settings)
    }

    fn scopes(&mut self, key: &str, scopes: &Option<Vec<String>>) -> Option<Option<Vec<Scope>>> {
        if scopes.iter().flatten().any(|scope| scope.trim().is_empty()) {
            return self.fail(key, "a scope is empty");
        }
        Some(scopes.as_ref().map(|scopes| scopes.iter().cloned().map(Scope).collect()))
    }

    fn header(&mut self, raw: &raw::Identity) -> Option<Option<String>> {
        let Some(name) = &raw.header else { return Some(None) };
        let name = name.trim().to_ascii_lowercase();
        let sound = http::HeaderName::try_from(name.as_str()).is_ok()
            && !NOT_OURS.contains(&name.as_str())
            && !name.starts_with("grpc-")
            // Such values travel in another encoding.
            && !name.ends_with("-bin");
        if sound {
            Some(Some(name))
        } else {
            self.fail(
                "identity.header",
                format!("expected the name of a header such as x-pointsman-caller, found `{name}`"),
            )
        }
    }

    fn offices(&mut self, raw: &raw::Identity) -> Option<Offices> {
        let mut scope = |key: &str, text: &str| {
            if text.is_empty() || text.contains(char::is_whitespace) {
                self.fail(key, format!("expected one scope without blanks, found `{text}`"))
            } else {
                Some(Scope(text.to_owned()))
            }
        };
        let admin = scope("identity.admin_scope", &raw.admin_scope);
        let operator = scope("identity.operator_scope", &raw.operator_scope);
        let (admin, operator) = (admin?, operator?);
        if admin == operator {
            return self
                .fail("identity.operator_scope", "is identity.admin_scope too: every administrator would be one");
        }
        Some(Offices { admin, operator })
    }

    fn jwt(&mut self, raw: &raw::Identity, notices: &mut Vec<String>) -> Option<Option<JwtSettings>> {
        let keys = self.key_source(raw, notices)?;
        let Some(keys) = keys else {
            if raw.jwt_issuer.is_some() || !raw.jwt_audience.is_empty() {
                let message = "name the file with the issuer's keys, or its URL in identity.jwt_keys_url";
                return self.fail("identity.jwt_keys", message);
            }
            return Some(None);
        };
        let issuer = match raw.jwt_issuer.as_deref().map(str::trim) {
            Some(issuer) if !issuer.is_empty() => Some(issuer.to_owned()),
            Some(_) | None => self.fail("identity.jwt_issuer", "name the issuer, as the `iss` of its tokens does"),
        };
        let audience = if raw.jwt_audience.is_empty() || raw.jwt_audience.iter().any(|one| one.trim().is_empty()) {
            let message =
                "name this service as the `aud` of its tokens does; without it tokens made for others would count";
            self.fail("identity.jwt_audience", message)
        } else {
            Some(raw.jwt_audience.clone())
        };
        let algorithms = self.algorithms(&raw.jwt_algorithms);
        let leeway = self.count("identity.jwt_leeway_s", raw.jwt_leeway_s, 0, 600);
        let refresh = self.duration("identity.jwt_refresh_s", raw.jwt_refresh_s, 1000, 60);
        let claim = raw.jwt_tenant_claim.trim();
        Some(Some(JwtSettings {
            keys,
            issuer: issuer?,
            audience: audience?,
            leeway: Duration::from_secs(leeway? as u64),
            algorithms: algorithms?,
            tenant_claim: (!claim.is_empty()).then(|| claim.to_owned()),
            refresh: refresh?,
        }))
    }

    fn key_source(&mut self, raw: &raw::Identity, notices: &mut Vec<String>) -> Option<Option<KeySource>> {
        let file = self.path("identity.jwt_keys", &raw.jwt_keys)?;
        let Some(url) = &raw.jwt_keys_url else { return Some(file.map(KeySource::File)) };
        if file.is_some() {
            return self.fail("identity.jwt_keys_url", "stands beside identity.jwt_keys; remove one of them");
        }
        match reqwest::Url::parse(url) {
            Ok(parsed) if matches!(parsed.scheme(), "https" | "http") && parsed.has_host() => {
                if parsed.scheme() == "http" {
                    notices.push(
                        "identity.jwt_keys_url is not https: whoever is between this machine and the issuer can name \
                         keys of their own"
                            .into(),
                    );
                }
                Some(Some(KeySource::Url(url.clone())))
            }
            // The URL may hold a secret.
            Ok(_) | Err(_) => self.fail("identity.jwt_keys_url", "expected a URL such as https://id.example/jwks.json"),
        }
    }

    fn algorithms(&mut self, named: &[String]) -> Option<Vec<Algorithm>> {
        let parsed: Option<Vec<Algorithm>> = named.iter().map(|name| Algorithm::parse(name.trim())).collect();
        match parsed {
            Some(algorithms) if !algorithms.is_empty() => Some(algorithms),
            Some(_) | None => {
                let known = Algorithm::ALL.map(Algorithm::as_str).join(", ");
                self.fail("identity.jwt_algorithms", format!("expected some of {known}; no others are safe here"))
            }
        }
    }

    pub(super) fn tls(&mut self, raw: &raw::Tls) -> Option<Option<TlsSettings>> {
        let cert = self.path("tls.cert", &raw.cert);
        let key = self.path("tls.key", &raw.key);
        let client_ca = self.path("tls.client_ca", &raw.client_ca);
        let (cert, key, client_ca) = (cert?, key?, client_ca?);
        let (cert, key): (PathBuf, PathBuf) = match (cert, key) {
            (Some(cert), Some(key)) => (cert, key),
            (Some(_), None) => return self.fail("tls.key", "name the file with the key of tls.cert"),
            (None, Some(_)) => return self.fail("tls.cert", "name the file with the certificate of tls.key"),
            (None, None) if client_ca.is_some() || raw.require_client_cert => {
                return self.fail("tls.cert", "clients can show certificates only to a server that has one");
            }
            (None, None) => return Some(None),
        };
        if raw.require_client_cert && client_ca.is_none() {
            return self.fail("tls.client_ca", "name the authorities by whose certificates clients are known");
        }
        Some(Some(TlsSettings { cert, key, client_ca, require_client_cert: raw.require_client_cert }))
    }

    pub(super) fn audit(&mut self, raw: &raw::Audit) -> Option<AuditTarget> {
        match raw.file.as_str() {
            raw::OFF => Some(AuditTarget::Off),
            raw::STDERR => Some(AuditTarget::Stderr),
            path if path.trim().is_empty() => self.fail("audit.file", "expected stderr, off, or a file"),
            path => Some(AuditTarget::File(path.into())),
        }
    }
}
