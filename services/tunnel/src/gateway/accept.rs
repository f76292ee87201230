//! Accepting: TLS, the upgrade request, the turn of the roles.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use events::{AgentId, Refusal, RefusalKind};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use world::network::Connection;
use world::{World, WorldTimer};

use super::connection::AgentConnection;
use super::tls::{Secured, secure};
use crate::body::Guard;
use crate::gathered::{Gathered, Hold};
use crate::handshake::{Hello, PROTOCOL_VERSION, TUNNEL_PATH, Token, Welcome};
use crate::runtime::within;
use crate::settings::Keepalive;

/// How a gateway takes connections.
#[derive(Debug, Clone)]
pub struct Acceptor {
    /// Certificates; `None` for plain text, which only a person's explicit wish allows.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// TLS and the request's head must be there within this time.
    pub head_timeout: Duration,
    /// The whole handshake, authentication included, must be over within this time.
    pub timeout: Duration,
    /// Largest head of the upgrade request, in bytes.
    pub maximum_head_bytes: usize,
    /// Liveness of what was accepted.
    pub keepalive: Keepalive,
    /// Bounds of each answer of the agent.
    pub guard: Guard,
}

impl Default for Acceptor {
    fn default() -> Self {
        Self {
            tls: None,
            head_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(20),
            maximum_head_bytes: 16 * 1024,
            keepalive: Keepalive::default(),
            guard: Guard::default(),
        }
    }
}

/// What somebody at the acceptor shows.
#[derive(Debug, Clone)]
pub struct Presented {
    /// What it says of itself; nothing of it is proven.
    pub hello: Hello,
    /// Its token.
    pub token: Token,
}

/// Why somebody is turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// HTTP status: 401, 403, 409 or 503.
    pub status: StatusCode,
    /// Why, and what to do.
    pub refusal: Refusal,
    /// Come back after this.
    pub retry_after: Option<Duration>,
}

impl Rejection {
    /// Nobody is known by this token, or it is no longer good.
    #[must_use]
    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, RefusalKind::Unauthenticated, message)
    }

    /// The token is good, but it opens no tunnel.
    #[must_use]
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, RefusalKind::Denied, message)
    }

    /// Not now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>, retry_after: Duration) -> Self {
        let retry_after = Some(retry_after);
        Self { retry_after, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, RefusalKind::Unavailable, message) }
    }

    fn new(status: StatusCode, kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { status, refusal: Refusal::new(kind, message), retry_after: None }
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let body = serde_json::to_vec(&self.refusal).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        response
    }
}

