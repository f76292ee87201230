//! Our own HTTP client for repositories. It looks at each address before it dials it, dials exactly that address, follows
//! no redirect by itself, and keeps connections for the next request.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use chassis::address::is_private;
use chassis::tls::{CertificateProblem, TlsError, client_config_trusting_also};
use futures::future::BoxFuture;
use http::Uri;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection as PooledConnection};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tower_service::Service;
use world::network::Connection;
use world::{World, WorldTasks};

use crate::Args;
use crate::git::GitError;

/// How long dialling and the TLS handshake may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may be silent.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an unused connection is kept. Longer than the default interval between polls.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// What the operator lets repositories be, beside servers on the internet with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// On this machine and its networks.
    pub private_addresses: bool,
    /// Over HTTP without TLS.
    pub plain_http: bool,
}

impl Allowed {
    /// By the settings.
    #[must_use]
    pub const fn by(args: &Args) -> Self {
        Self { private_addresses: args.allow_private_addresses, plain_http: args.allow_plain_http }
    }
}

/// The client, cheap to clone.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<Connector, Full<Bytes>>,
    world: World,
}

impl HttpClient {
    /// A client that trusts the machine's certificate authorities and those in `authorities` (PEM).
    ///
    /// # Errors
    /// When `authorities` holds no certificates.
    pub fn new(world: &World, allowed: Allowed, authorities: Option<&[u8]>) -> Result<Self, TlsError> {
        let tls = client_config_trusting_also(world, authorities, &[b"http/1.1"])?;
        let connector = Connector { world: world.clone(), allowed, tls };
        let client = Client::builder(WorldTasks::new(world, "git-connection"))
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(Self { client, world: world.clone() })
    }

    /// Sends a request and waits for the head of the answer. One that met a connection which its server was just closing is
    /// sent again, once: all our requests only read.
    ///
    /// # Errors
    /// `Refused` for an address that is not allowed, `Unreachable` for everything else.
    pub async fn send(
        &self,
        request: http::Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, GitError> {
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        for attempt in 0..2 {
            match self.within(SILENCE_TIMEOUT, self.client.request(request.clone())).await {
                Some(Ok(response)) => return Ok(response),
                Some(Err(error)) if attempt > 0 || error.is_connect() => return Err(explain(&host, &error)),
                Some(Err(_)) => {}
                None => return Err(GitError::unreachable(format!("{host} does not answer"))),
            }
        }
        Err(GitError::unreachable(format!("the connection to {host} broke")))
    }

    /// What `future` gives, or `None` when it takes longer than `limit`.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        within(&self.world, limit, future).await
    }
}

async fn within<F: Future>(world: &World, limit: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = world.clock.sleep(limit) => None,
    }
}

fn explain(host: &str, error: &hyper_util::client::legacy::Error) -> GitError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = source {
        if let Some(known) = current.downcast_ref::<GitError>() {
            return known.clone();
        }
        source = current.source();
    }
    GitError::unreachable(format!("the connection to {host} broke"))
}

#[derive(Clone)]
struct Connector {
    world: World,
    allowed: Allowed,
    tls: Arc<rustls::ClientConfig>,
}

impl Connector {
    async fn connect(self, uri: Uri) -> Result<Stream, GitError> {
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        if !secure && !self.allowed.plain_http {
            return Err(GitError::refused(format!(
                "{host} uses plain HTTP, so that others can read and change manifests on the network; set the repository to its https URL, or ask the operator to allow it (--allow-plain-http)"
            )));
        }
        let dialled = within(&self.world, CONNECT_TIMEOUT, async {
            let socket = self.dial(&host, port).await?;
            if secure { self.handshake(&host, socket).await } else { Ok(socket) }
        });
        let connection = dialled
            .await
            .unwrap_or_else(|| Err(GitError::unreachable(format!("{host} port {port} does not answer"))))?;
        Ok(Stream(TokioIo::new(connection)))
    }

    /// Dials an address that was looked at, so that another answer of the name server changes nothing.
    async fn dial(&self, host: &str, port: u16) -> Result<Box<dyn Connection>, GitError> {
        let addresses = self.world.network.resolve(host, port).await;
        let addresses =
            addresses.map_err(|_| GitError::unreachable(format!("the host name {host} is unknown")))?;
        let allowed = |address: &&SocketAddr| self.allowed.private_addresses || !is_private(address.ip());
        let mut allowed = addresses.iter().filter(allowed).peekable();
        if allowed.peek().is_none() {
            return Err(GitError::refused(format!(
                "{host} is a private address, which the operator must allow (--allow-private-addresses)"
            )));
        }
        for address in allowed {
            if let Ok(connection) = self.world.network.dial(&address.ip().to_string(), port).await {
                return Ok(connection);
            }
        }
        Err(GitError::unreachable(format!("{host} port {port} accepts no connection")))
    }

    async fn handshake(
        &self,
        host: &str,
        socket: Box<dyn Connection>,
    ) -> Result<Box<dyn Connection>, GitError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| GitError::refused(format!("{host} is not a valid name for a certificate")))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.tls));
        match connector.connect(name, socket).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(GitError::unreachable(untrusted(host, &error))),
        }
    }
}

/// Why a handshake failed, and what to do about it here.
fn untrusted(host: &str, error: &std::io::Error) -> String {
    match chassis::tls::explain(error, host) {
        Some(CertificateProblem::WrongAuthority { .. }) => format!(
            "the certificate of {host} comes from an authority that is not trusted here; give the authority's certificate with --git-ca-file, or check that the given one is this server's"
        ),
        Some(trouble @ CertificateProblem::WrongName { .. }) => format!(
            "the certificate of {host} is not for that name{}; use a name that it has in the repository's URL",
            trouble.names()
        ),
        Some(trouble) => trouble.to_string(),
        None => format!("no TLS connection to {host}: {error}"),
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = GitError;
    type Future = BoxFuture<'static, Result<Stream, GitError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), GitError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// A connection in the client's pool.
struct Stream(TokioIo<Box<dyn Connection>>);

impl PooledConnection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
