//! What every handler shares: settings, the router once it is loaded, and the phase the server is in.

use std::sync::{Arc, OnceLock};

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::requests::Requests;
use crate::config::ServerSettings;
use crate::identity::{CallersError, Identity};
use crate::pipeline::{self, Router, StartError};

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

/// Hears of embedding work while the catalog loads: done, total.
type Progress = Box<dyn Fn(usize, usize) + Send + Sync>;

/// One server, from before its catalog is loaded until it has stopped.
pub struct App {
    pub(super) server: ServerSettings,
    pub(super) pipeline: pipeline::Settings,
    pub(super) identity: Identity,
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
    /// [`CallersError`] when the file of callers cannot be used.
    pub fn new(server: ServerSettings, pipeline: pipeline::Settings) -> Result<Self, CallersError> {
        let identity = Identity::load(server.identity.clone())?;
        Ok(Self {
            server,
            pipeline,
            identity,
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

    /// The router, once its catalog is loaded.
    pub fn router(&self) -> Option<&Arc<Router>> {
        self.router.get()
    }

    /// Reads the file of callers again, if there is one, and says how many callers it names.
    ///
    /// # Errors
    /// [`CallersError`]; the callers known so far stay.
    pub fn reload_callers(&self) -> Result<Option<usize>, CallersError> {
        self.identity.reload()
    }

    pub(super) async fn load(&self) -> Result<(), StartError> {
        let router = Router::start(self.pipeline.clone(), &*self.progress).await?;
        let _ = self.router.set(router);
        Ok(())
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.phase.send_modify(|current| *current = phase.max(*current));
    }
}
