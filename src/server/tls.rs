//! Certificates of the gRPC port, replaced while the server runs.
//!
//! A connection keeps the settings it was made with; new ones get what is in force. Files that cannot be used change
//! nothing.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use metrics::counter;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, WantsVerifier};

use crate::config::TlsSettings;
use crate::telemetry::names;

const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The only protocol of the port.
const ALPN: &[u8] = b"h2";

/// The files of `[tls]` cannot be used. Never shows what they hold.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} holds no {what} in PEM form", path.display())]
    Empty { path: PathBuf, what: &'static str },
    #[error("{} holds no sound PEM", path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("{} and {} cannot be used together", cert.display(), key.display())]
    Pair {
        cert: PathBuf,
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("the authorities in {} cannot be used", path.display())]
    Authorities {
        path: PathBuf,
        #[source]
        source: VerifierBuilderError,
    },
    #[error("TLS cannot be set up")]
    Protocol(#[source] rustls::Error),
}

/// What tells a file from the one that stood there before.
type Stamp = Vec<Option<(u64, i64, i64, u64)>>;

/// What the port shows and asks for.
pub(super) struct Tls {
    settings: TlsSettings,
    config: ArcSwap<ServerConfig>,
    /// Of the files at the last attempt to read them.
    seen: Mutex<Stamp>,
}

impl Tls {
    /// # Errors
    /// [`TlsError`] when a file cannot be used.
    pub fn load(settings: TlsSettings) -> Result<Self, TlsError> {
        let seen = stamp(&settings);
        let config = config(&settings)?;
        Ok(Self { settings, config: ArcSwap::from_pointee(config), seen: Mutex::new(seen) })
    }

    /// For the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// [`TlsError`]; what was in force stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        // Before the files are read: a change meanwhile is seen as one at the next look.
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = stamp(&self.settings);
        let next = config(&self.settings);
        counter!(names::TLS_RELOADS, "result" => if next.is_ok() { "ok" } else { "failed" }).increment(1);
        self.config.store(Arc::new(next?));
        Ok(())
    }

    /// Reads the files again if they are others than at the last attempt; `None` if not.
    pub fn reload_if_changed(&self) -> Option<Result<(), TlsError>> {
        let changed = *self.seen.lock().unwrap_or_else(PoisonError::into_inner) != stamp(&self.settings);
        changed.then(|| self.reload())
    }
}

fn files(settings: &TlsSettings) -> impl Iterator<Item = &Path> {
    [Some(&settings.cert), Some(&settings.key), settings.client_ca.as_ref()].into_iter().flatten().map(PathBuf::as_path)
}

fn stamp(settings: &TlsSettings) -> Stamp {
    let of = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size()))
    };
    files(settings).map(of).collect()
}

fn config(settings: &TlsSettings) -> Result<ServerConfig, TlsError> {
    // Named, so that nothing depends on what else in the process chose a default.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = certificates(&settings.cert)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&settings.key)?).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::Empty { path: settings.key.clone(), what: "private key" },
        source => TlsError::Pem { path: settings.key.clone(), source },
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?;
    let mut config = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => with_clients(builder, path, settings.require_client_cert, provider)?,
    }
    .with_single_cert(chain, key)
    .map_err(|source| TlsError::Pair { cert: settings.cert.clone(), key: settings.key.clone(), source })?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

fn with_clients(
    builder: ConfigBuilder<ServerConfig, WantsVerifier>,
    path: &Path,
    required: bool,
    provider: Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ServerConfig, rustls::server::WantsServerCert>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(TlsError::Protocol)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = if required { verifier } else { verifier.allow_unauthenticated() };
    let verifier = verifier.build().map_err(|source| TlsError::Authorities { path: path.into(), source })?;
    Ok(builder.with_client_cert_verifier(verifier))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|source| TlsError::Pem { path: path.into(), source })?;
    if chain.is_empty() { Err(TlsError::Empty { path: path.into(), what: "certificate" }) } else { Ok(chain) }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path);
    file.and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut text))
        .map_err(|source| TlsError::Read { path: path.into(), source })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    fn write(settings: &TlsSettings) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        std::fs::write(&settings.cert, cert.pem()).unwrap();
        std::fs::write(&settings.key, signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn files_are_read_again_when_they_change_and_bad_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (cert, key) = (path("cert.pem"), path("key.pem"));
        let settings = TlsSettings { cert, key, client_ca: None, require_client_cert: false };
        assert!(matches!(Tls::load(settings.clone()), Err(TlsError::Read { .. })));
        write(&settings);
        let tls = Tls::load(settings.clone()).unwrap();
        let first = tls.config();
        assert!(tls.reload_if_changed().is_none());

        std::fs::write(&settings.cert, "-----BEGIN CERTIFICATE-----\nhalf").unwrap();
        assert!(tls.reload_if_changed().unwrap().is_err());
        assert!(tls.reload_if_changed().is_none(), "a bad file is complained about once");
        assert!(Arc::ptr_eq(&first, &tls.config()));

        write(&settings);
        assert!(tls.reload_if_changed().unwrap().is_ok());
        assert!(!Arc::ptr_eq(&first, &tls.config()));
        // The key of another certificate.
        let other = generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        std::fs::write(&settings.key, other.signing_key.serialize_pem()).unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Pair { .. })));
        std::fs::write(&settings.key, "").unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Empty { .. })));
    }
}
