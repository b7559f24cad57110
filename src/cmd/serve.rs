//! `pointsman serve`: the server, its signals and its metrics recorder.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::anyhow;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use pointsman::config::ServerSettings;
use pointsman::server::{self, App, Drained, ServeError};
use pointsman::telemetry::names::{LATENCY_BUCKETS_SECONDS, RESULT_CHARS, RESULT_TOKENS, SIZE_BUCKETS};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::failure::Failure;
use super::options::Options;
use super::{block_on, logging, progress};

#[derive(clap::Args)]
#[command(after_help = "Signals: SIGTERM and SIGINT drain (a second one exits at once), SIGHUP reads the registry \
                        files, the callers and the certificates again.\nPort 0 takes a free port; the addresses in use are printed when the server is ready.\n\n\
                        Examples:\n  \
                        pointsman serve --registry examples/shop/registry.yaml\n  \
                        pointsman serve --config pointsman.toml --listen 127.0.0.1:0 --http 127.0.0.1:0\n  \
                        pointsman serve --registry tools.jsonl --scopes orders:read,refunds:read --strict")]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Address for gRPC [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Address for /metrics, /healthz and /readyz [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// Refuse to start when any card cannot be served
    #[arg(long)]
    strict: bool,
    /// Scopes of callers on this machine, comma-separated; without it they have all
    #[arg(long, value_name = "SCOPE,...")]
    scopes: Option<String>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let mut flags = Vec::new();
    flags.extend(args.listen.map(|addr| ("server.listen".to_owned(), addr.to_string())));
    flags.extend(args.http.map(|addr| ("server.http".to_owned(), addr.to_string())));
    flags.extend(args.strict.then(|| ("registry.strict".to_owned(), "true".to_owned())));
    flags.extend(args.scopes.map(|scopes| ("server.scopes".to_owned(), scopes)));
    let settings = args.options.load(flags)?.settings;
    logging::init(&settings)?;
    let recorder = recorder().map_err(|err| Failure::failed(err).context("cannot start the metrics recorder"))?;
    if settings.pipeline.registries.is_empty() {
        warn!("no registry file is configured: the catalog holds only cards that were put");
    }
    block_on(async move {
        // Before anything slow, so that a signal during the load is heard.
        let signals = Signals::install().map_err(|err| Failure::failed(err).context("cannot listen for signals"))?;
        let grpc = bind(settings.server.listen, "--listen").await?;
        warn_of_exposure(&settings.server);
        let http = bind(settings.server.http, "--http").await?;
        let app = App::new(settings.server, settings.pipeline).map_err(Failure::unusable)?;
        let app = app.with_metrics(recorder).with_progress(progress::embedding());
        serve(grpc, http, Arc::new(app), signals).await
    })
}

/// What whoever starts the server should know about who can call it.
fn warn_of_exposure(server: &ServerSettings) {
    let (beyond, identified) = (!server.listen.ip().is_loopback(), server.identity.identifies());
    if !identified {
        warn!("callers are not identified: everybody on this machine may use every tool and change the registry");
    }
    if beyond && !identified {
        warn!("nothing in [identity] names callers: those beyond this machine will be refused");
    }
    if beyond && identified && server.tls.is_none() {
        warn!("tokens travel in the clear: set [tls], or put a proxy that speaks TLS in front of this port");
    }
    if server.identity.header.is_some() {
        warn!("identity.header is set: every program on this machine can name itself as any caller");
    }
}

async fn serve(grpc: TcpListener, http: TcpListener, app: Arc<App>, signals: Signals) -> Result<(), Failure> {
    let address = |listener: &TcpListener| {
        listener.local_addr().map_err(|err| Failure::failed(err).context("cannot read the address of a port"))
    };
    let lines = format!("grpc listening on {}\nhttp listening on {}\n", address(&grpc)?, address(&http)?);
    let stop = CancellationToken::new();
    let server = tokio::spawn(server::serve(grpc, http, app.clone(), stop.clone()));
    tokio::spawn(announce(app.clone(), lines));
    let ended = tokio::select! {
        ended = server => ended,
        failure = signals.follow(&app, &stop) => return Err(failure),
    };
    let Drained { in_flight, cut } = ended.map_err(ServeError::Crashed).flatten().map_err(failure)?;
    info!(in_flight, cut, "stopped");
    Ok(())
}

async fn announce(app: Arc<App>, lines: String) {
    if app.ready().await {
        // Whoever started us may have closed the pipe; the server does not depend on it.
        let mut out = std::io::stdout();
        let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    }
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Start(error) => Failure::from(error),
        ServeError::Grpc(_) | ServeError::Http(_) | ServeError::Crashed(_) => Failure::failed(error),
    }
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|err| {
        Failure::failed(err)
            .context(format!("cannot listen on {address}"))
            .remedy(format!("choose another address with {flag}; port 0 takes a free one"))
    })
}

fn recorder() -> Result<PrometheusHandle, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), LATENCY_BUCKETS_SECONDS)?
        .set_buckets_for_metric(Matcher::Full(RESULT_CHARS.into()), SIZE_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(RESULT_TOKENS.into()), SIZE_BUCKETS)?
        .install_recorder()
}

/// What the operating system can ask of the server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Cancels `stop` at the first signal to end and returns at the second.
    async fn follow(mut self, app: &Arc<App>, stop: &CancellationToken) -> Failure {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => { tokio::spawn(reload(app.clone())); }
                _ = self.terminate.recv() => if stop.is_cancelled() { break } else { stop.cancel() },
                _ = self.interrupt.recv() => if stop.is_cancelled() { break } else { stop.cancel() },
            }
        }
        Failure::failed(anyhow!("a second signal cut the drain short"))
    }
}

async fn reload(app: Arc<App>) {
    match app.reload_callers() {
        Ok(None) => {}
        Ok(Some(callers)) => info!(callers, "callers read again"),
        Err(err) => {
            let error = format!("{:#}", anyhow::Error::new(err));
            error!(error, "the callers or keys cannot be read; those known so far stay");
        }
    }
    match app.reload_certificates() {
        Ok(false) => {}
        Ok(true) => info!("certificates read again"),
        Err(err) => {
            let error = format!("{:#}", anyhow::Error::new(err));
            error!(error, "the certificates cannot be read; those in force stay");
        }
    }
    let Some(router) = app.router() else {
        warn!("still loading: nothing to reload yet");
        return;
    };
    match router.reload().await {
        Ok(change) => {
            let (added, changed, removed) = (change.added.len(), change.changed.len(), change.removed.len());
            let quarantined = change.quarantined.len();
            info!(version = change.catalog_version, added, changed, removed, quarantined, "registry reloaded");
        }
        Err(err) => {
            let error = format!("{:#}", anyhow::Error::new(err));
            error!(error, "reload failed; the current catalog keeps serving");
        }
    }
}
