//! What every handler shares: settings, the router once it is loaded, and the phase the server is in.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::counter;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::audit::{Audit, AuditError};
use super::requests::Requests;
use super::tls::{Tls, TlsError};
use crate::config::ServerSettings;
use crate::identity::{Identity, KeysError, LoadError};
use crate::pipeline::{self, Router, StartError};
use crate::telemetry::names;

/// How often the files of the certificates are looked at.
const LOOK: Duration = Duration::from_secs(30);

/// Where a server stands in its life; it only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The ports are open, the catalog is not there yet.
    Loading,
    Ready,
    /// What is in work is being finished.
    Stopping,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
        }
    }
}

/// What a server needs before it can open its ports.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Identity(#[from] LoadError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Audit(#[from] AuditError),
}

/// Hears of embedding work while the catalog loads: done, total.
type Progress = Box<dyn Fn(usize, usize) + Send + Sync>;

/// One server, from before its catalog is loaded until it has stopped.
pub struct App {
    pub(super) server: ServerSettings,
    pub(super) pipeline: pipeline::Settings,
    pub(super) identity: Identity,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) audit: Audit,
    pub(super) requests: Requests,
    /// Changes to the catalog: they finish even when the caller that asked for them has left.
    pub(super) writes: TaskTracker,
    pub(super) prometheus: Option<PrometheusHandle>,
    progress: Progress,
    router: OnceLock<Arc<Router>>,
    phase: watch::Sender<Phase>,
}

impl App {
    /// # Errors
    /// [`AppError`] when callers, keys or certificates cannot be read, or the audit record cannot be written.
    pub fn new(server: ServerSettings, pipeline: pipeline::Settings) -> Result<Self, AppError> {
        let identity = Identity::load(server.identity.clone())?;
        let tls = server.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
        let audit = Audit::open(server.audit.clone())?;
        if identity.knows_certificates() && server.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none()) {
            tracing::warn!("callers are told by certificates, and tls.client_ca does not ask for any");
        }
        Ok(Self {
            server,
            pipeline,
            identity,
            tls,
            audit,
            requests: Requests::new(),
            writes: TaskTracker::new(),
            prometheus: None,
            progress: Box::new(|_, _| ()),
            router: OnceLock::new(),
            phase: watch::Sender::new(Phase::Loading),
        })
    }

    /// Serves what the recorder behind `handle` holds under `/metrics`. The recorder is process-wide, so the binary
    /// installs it.
    #[must_use]
    pub fn with_metrics(mut self, handle: PrometheusHandle) -> Self {
        self.prometheus = Some(handle);
        self
    }

    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(usize, usize) + Send + Sync + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until requests are answered; false when the server stops before that.
    pub async fn ready(&self) -> bool {
        let mut phase = self.phase.subscribe();
        phase.wait_for(|phase| *phase != Phase::Loading).await.is_ok_and(|phase| *phase == Phase::Ready)
    }

    /// Waits until the server begins to stop.
    pub(super) async fn stopping(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives in `self`, so the channel cannot close while this runs.
        let _ = phase.wait_for(|phase| *phase == Phase::Stopping).await;
    }

    /// The router, once its catalog is loaded.
    pub fn router(&self) -> Option<&Arc<Router>> {
        self.router.get()
    }

    /// Reads the file of callers again, if there is one, and says how many callers it names. The keys of signed tokens
    /// are read with it.
    ///
    /// # Errors
    /// [`LoadError`]; the callers and keys known so far stay.
    pub fn reload_callers(&self) -> Result<Option<usize>, LoadError> {
        self.identity.reload()
    }

    /// Reads the certificates of the port again; false when there are none.
    ///
    /// # Errors
    /// [`TlsError`]; those in force stay.
    pub fn reload_certificates(&self) -> Result<bool, TlsError> {
        self.tls.as_ref().map_or(Ok(false), |tls| tls.reload().map(|()| true))
    }

    pub(super) async fn load(&self) -> Result<(), StartError> {
        // Before the first call is answered; an issuer that is down is asked again later.
        tell_of_keys(self.identity.fetch_keys().await.map(|()| None));
        let router = Router::start(self.pipeline.clone(), &*self.progress).await?;
        router.lint_unasked();
        let _ = self.router.set(router);
        Ok(())
    }

    /// Keeps keys of signed tokens and certificates fresh for as long as it is polled.
    pub(super) async fn keep_fresh(&self) {
        tokio::join!(self.identity.keep_keys_fresh(|result| tell_of_keys(result.map(Some))), self.watch_certificates());
    }

    async fn watch_certificates(&self) {
        let Some(tls) = &self.tls else { return };
        let mut look = tokio::time::interval(LOOK);
        loop {
            look.tick().await;
            let tls = Arc::clone(tls);
            // The time to read three small files, on a disk that may be slow.
            match tokio::task::spawn_blocking(move || tls.reload_if_changed()).await {
                Ok(None) => {}
                Ok(Some(Ok(()))) => tracing::info!("certificates read again"),
                Ok(Some(Err(error))) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "the certificates cannot be read; those in force stay");
                }
                Err(error) => tracing::error!(%error, "the certificates could not be looked at"),
            }
        }
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.phase.send_modify(|current| *current = phase.max(*current));
    }
}

fn tell_of_keys(result: Result<Option<usize>, KeysError>) {
    let label = if result.is_ok() { "ok" } else { "failed" };
    match result {
        Ok(None) => return,
        Ok(Some(keys)) => tracing::debug!(keys, "keys of tokens read"),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "the keys of tokens cannot be read; those known so far stay");
        }
    }
    counter!(names::IDENTITY_KEY_READS, "result" => label).increment(1);
}
