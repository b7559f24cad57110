//! Signed tokens (RFC 7519): who issued them, for whom, until when, and what they say about the caller.
//!
//! Only asymmetric algorithms of an allow-list count: with `none` nothing is signed, and with a shared secret whoever can
//! check a token can also make one.

use std::collections::BTreeSet;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::header::is_name;
use super::keys::{Keys, KeysError, Source};
use super::{Offices, Refused};
use crate::types::{Caller, Scope};

/// Claims that may hold scopes: a list, or words in one string.
const SCOPE_CLAIMS: [&str; 3] = ["scope", "scp", "scopes"];

/// Signature algorithms (RFC 7518, RFC 8037) that may be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Names are written as in the standard, case included.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    fn wire(self) -> jsonwebtoken::Algorithm {
        use jsonwebtoken::Algorithm as Wire;
        match self {
            Self::Rs256 => Wire::RS256,
            Self::Rs384 => Wire::RS384,
            Self::Rs512 => Wire::RS512,
            Self::Ps256 => Wire::PS256,
            Self::Ps384 => Wire::PS384,
            Self::Ps512 => Wire::PS512,
            Self::Es256 => Wire::ES256,
            Self::Es384 => Wire::ES384,
            Self::EdDsa => Wire::EdDSA,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub keys: Source,
    /// The `iss` of every token.
    pub issuer: String,
    /// One of these has to be among a token's `aud`.
    pub audience: Vec<String>,
    /// How far the issuer's clock may be off.
    pub leeway: Duration,
    pub algorithms: Vec<Algorithm>,
    /// The claim with the tenant; `None` makes every subject a tenant of its own.
    pub tenant_claim: Option<String>,
    /// How often the keys are read again.
    pub refresh: Duration,
}

/// Tokens of one issuer.
pub(super) struct Jwt {
    settings: Settings,
    pub keys: Keys,
}

impl std::fmt::Debug for Jwt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jwt").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Jwt {
    pub fn load(settings: Settings) -> Result<Self, KeysError> {
        let keys = Keys::load(settings.keys.clone())?;
        Ok(Self { settings, keys })
    }

    /// Whether `token` has the form of one: three parts.
    pub fn has_form(token: &str) -> bool {
        token.split('.').count() == 3
    }

    pub async fn keep_fresh(&self, tell: impl Fn(Result<usize, KeysError>)) {
        self.keys.keep_fresh(self.settings.refresh, tell).await;
    }

    pub fn resolve(&self, token: &str, offices: &Offices) -> Result<Caller, Refused> {
        let refused = |reason: &'static str| {
            // The caller is not told, and of the token nothing is shown.
            tracing::debug!(reason, "a signed token was refused");
            Refused::UnknownToken
        };
        let header = decode_header(token).map_err(|_| refused("malformed header"))?;
        let allowed = self.settings.algorithms.iter().copied().find(|algorithm| algorithm.wire() == header.alg);
        let algorithm = allowed.ok_or_else(|| refused("algorithm not allowed"))?;
        // An extension that has to be understood (RFC 7515, section 4.1.11), and none is.
        if header.crit.is_some() {
            return Err(refused("critical extension"));
        }
        let set = self.keys.set();
        let Some(key) = set.find(header.kid.as_deref(), algorithm) else {
            self.keys.want();
            return Err(refused("no such key"));
        };
        let claims = decode::<Map<String, Value>>(token, &key.decoding, &self.validation(algorithm))
            .map_err(|error| refused(reason(error.kind())))?
            .claims;
        self.caller(&claims, offices).ok_or_else(|| refused("subject or tenant missing"))
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm.wire());
        // A claim that is checked only when present would be as good as none.
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&self.settings.audience);
        validation.leeway = self.settings.leeway.as_secs();
        validation.validate_nbf = true;
        validation
    }

    fn caller(&self, claims: &Map<String, Value>, offices: &Offices) -> Option<Caller> {
        let name = |claim: &str| claims.get(claim).and_then(Value::as_str).filter(|text| is_name(text));
        let subject = name("sub")?;
        let tenant = match &self.settings.tenant_claim {
            None => subject,
            Some(claim) => name(claim)?,
        };
        Some(offices.caller(subject, tenant, scopes(claims)))
    }
}

fn scopes(claims: &Map<String, Value>) -> BTreeSet<Scope> {
    let words = |text: &str| text.split_whitespace().map(|word| Scope(word.to_owned())).collect::<Vec<_>>();
    let of = |value: &Value| match value {
        Value::String(text) => words(text),
        Value::Array(list) => list.iter().filter_map(Value::as_str).flat_map(words).collect(),
        _ => Vec::new(),
    };
    SCOPE_CLAIMS.into_iter().filter_map(|claim| claims.get(claim)).flat_map(of).collect()
}

fn reason(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "expired",
        ErrorKind::ImmatureSignature => "not valid yet",
        ErrorKind::InvalidIssuer => "another issuer",
        ErrorKind::InvalidAudience => "another audience",
        ErrorKind::InvalidSignature => "signature does not fit",
        ErrorKind::MissingRequiredClaim(_) => "a claim is missing",
        _ => "malformed",
    }
}

#[cfg(test)]
mod tests;