/// Nobody came in.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// TLS failed: somebody else, or an agent that does not trust our certificate.
    #[error("tls handshake failed")]
    Tls(#[source] std::io::Error),
    /// It took too long.
    #[error("handshake not finished within {limit:?}")]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// It was no upgrade request, or a broken one.
    #[error("no tunnel was requested: {detail}")]
    NotATunnel {
        /// What was asked.
        detail: String,
    },
    /// It was turned away.
    #[error("refused with {}: {}", .0.status, .0.refusal)]
    Rejected(Rejection),
    /// The connection broke.
    #[error("connection broke during the handshake")]
    Broken(#[source] hyper::Error),
    /// It broke once the roles had turned.
    #[error("connection broke as http/2 began")]
    Turn(#[source] h2::Error),
}

/// Somebody came in.
pub struct Accepted<T> {
    /// What it said of itself.
    pub hello: Hello,
    /// What the caller's authentication found out.
    pub admitted: T,
    /// The way to it.
    pub connection: AgentConnection,
    /// Whether and how TLS was agreed on.
    pub secured: Secured,
}

type Verdict<T> = Result<(OnUpgrade, Hello, T), AcceptError>;

impl Acceptor {
    /// Takes one connection through the handshake. `admit` judges what was shown; it gives whose token it is.
    ///
    /// # Errors
    /// See [`AcceptError`]; whoever is at the other end got an answer where that was possible.
    pub async fn accept<T, F, A>(
        &self,
        world: &World,
        socket: Box<dyn Connection>,
        admit: A,
    ) -> Result<Accepted<T>, AcceptError>
    where
        T: Send + 'static,
        A: FnOnce(Presented) -> F + Send + 'static,
        F: Future<Output = Result<(AgentId, T), Rejection>> + Send + 'static,
    {
        let timed_out = AcceptError::TimedOut { limit: self.timeout };
        within(world, self.timeout, self.shake(world, socket, admit)).await.ok_or(timed_out)?
    }

    async fn shake<T, F, A>(
        &self,
        world: &World,
        socket: Box<dyn Connection>,
        admit: A,
    ) -> Result<Accepted<T>, AcceptError>
    where
        T: Send + 'static,
        A: FnOnce(Presented) -> F + Send + 'static,
        F: Future<Output = Result<(AgentId, T), Rejection>> + Send + 'static,
    {
        let (io, secured) = match &self.tls {
            None => (socket, Secured::Not),
            Some(config) => within(world, self.head_timeout, secure(Arc::clone(config), socket))
                .await
                .ok_or(AcceptError::TimedOut { limit: self.head_timeout })?
                .map_err(AcceptError::Tls)?,
        };
        let verdict: Arc<Mutex<Option<Verdict<T>>>> = Arc::new(Mutex::new(None));
        let admit = Arc::new(Mutex::new(Some(admit)));
        let hold = Hold::default();
        let service = service_fn(|request: Request<Incoming>| {
            let (verdict, admit, world) = (Arc::clone(&verdict), admit.lock().take(), world.clone());
            let hold = Arc::clone(&hold);
            async move {
                let Some(admit) = admit else { return Ok(plain(StatusCode::BAD_REQUEST)) };
                // What is left of agreeing on TLS goes with the answer.
                hold.store(true, Ordering::Relaxed);
                let (response, outcome) = answer(&world, request, admit).await;
                // Only who is let in can wait for the answer until HTTP/2 begins.
                hold.store(outcome.is_ok(), Ordering::Relaxed);
                *verdict.lock() = Some(outcome);
                Ok::<_, Infallible>(response)
            }
        });
        let served = http1::Builder::new()
            .timer(WorldTimer::new(world))
            .header_read_timeout(self.head_timeout)
            .max_buf_size(self.maximum_head_bytes.max(8192))
            .max_headers(64)
            .keep_alive(false)
            .serve_connection(TokioIo::new(Gathered::new(io, Arc::clone(&hold))), service)
            .with_upgrades()
            .await;
        let outcome = verdict.lock().take();
        let (upgrade, hello, admitted) = match (outcome, served) {
            (Some(outcome), _) => outcome?,
            (None, Err(error)) if error.is_timeout() => {
                return Err(AcceptError::TimedOut { limit: self.head_timeout });
            }
            (None, Err(error)) => return Err(AcceptError::Broken(error)),
            (None, Ok(())) => {
                return Err(AcceptError::NotATunnel { detail: "closed without a request".to_owned() });
            }
        };
        let io = beneath(upgrade.await.map_err(AcceptError::Broken)?)?;
        let connection =
            AgentConnection::turn(world, io, self.keepalive, self.guard).await.map_err(AcceptError::Turn)?;
        Ok(Accepted { hello, admitted, connection, secured })
    }
}

/// What carried the upgrade, without what hyper holds for one that is read on.
fn beneath(upgraded: Upgraded) -> Result<Gathered<Box<dyn Connection>>, AcceptError> {
    let spoke_on = || AcceptError::NotATunnel { detail: "more than a request".to_owned() };
    let parts = upgraded.downcast::<TokioIo<Gathered<Box<dyn Connection>>>>().map_err(|_| spoke_on())?;
    if parts.read_buf.is_empty() { Ok(parts.io.into_inner()) } else { Err(spoke_on()) }
}

async fn answer<T, F, A>(
    world: &World,
    mut request: Request<Incoming>,
    admit: A,
) -> (Response<Full<Bytes>>, Verdict<T>)
where
    A: FnOnce(Presented) -> F,
    F: Future<Output = Result<(AgentId, T), Rejection>>,
{
    if request.method() != Method::GET || request.uri().path() != TUNNEL_PATH {
        let detail = format!("{} of another path", request.method());
        return (plain(StatusCode::NOT_FOUND), Err(AcceptError::NotATunnel { detail }));
    }
    let (hello, token) = match Hello::from_headers(request.headers()) {
        Ok(said) => said,
        Err(error) => {
            let detail = error.to_string();
            let refusal = Rejection::new(StatusCode::BAD_REQUEST, RefusalKind::Invalid, detail.clone());
            return (refusal.into_response(), Err(AcceptError::NotATunnel { detail }));
        }
    };
    let judged = match protocol(&hello) {
        Err(rejection) => Err(rejection),
        Ok(()) => admit(Presented { hello: hello.clone(), token }).await,
    };
    let welcomed = judged.and_then(|(agent, admitted)| {
        let welcome = Welcome { agent, protocol: PROTOCOL_VERSION, time_millis: world.clock.now_millis() };
        let headers = welcome.to_headers().map_err(|error| {
            Rejection::new(StatusCode::SERVICE_UNAVAILABLE, RefusalKind::Internal, error.to_string())
        })?;
        Ok((headers, admitted))
    });
    match welcomed {
        Err(rejection) => (rejection.clone().into_response(), Err(AcceptError::Rejected(rejection))),
        Ok((headers, admitted)) => {
            let upgrade = hyper::upgrade::on(&mut request);
            let mut response = plain(StatusCode::SWITCHING_PROTOCOLS);
            *response.headers_mut() = headers;
            (response, Ok((upgrade, hello, admitted)))
        }
    }
}

fn protocol(hello: &Hello) -> Result<(), Rejection> {
    if hello.protocol == PROTOCOL_VERSION {
        return Ok(());
    }
    let message = format!(
        "version {} of the link is not supported here, only {PROTOCOL_VERSION}: upgrade the older side",
        hello.protocol
    );
    Err(Rejection::new(StatusCode::CONFLICT, RefusalKind::Conflict, message))
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}
