//! Asking a running server: its address, who it is, and who asks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use pointsman::server::proto::registry_client::RegistryClient;
use pointsman::server::proto::router_client::RouterClient;
use pointsman::server::proto::{RouteRequest, RouteResponse};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};

use super::failure::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Where `serve` listens unless it is told otherwise.
const DEFAULT: &str = "http://127.0.0.1:50051";

/// Flags of a command that can ask a server.
#[derive(clap::Args)]
pub struct Remote {
    /// Ask this server; https:// for one that speaks TLS
    #[arg(long, value_name = "URL")]
    addr: Option<String>,
    /// File with the bearer token for that server
    #[arg(long, value_name = "FILE", requires = "addr")]
    token_file: Option<PathBuf>,
    /// Authorities by which that server is known (PEM); without it those of the system
    #[arg(long, value_name = "FILE", requires = "addr")]
    ca: Option<PathBuf>,
    /// Certificate to show to that server (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

/// A server to ask, with everything read that it takes.
pub struct Server {
    addr: String,
    endpoint: Endpoint,
    token: Option<MetadataValue<Ascii>>,
}

impl Remote {
    /// `None` when no server is named.
    pub fn server(&self) -> Result<Option<Server>, Failure> {
        let Some(addr) = &self.addr else {
            return if self.cert.is_some() {
                Err(Failure::unusable(anyhow!("--cert is for a server")).remedy("name the server with --addr URL"))
            } else {
                Ok(None)
            };
        };
        let tls = self.tls()?;
        // A certificate makes sense only where TLS is spoken.
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = if addr.contains("://") { addr.clone() } else { format!("{scheme}://{addr}") };
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|err| Failure::unusable(err).context(format!("`{addr}` is no address")))?
            .connect_timeout(CONNECT_TIMEOUT);
        let endpoint = match (url.starts_with("https://"), tls) {
            (true, tls) => endpoint
                .tls_config(tls.unwrap_or_else(|| ClientTlsConfig::new().with_enabled_roots()))
                .map_err(|err| Failure::unusable(err).context("the certificates cannot be used"))?,
            (false, None) => endpoint,
            (false, Some(_)) => {
                return Err(Failure::unusable(anyhow!("certificates are no use with {addr}"))
                    .remedy("name the server as https://…"));
            }
        };
        let token = self.token_file.as_deref().map(token).transpose()?;
        Ok(Some(Server { addr: addr.clone(), endpoint, token }))
    }

    /// The server named, else the one that a server without any settings is.
    pub fn server_or_default(&self) -> Result<Server, Failure> {
        match self.server()? {
            Some(server) => Ok(server),
            None => {
                let endpoint = Endpoint::from_static(DEFAULT).connect_timeout(CONNECT_TIMEOUT);
                Ok(Server { addr: DEFAULT.into(), endpoint, token: None })
            }
        }
    }

    fn tls(&self) -> Result<Option<ClientTlsConfig>, Failure> {
        if self.ca.is_none() && self.cert.is_none() {
            return Ok(None);
        }
        let mut tls = match &self.ca {
            Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
            None => ClientTlsConfig::new().with_enabled_roots(),
        };
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(Some(tls))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|err| Failure::unusable(err).context(format!("cannot read {}", path.display())))
}

/// The header with the token in a file.
fn token(path: &Path) -> Result<MetadataValue<Ascii>, Failure> {
    let place = path.display();
    let token = std::fs::read_to_string(path)
        .map_err(|err| Failure::unusable(err).context(format!("cannot read the token in {place}")))?;
    let header = format!("Bearer {}", token.trim()).parse();
    // The error would show the token.
    header.map_err(|_| Failure::unusable(anyhow!("{place} does not hold a token on a line of its own")))
}

impl Server {
    pub async fn route(self, request: RouteRequest) -> Result<RouteResponse, Failure> {
        let channel = self.connect("or route in process by leaving out --addr").await?;
        let request = self.signed(request);
        let answer = RouterClient::new(channel).max_decoding_message_size(usize::MAX).route(request).await;
        answer.map(Response::into_inner).map_err(|status| refused(&status))
    }

    /// One call of the `Registry` service.
    pub async fn registry<Q, A>(
        self,
        request: Q,
        call: impl AsyncFnOnce(RegistryClient<Channel>, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Failure> {
        let channel = self.connect("or name one with --addr URL").await?;
        let client = RegistryClient::new(channel).max_decoding_message_size(usize::MAX);
        call(client, self.signed(request)).await.map(Response::into_inner).map_err(|status| refused(&status))
    }

    fn signed<Q>(&self, request: Q) -> Request<Q> {
        let mut request = Request::new(request);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }

    /// `else_do`: what to do when there is none, beside starting one.
    async fn connect(&self, else_do: &str) -> Result<Channel, Failure> {
        self.endpoint.connect().await.map_err(|err| {
            Failure::failed(err)
                .context(format!("cannot reach a server at {}", self.addr))
                .remedy(format!("start one with `pointsman serve`, {else_do}"))
        })
    }
}

/// What a server said instead of an answer.
fn refused(status: &Status) -> Failure {
    let text = anyhow!("{}: {}", status.code(), status.message());
    match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::PermissionDenied => {
            Failure::unusable(text)
        }
        Code::Unauthenticated => Failure::unusable(text)
            .remedy("give the server's token with --token-file FILE, or a certificate with --cert and --key"),
        Code::Unavailable => Failure::failed(text).remedy("the server is loading or stopping; try again"),
        _ => Failure::failed(text),
    }
}
