//! One server's life: open ports, load, serve, drain.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Router;
use tonic::transport::{self, Server};
use tonic_health::pb::FILE_DESCRIPTOR_SET as HEALTH_DESCRIPTORS;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tracing::{info, warn};

use super::app::{App, Phase};
use super::gate::GateService;
use super::health::Health;
use super::incoming::incoming;
use super::proto::gate_server::GateServer;
use super::proto::registry_server::RegistryServer;
use super::proto::router_server::RouterServer;
use super::registry::RegistryService;
use super::router::RouterService;
use super::watch::Watch;
use super::{http, proto};
use crate::pipeline::StartError;

/// Dead peers are noticed after the interval plus the timeout.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests in work on one connection; further ones are refused at once rather than queued out of sight.
const PER_CONNECTION: u16 = 1024;
/// Answers already made may take this long to leave once nothing is in work any more. Connections that only wait,
/// such as a health watch, are closed after it.
const LINGER: Duration = Duration::from_millis(500);
/// How often records of calls are looked through for late ones.
const SWEEP: Duration = Duration::from_secs(30);
/// How often the recorder folds its histograms when nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Requests in work when the signal came.
    pub in_flight: usize,
    /// Those among them that were still in work after the grace period and were answered with UNAVAILABLE.
    pub cut: usize,
}

/// Why a server ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the gRPC port failed")]
    Grpc(#[source] transport::Error),
    #[error("the HTTP port failed")]
    Http(#[source] io::Error),
    #[error("a task of the server died")]
    Crashed(#[source] tokio::task::JoinError),
}

/// Serves until `stop`, then drains.
///
/// Both ports answer at once; health is NOT_SERVING and `/readyz` 503 until the catalog is loaded. After `stop`, health is
/// NOT_SERVING, no connection is accepted, and requests in work may finish within `server.drain`. Dropping the future
/// stops accepting without draining.
///
/// # Errors
/// [`ServeError`] when the catalog cannot be loaded or a port fails.
pub async fn serve(
    listener: TcpListener,
    http: TcpListener,
    app: Arc<App>,
    stop: CancellationToken,
) -> Result<Drained, ServeError> {
    let health = Health::new().await;
    let closing = Closing { grpc: CancellationToken::new(), http: CancellationToken::new() };
    let connections = incoming(listener, app.tls.clone(), closing.grpc.clone());
    let grpc = grpc(&app, &health).serve_with_incoming_shutdown(connections, closing.grpc.clone().cancelled_owned());
    let mut grpc = tokio::spawn(grpc);
    let mut http = tokio::spawn(http::serve(http, app.clone(), closing.http.clone()));
    let watch = Watch::begin(&app).await;
    let mut loading = AbortOnDrop(tokio::spawn({
        let app = app.clone();
        async move { app.load().await }
    }));
    let mut sweep = tokio::time::interval(SWEEP);
    let _fresh = AbortOnDrop(tokio::spawn({
        let app = app.clone();
        async move { app.keep_fresh().await }
    }));
    let _watched = watch.map(|watch| AbortOnDrop(tokio::spawn(watch.follow(app.clone()))));
    let mut upkeep = tokio::time::interval(UPKEEP);

    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            loaded = &mut loading.0, if app.phase() == Phase::Loading => {
                loaded.map_err(ServeError::Crashed)??;
                app.enter(Phase::Ready);
                health.serving().await;
            }
            ended = &mut grpc => return failed(&app, grpc_failed(ended)).await,
            ended = &mut http => return failed(&app, http_failed(ended)).await,
            _ = sweep.tick() => if let Some(router) = app.router().cloned() { tokio::spawn(async move { router.sweep().await }); },
            _ = upkeep.tick() => if let Some(handle) = &app.prometheus { handle.run_upkeep() },
        }
    }

    app.enter(Phase::Stopping);
    health.not_serving().await;
    closing.grpc.cancel();
    let drained = drain(&app).await;
    linger(grpc).await;
    closing.http.cancel();
    linger(http).await;
    if let Some(router) = app.router() {
        router.shutdown().await;
    }
    Ok(drained)
}

/// A port is gone: what is buffered is written out all the same.
async fn failed(app: &App, error: ServeError) -> Result<Drained, ServeError> {
    if let Some(router) = app.router() {
        router.shutdown().await;
    }
    Err(error)
}

/// Waits for what is in work, at most the grace period, then cuts the rest.
async fn drain(app: &App) -> Drained {
    let in_flight = app.requests.in_flight();
    info!(in_flight, "draining");
    app.writes.close();
    let finished = async {
        app.requests.idle().await;
        app.writes.wait().await;
        if let Some(router) = app.router() {
            router.calls_ended().await;
        }
    };
    if timeout(app.server.drain, finished).await.is_ok() {
        return Drained { in_flight, cut: 0 };
    }
    let cut = app.requests.cut();
    warn!(cut, "grace period is over");
    app.requests.idle().await;
    Drained { in_flight, cut }
}

fn grpc(app: &Arc<App>, health: &Health) -> Router {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(HEALTH_DESCRIPTORS)
    };
    let sound = "descriptors made by the build are sound";
    let bytes = app.server.max_message_bytes;
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(u32::from(PER_CONNECTION))
        .concurrency_limit_per_connection(usize::from(PER_CONNECTION))
        .load_shed(true)
        .add_service(HealthServer::new(HealthService::from_health_reporter(health.reporter())))
        .add_service(reflection().build_v1().expect(sound))
        .add_service(reflection().build_v1alpha().expect(sound))
        .add_service(
            RouterServer::new(RouterService(app.clone()))
                .max_decoding_message_size(bytes)
                .max_encoding_message_size(bytes),
        )
        .add_service(
            GateServer::new(GateService(app.clone())).max_decoding_message_size(bytes).max_encoding_message_size(bytes),
        )
        .add_service(
            RegistryServer::new(RegistryService(app.clone()))
                .max_decoding_message_size(bytes)
                .max_encoding_message_size(bytes),
        )
}

async fn linger<T>(mut server: JoinHandle<T>) {
    if timeout(LINGER, &mut server).await.is_err() {
        server.abort();
    }
}

fn grpc_failed(ended: Result<Result<(), transport::Error>, tokio::task::JoinError>) -> ServeError {
    match ended {
        Ok(Err(err)) => ServeError::Grpc(err),
        Ok(Ok(())) => ServeError::Http(io::Error::other("the port closed")),
        Err(err) => ServeError::Crashed(err),
    }
}

fn http_failed(ended: Result<io::Result<()>, tokio::task::JoinError>) -> ServeError {
    match ended {
        Ok(Err(err)) => ServeError::Http(err),
        Ok(Ok(())) => ServeError::Http(io::Error::other("the port closed")),
        Err(err) => ServeError::Crashed(err),
    }
}

/// Closes both ports when [`serve`] ends in whatever way.
struct Closing {
    grpc: CancellationToken,
    http: CancellationToken,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.grpc.cancel();
        self.http.cancel();
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
