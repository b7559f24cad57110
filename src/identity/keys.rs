//! The public keys of whoever issues tokens: a JSON Web Key Set (RFC 7517) from a file or a URL.
//!
//! The set in force is replaced as a whole and only by one that holds a usable key, so an issuer that is down or answers
//! nonsense takes nobody's access away.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::jwt::Algorithm;

/// What a key set may take, and how many keys of it are read.
const MAX_BYTES: usize = 256 * 1024;
const MAX_KEYS: usize = 100;
const FETCH_TIME: Duration = Duration::from_secs(5);
/// Two attempts lie at least so far apart, however many unknown keys are named meanwhile.
pub(super) const LEAST_GAP: Duration = Duration::from_secs(60);

/// Where the keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Url(String),
}

/// The keys cannot be read; those known so far stay.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("cannot read the keys of tokens in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The URL may hold what is not for a log.
    #[error("cannot fetch the keys of tokens")]
    Fetch(#[source] reqwest::Error),
    #[error("cannot fetch the keys of tokens: HTTP status {0}")]
    Status(u16),
    #[error("the keys of tokens take more than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the keys of tokens are no JSON object with a list `keys`")]
    NoSet,
    #[error("none of the keys of tokens can be used: only RSA, P-256, P-384 and Ed25519 keys for signatures count")]
    NoKeys,
}

/// What kind of key it is, which limits the algorithms it may be used with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Kind {
    fn fits(self, algorithm: Algorithm) -> bool {
        use Algorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        match self {
            Self::Rsa => matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512),
            Self::P256 => algorithm == Es256,
            Self::P384 => algorithm == Es384,
            Self::Ed25519 => algorithm == EdDsa,
        }
    }
}

pub(super) struct Key {
    id: Option<String>,
    kind: Kind,
    /// The only algorithm the issuer uses it with, where it says so.
    only: Option<Algorithm>,
    pub decoding: DecodingKey,
}

impl Key {
    /// `None` for a key that is not for checking signatures; a secret one is never taken.
    fn read(value: &Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        let kind = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Kind::Rsa,
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => Kind::P256,
                EllipticCurve::P384 => Kind::P384,
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Kind::Ed25519,
            _ => return None,
        };
        let only = match value.get("alg").and_then(Value::as_str) {
            None => None,
            Some(name) => Some(Algorithm::parse(name)?),
        };
        let id = jwk.common.key_id.clone();
        Some(Self { id, kind, only, decoding: DecodingKey::from_jwk(&jwk).ok()? })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        self.kind.fits(algorithm) && self.only.is_none_or(|only| only == algorithm)
    }
}

#[derive(Default)]
pub(super) struct KeySet(Vec<Key>);

impl KeySet {
    pub fn parse(text: &[u8]) -> Result<Self, KeysError> {
        let document: Value = serde_json::from_slice(text).map_err(|_| KeysError::NoSet)?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or(KeysError::NoSet)?;
        let keys: Vec<Key> = keys.iter().take(MAX_KEYS).filter_map(Key::read).collect();
        if keys.is_empty() { Err(KeysError::NoKeys) } else { Ok(Self(keys)) }
    }

    /// The one key of that id that may be used with `algorithm`. A token without an id fits only where no second key
    /// could be meant.
    pub fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut found = self.0.iter().filter(|key| key.fits(algorithm) && (id.is_none() || key.id.as_deref() == id));
        let first = found.next();
        if found.next().is_some() { None } else { first }
    }
}

/// The set in force and how it is renewed.
pub(super) struct Keys {
    source: Source,
    http: Option<reqwest::Client>,
    set: ArcSwap<KeySet>,
    wanted: Notify,
}

impl Keys {
    /// Keys in a file are read now, those behind a URL by [`Self::refresh`].
    pub fn load(source: Source) -> Result<Self, KeysError> {
        let (set, http) = match &source {
            Source::File(path) => (read(path)?, None),
            Source::Url(_) => (KeySet::default(), Some(client().map_err(KeysError::Fetch)?)),
        };
        Ok(Self { source, http, set: ArcSwap::from_pointee(set), wanted: Notify::new() })
    }

    pub fn set(&self) -> arc_swap::Guard<Arc<KeySet>> {
        self.set.load()
    }

    /// Says that a token names a key which is not there: perhaps there is a new one.
    pub fn want(&self) {
        self.wanted.notify_one();
    }

    /// The keys as they stand in the file now; `None` where they come from a URL.
    pub fn reread(&self) -> Result<Option<KeySet>, KeysError> {
        match &self.source {
            Source::File(path) => read(path).map(Some),
            Source::Url(_) => Ok(None),
        }
    }

    pub fn replace(&self, set: KeySet) {
        self.set.store(Arc::new(set));
    }

    /// Reads the keys again, now.
    pub async fn refresh(&self) -> Result<usize, KeysError> {
        let set = match (&self.source, &self.http) {
            (Source::Url(url), Some(http)) => KeySet::parse(&fetch(http, url).await?)?,
            // A file of this size is read faster than another thread is woken.
            (Source::File(path), _) => read(path)?,
            (Source::Url(_), None) => return Err(KeysError::NoKeys),
        };
        let count = set.0.len();
        self.replace(set);
        Ok(count)
    }

    /// Keeps the keys fresh for as long as it is polled: every `interval`, earlier after [`Self::want`] or a failure, but
    /// never twice within [`LEAST_GAP`].
    pub async fn keep_fresh(&self, interval: Duration, tell: impl Fn(Result<usize, KeysError>)) {
        let mut last = Instant::now();
        let mut wait = interval.max(LEAST_GAP);
        loop {
            tokio::select! {
                () = sleep_until(last + wait) => {}
                () = self.wanted.notified() => sleep_until(last + LEAST_GAP).await,
            }
            last = Instant::now();
            let result = self.refresh().await;
            wait = if result.is_ok() { interval.max(LEAST_GAP) } else { LEAST_GAP };
            tell(result);
        }
    }
}

fn client() -> reqwest::Result<reqwest::Client> {
    // A redirect would let whoever answers name another issuer.
    reqwest::Client::builder().timeout(FETCH_TIME).redirect(reqwest::redirect::Policy::none()).build()
}

async fn fetch(http: &reqwest::Client, url: &str) -> Result<Vec<u8>, KeysError> {
    let failed = |error: reqwest::Error| KeysError::Fetch(error.without_url());
    let mut response = http.get(url).send().await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(KeysError::Status(response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MAX_BYTES {
            return Err(KeysError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn read(path: &Path) -> Result<KeySet, KeysError> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path);
    file.and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text))
        .map_err(|source| KeysError::Read { path: path.into(), source })?;
    if text.len() > MAX_BYTES { Err(KeysError::TooLong) } else { KeySet::parse(&text) }
}
