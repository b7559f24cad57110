//! Connections of the gRPC port, in the clear or over TLS, each with the address it was accepted from.
//!
//! The address is taken when the connection is accepted: asked for later, a connection that was reset meanwhile has none,
//! and a caller without an address counts as one of this machine.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

use metrics::counter;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use super::tls::Tls;
use crate::telemetry::names;

/// A client that takes longer to agree on keys is not waited for.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at a time; connections beyond them are closed at once.
const HANDSHAKES: usize = 256;
/// Connections that wait for the server to take them.
const WAITING: usize = 64;
/// After an error of the port itself, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end, found in the extensions of each request.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub address: SocketAddr,
    /// Whose chain, dates and key were checked in the handshake.
    pub certificate: Option<Arc<CertificateDer<'static>>>,
}

pub(super) struct Connection {
    stream: Stream,
    peer: Peer,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Accepts until `stop`, or until nobody takes the connections any more.
pub(super) fn incoming(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    stop: CancellationToken,
) -> ReceiverStream<io::Result<Connection>> {
    let (connections, taken) = mpsc::channel(WAITING);
    let door = Door { tls, handshakes: Arc::new(Semaphore::new(HANDSHAKES)), connections };
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = door.connections.closed() => {}
            () = accept(&listener, &door) => {}
        }
    });
    ReceiverStream::new(taken)
}

struct Door {
    tls: Option<Arc<Tls>>,
    handshakes: Arc<Semaphore>,
    connections: mpsc::Sender<io::Result<Connection>>,
}

async fn accept(listener: &TcpListener, door: &Door) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => door.admit(stream, address).await,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

impl Door {
    async fn admit(&self, stream: TcpStream, address: SocketAddr) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let Some(tls) = &self.tls else {
            let peer = Peer { address, certificate: None };
            let _ = self.connections.send(Ok(Connection { stream: Stream::Plain(stream), peer })).await;
            return;
        };
        let Ok(place) = Arc::clone(&self.handshakes).try_acquire_owned() else {
            ended("refused");
            return;
        };
        let (acceptor, connections) = (TlsAcceptor::from(tls.config()), self.connections.clone());
        tokio::spawn(async move {
            let agreed = handshake(acceptor, stream, address).await;
            // Others may begin while this one waits to be taken.
            mem::drop(place);
            if let Some(connection) = agreed {
                let _ = connections.send(Ok(connection)).await;
            }
        });
    }
}

async fn handshake(acceptor: TlsAcceptor, stream: TcpStream, address: SocketAddr) -> Option<Connection> {
    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            ended("ok");
            let chain = stream.get_ref().1.peer_certificates();
            let certificate =
                chain.and_then(|chain| chain.first()).cloned().map(CertificateDer::into_owned).map(Arc::new);
            Some(Connection { stream: Stream::Tls(Box::new(stream)), peer: Peer { address, certificate } })
        }
        Ok(Err(error)) => {
            ended("failed");
            tracing::debug!(%address, %error, "a client and the server did not agree on TLS");
            None
        }
        Err(_) => {
            ended("late");
            tracing::debug!(%address, "a client did not finish its TLS handshake");
            None
        }
    }
}

fn ended(result: &'static str) {
    counter!(names::TLS_HANDSHAKES, "result" => result).increment(1);
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
