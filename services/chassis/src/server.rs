//! Serving HTTPS to people and programs: TLS, limits, drain.

mod first_byte;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use world::clock::Clock;
use world::network::{Connection, Listener};
use world::{World, WorldTasks, WorldTimer};

use crate::Shutdown;

/// Flow-control window of one HTTP/2 stream, in bytes. The connection's is that of all its streams together, so that one that is not
/// read stops no other.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// RFC 9113, section 6.9.1.
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// What crosses the two ends when something failed.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Who dialled: among the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Among the extensions of a request that came without TLS to a server that has TLS, from this machine: see [`Server::plain_on_loopback`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainOnLoopback;

/// The token in the value of an `Authorization` header (RFC 6750), if it is one of at most `longest` bytes.
#[must_use]
pub fn bearer_token(authorization: &HeaderValue, longest: usize) -> Option<&str> {
    let (scheme, token) = authorization.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && token.len() <= longest).then(|| token.trim())
}

/// What one client may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of open connections; further connections wait.
    pub connections: usize,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long a request's head may take to come in, and how long a connection may lie idle (HTTP/1).
    pub head: Duration,
    /// Largest head of a request, in bytes.
    pub head_bytes: usize,
    /// Requests at the same time on one HTTP/2 connection.
    pub streams: u32,
    /// How long connections may take to finish once the server is asked to stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(15),
            head_bytes: 16 * 1024,
            streams: 100,
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves a service on a listener: HTTP/1.1 with upgrades, and HTTP/2.
pub struct Server {
    /// What its tasks are called.
    pub name: &'static str,
    /// Clock and tasks.
    pub world: World,
    /// Where connections come in.
    pub listener: Box<dyn Listener>,
    /// How they are encrypted.
    pub tls: Option<Arc<ServerConfig>>,
    /// Where it listens on the loopback with TLS, programs of this machine may also speak plain HTTP: for browsers, which would warn of a
    /// certificate of the installation's own authority, and on the loopback need none.
    pub plain_on_loopback: bool,
    /// What one client may take.
    pub limits: Limits,
}

/// Notes that a connection has asked something, and says who does.
#[derive(Clone)]
struct Noting<S> {
    inner: S,
    peer: Peer,
    plain: Option<PlainOnLoopback>,
    asked: Arc<AtomicBool>,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for Noting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.asked.store(true, Ordering::Release);
        request.extensions_mut().insert(self.peer);
        if let Some(plain) = self.plain {
            request.extensions_mut().insert(plain);
        }
        self.inner.call(request)
    }
}

/// Returns when nothing was asked in time; never when something was. Until the first request it is not known which protocol
/// is spoken, and no other deadline runs.
async fn never_asks(clock: &dyn Clock, within: Duration, asked: &AtomicBool) {
    clock.sleep(within).await;
    if asked.load(Ordering::Acquire) {
        std::future::pending::<()>().await;
    }
}

async fn encrypt(
    acceptor: Option<TlsAcceptor>,
    socket: Box<dyn Connection>,
    may_be_plain: bool,
) -> io::Result<(Box<dyn Connection>, Option<PlainOnLoopback>)> {
    let Some(acceptor) = acceptor else { return Ok((socket, None)) };
    if !may_be_plain {
        return Ok((Box::new(acceptor.accept(socket).await?), None));
    }
    let (is_tls, socket) = first_byte::looked_at(socket).await?;
    match is_tls {
        true => Ok((Box::new(acceptor.accept(socket).await?), None)),
        false => Ok((socket, Some(PlainOnLoopback))),
    }
}

impl Server {
    /// Accepts and serves until `shutdown`, then waits for what runs, within the drain time.
    ///
    /// # Errors
    /// When the listener fails for good.
    pub async fn serve<S, B>(self, service: S, shutdown: Shutdown) -> anyhow::Result<()>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let permits = Arc::new(Semaphore::new(self.limits.connections));
        let drain = GracefulShutdown::new();
        let builder = self.builder();
        let acceptor = self.tls.clone().map(TlsAcceptor::from);
        let may_be_plain = self.plain_on_loopback && self.listener.local_address()?.ip().is_loopback();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.requested() => break,
                accepted = self.accept(&permits) => accepted?,
            };
            let Some((socket, peer, permit)) = accepted else { continue };
            let mut service =
                Noting { inner: service.clone(), peer: Peer(peer), plain: None, asked: Arc::default() };
            let may_be_plain = may_be_plain && peer.ip().is_loopback();
            let (builder, watcher) = (builder.clone(), drain.watcher());
            let (clock, limits, acceptor) = (Arc::clone(&self.world.clock), self.limits, acceptor.clone());
            let connection = async move {
                let _permit = permit;
                let encrypted = tokio::select! {
                    biased;
                    encrypted = encrypt(acceptor, socket, may_be_plain) => encrypted,
                    () = clock.sleep(limits.handshake) => return,
                };
                let Ok((stream, plain)) =
                    encrypted.inspect_err(|error| tracing::debug!(%peer, %error, "TLS handshake failed"))
                else {
                    return;
                };
                service.plain = plain;
                let asked = Arc::clone(&service.asked);
                let served =
                    builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
                tokio::select! {
                    biased;
                    served = watcher.watch(served) => {
                        if let Err(error) = served {
                            tracing::debug!(%peer, %error, "connection broke");
                        }
                    }
                    () = never_asks(&*clock, limits.head, &asked) => tracing::debug!(%peer, "connection sent no request"),
                }
            };
            self.world.spawner.spawn(self.name, Box::pin(connection));
        }
        drop(self.listener);
        tokio::select! {
            biased;
            () = drain.shutdown() => {}
            () = self.world.clock.sleep(self.limits.drain) => tracing::info!("connections ended before they finished"),
        }
        Ok(())
    }

    fn builder(&self) -> Builder<WorldTasks> {
        let timer = WorldTimer::new(&self.world);
        let mut builder = Builder::new(WorldTasks::new(&self.world, self.name));
        builder
            .http1()
            .timer(timer.clone())
            .header_read_timeout(self.limits.head)
            .max_buf_size(self.limits.head_bytes.max(8192));
        builder
            .http2()
            .timer(timer)
            .max_header_list_size(u32::try_from(self.limits.head_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(self.limits.streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(
                STREAM_WINDOW.saturating_mul(self.limits.streams).min(LARGEST_WINDOW),
            )
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(20));
        builder
    }

    /// The next connection; `None` when accepting failed in a way that passes.
    async fn accept(&self, permits: &Arc<Semaphore>) -> anyhow::Result<Option<Accepted>> {
        let permit = Arc::clone(permits).acquire_owned().await?;
        match self.listener.accept().await {
            Ok((socket, peer)) => Ok(Some((socket, peer, permit))),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                let pause = pin!(self.world.clock.sleep(Duration::from_millis(100)));
                pause.await;
                Ok(None)
            }
        }
    }
}

type Accepted = (Box<dyn Connection>, SocketAddr, tokio::sync::OwnedSemaphorePermit);
