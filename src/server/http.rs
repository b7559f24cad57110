//! The second port: metrics for scrapers, probes for orchestrators.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::app::{App, Phase};
use crate::decision::Degraded;
use crate::pipeline::RunMode;

pub(super) async fn serve(listener: TcpListener, app: Arc<App>, stop: CancellationToken) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .with_state(app);
    axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let Some(handle) = app.prometheus.clone() else {
        return (StatusCode::NOT_FOUND, "no metrics recorder is installed\n").into_response();
    };
    // Rendering folds all histograms, which takes longer than an async task may run.
    match tokio::task::spawn_blocking(move || handle.render()).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The registry files cannot be read: what was served last is served.
const LAST_GOOD: &str = "last_good_catalog";

/// Body of `/readyz`; keys are always present.
#[derive(Serialize)]
struct Readiness {
    status: &'static str,
    catalog_version: Option<String>,
    tools: usize,
    quarantined: usize,
    /// Changes of cards that wait for approval.
    held: usize,
    /// Modes in which every answer is worth less than it could be.
    degraded: Vec<&'static str>,
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let phase = app.phase();
    let mut body = Readiness {
        status: phase.as_str(),
        catalog_version: None,
        tools: 0,
        quarantined: 0,
        held: 0,
        degraded: Vec::new(),
    };
    if let Some(router) = app.router() {
        let (version, registry) = router.registry();
        body.catalog_version = Some(version);
        body.tools = registry.cards.len();
        body.quarantined = registry.quarantined.len();
        match router.mode() {
            RunMode::Normal => {}
            RunMode::LocalOnly => body.degraded.push(Degraded::LocalOnly.as_str()),
            RunMode::RulesOnly => body.degraded.push(Degraded::RulesOnly.as_str()),
        }
        if router.is_lexical_only() {
            body.degraded.push(Degraded::LexicalOnly.as_str());
        }
        if registry.last_good.is_some() {
            body.degraded.push(LAST_GOOD);
        }
        body.held = registry.held.len();
    }
    let code = match phase {
        Phase::Ready => StatusCode::OK,
        Phase::Loading | Phase::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    let json = serde_json::to_string(&body).expect("strings and numbers are JSON");
    (code, [(header::CONTENT_TYPE, "application/json")], json).into_response()
}
