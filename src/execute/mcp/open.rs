//! A session with an MCP server: over streamable HTTP, or with a program of ours over its standard streams.
//!
//! Owns: how the transport is made, what bounds it, which variables a program gets.
//! Does not know: what the session is for.

use std::process::Stdio;

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::bounded::Bounded;
use super::stderr;
use crate::execute::client::Clients;
use crate::execute::{McpTarget, Secret};

/// Where programs are looked for. They get no other variable of ours but those that are named: our environment holds
/// keys.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where a server is, checked.
pub(super) enum Place {
    Url(Clients),
    Command { program: String, args: Vec<String>, env: Vec<(String, Secret)> },
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum Closed {
    /// The program cannot be started.
    Start(std::io::Error),
    Refused(Box<ClientInitializeError>),
}

pub(super) struct Opened<H: ClientHandler> {
    pub service: RunningService<RoleClient, H>,
    /// Ended when it is dropped.
    pub child: Option<Child>,
}

impl Place {
    /// # Errors
    /// A message for the operator.
    pub fn new(target: &McpTarget) -> Result<Self, String> {
        match target {
            McpTarget::Url(target) => Clients::new(target).map(Place::Url),
            McpTarget::Command { program, .. } if program.is_empty() => Err("the command is empty".into()),
            McpTarget::Command { program, args, env } => {
                Ok(Place::Command { program: program.clone(), args: args.clone(), env: env.clone() })
            }
        }
    }

    /// Connects and shakes hands. `max`: longest message that is read; `logged`: by this name a program's error stream
    /// reaches the log, without one it is nobody's.
    pub async fn open<H: ClientHandler>(
        &self,
        client: H,
        max: usize,
        logged: Option<&str>,
    ) -> Result<Opened<H>, Closed> {
        match self {
            Place::Url(clients) => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(clients.base.as_str())
                    .max_sse_event_size(max)
                    .max_json_response_size(max);
                // A session that expired means that nothing was run; the next request makes a new one.
                config.reinit_on_expired_session = false;
                let transport = StreamableHttpClientTransport::with_client(clients.kept.clone(), config);
                let service = client.serve(transport).await.map_err(|error| Closed::Refused(Box::new(error)))?;
                Ok(Opened { service, child: None })
            }
            Place::Command { program, args, env } => {
                let stderr = if logged.is_some() { Stdio::piped() } else { Stdio::null() };
                let (mut child, input, output) = spawn(program, args, env, stderr).map_err(Closed::Start)?;
                // Before the handshake: a program may have much to say first, and waits until it is read.
                if let (Some(name), Some(stderr)) = (logged, child.stderr.take()) {
                    tokio::spawn(stderr::log(name.to_owned(), stderr));
                }
                match client.serve((Bounded::new(output, max), input)).await {
                    Ok(service) => Ok(Opened { service, child: Some(child) }),
                    Err(error) => {
                        let _ = child.start_kill();
                        Err(Closed::Refused(Box::new(error)))
                    }
                }
            }
        }
    }
}

/// How we introduce ourselves.
pub(super) fn ourselves() -> ClientConfig {
    ClientConfig::new(ClientCapabilities::default(), Implementation::new("pointsman", env!("CARGO_PKG_VERSION")))
}

fn spawn(
    program: &str,
    args: &[String],
    env: &[(String, Secret)],
    stderr: Stdio,
) -> std::io::Result<(Child, ChildStdin, ChildStdout)> {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .env("PATH", PATH)
        .envs(env.iter().map(|(name, Secret(value))| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .kill_on_drop(true)
        .spawn()?;
    let streams = child.stdin.take().zip(child.stdout.take());
    let (input, output) = streams.ok_or_else(|| std::io::Error::other("the program has no streams"))?;
    Ok((child, input, output))
}
