//! The network surface: gRPC on one port, metrics and probes over HTTP on another.
//!
//! Owns: proto types and their checked translation, status codes, health, reflection, TLS, the audit record, start
//! and drain.
//! Does not know: how a decision is reached; every handler is one call into [`crate::pipeline`]. The only module that
//! sees tonic.

pub mod proto;
pub mod wire;

mod audit;
mod incoming;
mod metadata;
mod metrics;
mod status;
mod tls;

mod app;
mod requests;

mod gate;
mod health;
mod http;
mod registry;
mod router;

mod watch;

mod serve;

pub use app::{App, AppError, Phase};
pub use audit::AuditError;
pub use serve::{Drained, ServeError, serve};
pub use tls::TlsError;
