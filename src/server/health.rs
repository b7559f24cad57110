//! `grpc.health.v1`: SERVING exactly while requests are answered, for the server as a whole and for each service.

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::proto::{registry_server, router_server};

/// The empty name stands for the whole server.
const SERVICES: [&str; 3] = ["", router_server::SERVICE_NAME, registry_server::SERVICE_NAME];

/// Sets all services at once.
#[derive(Debug, Clone)]
pub(super) struct Health(HealthReporter);

impl Health {
    /// Starts as NOT_SERVING.
    pub(super) async fn new() -> Self {
        let health = Self(HealthReporter::new());
        health.set(ServingStatus::NotServing).await;
        health
    }

    pub(super) async fn serving(&self) {
        self.set(ServingStatus::Serving).await;
    }

    pub(super) async fn not_serving(&self) {
        self.set(ServingStatus::NotServing).await;
    }

    async fn set(&self, status: ServingStatus) {
        for service in SERVICES {
            self.0.set_service_status(service, status).await;
        }
    }

    pub(super) fn reporter(&self) -> HealthReporter {
        self.0.clone()
    }
}
