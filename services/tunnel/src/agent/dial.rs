//! Dialling: TCP, TLS, the upgrade.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use events::{Refusal, RefusalKind};
use http::header::{HOST, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use world::World;
use world::network::Connection;

use crate::corked::Corked;
use crate::handshake::{HandshakeError, Hello, TUNNEL_PATH, Token, Welcome};
use crate::runtime::within;
use crate::settings::Keepalive;

/// How long a dial may take as a whole unless the caller says otherwise.
pub const DEFAULT_DIAL_TIMEOUT: Duration = Duration::from_secs(20);

/// Largest head and largest refusal that an agent reads of an answer, in bytes.
const MAXIMUM_HEAD_BYTES: usize = 16 * 1024;
const MAXIMUM_REFUSAL_BYTES: usize = 16 * 1024;

/// Where a gateway is.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its name or address; the name that its certificate must hold.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How to speak to it.
    pub transport: Transport,
}

/// How to speak to a gateway.
#[derive(Debug, Clone)]
pub enum Transport {
    /// TLS. The configuration should offer [`crate::settings::ALPN`] and nothing else.
    Tls(Arc<rustls::ClientConfig>),
    /// Without protection: token and manifests can be read on the way. Only when a person asked for it; a warning is logged.
    PlainText,
}

/// No link came to be.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The host cannot be reached.
    #[error("cannot reach {host}:{port}")]
    Unreachable {
        /// Which host.
        host: String,
        /// Which port.
        port: u16,
        /// What the network said.
        #[source]
        source: std::io::Error,
    },
    /// Nothing came back in time.
    #[error("no answer within {limit:?} while {step}")]
    TimedOut {
        /// What was being done.
        step: &'static str,
        /// The limit of the whole dial.
        limit: Duration,
    },
    /// The host is no name that a certificate can hold.
    #[error("{host:?} is neither a host name nor an address")]
    InvalidHost {
        /// What was given.
        host: String,
    },
    /// TLS failed. What to do about it is the caller's to say, who chose whom to trust.
    #[error("the TLS handshake with {host} failed")]
    Tls {
        /// Who was dialled.
        host: String,
        /// What rustls said.
        #[source]
        source: rustls::Error,
    },
    /// The connection broke before the tunnel was open.
    #[error("the connection broke while {step}")]
    Broken {
        /// What was being done.
        step: &'static str,
        /// What happened.
        #[source]
        source: crate::BoxError,
    },
    /// The gateway refused, and said why. `status` is 401, 403, 409 or 503.
    #[error("the gateway refused the tunnel ({status}): {refusal}")]
    Refused {
        /// HTTP status.
        status: StatusCode,
        /// Why.
        refusal: Refusal,
        /// Come back after this.
        retry_after: Option<Duration>,
    },
    /// Something answered that is no gateway.
    #[error("the server at {host}:{port} is not a gateway: {problem}")]
    NotAGateway {
        /// Which host.
        host: String,
        /// Which port.
        port: u16,
        /// What it answered.
        problem: String,
    },
    /// The agent's own hello cannot be said.
    #[error("cannot send the handshake")]
    Hello(#[source] HandshakeError),
}

/// An open tunnel on which nothing was served yet.
pub struct Link {
    pub(super) world: World,
    pub(super) io: Upgraded,
    pub(super) keepalive: Keepalive,
    welcome: Welcome,
    clock_skew_millis: i64,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("welcome", &self.welcome).finish_non_exhaustive()
    }
}

impl Link {
    /// What the gateway said.
    #[must_use]
    pub const fn welcome(&self) -> Welcome {
        self.welcome
    }

    /// By how many milliseconds this machine's clock is ahead of the server's; negative when it is behind. As exact as one
    /// round trip.
    #[must_use]
    pub const fn clock_skew_millis(&self) -> i64 {
        self.clock_skew_millis
    }

    /// Sets other times for the keepalive.
    #[must_use]
    pub const fn with_keepalive(mut self, keepalive: Keepalive) -> Self {
        self.keepalive = keepalive;
        self
    }
}

/// Dials with [`DEFAULT_DIAL_TIMEOUT`].
///
/// # Errors
/// See [`DialError`].
pub async fn dial(world: &World, target: &Target, token: &Token, hello: &Hello) -> Result<Link, DialError> {
    dial_within(world, target, token, hello, DEFAULT_DIAL_TIMEOUT).await
}

/// Dials; all of it takes no longer than `limit`.
///
/// # Errors
/// See [`DialError`].
pub async fn dial_within(
    world: &World,
    target: &Target,
    token: &Token,
    hello: &Hello,
    limit: Duration,
) -> Result<Link, DialError> {
    let started = world.clock.monotonic();
    let left = || limit.saturating_sub(world.clock.monotonic().saturating_sub(started));
    let timed_out = |step| DialError::TimedOut { step, limit };

    let socket = within(world, left(), world.network.dial(&target.host, target.port))
        .await
        .ok_or_else(|| timed_out("connecting"))?
        .map_err(|source| DialError::Unreachable { host: target.host.clone(), port: target.port, source })?;
    let io: Box<dyn Connection> = match &target.transport {
        Transport::PlainText => {
            tracing::warn!(host = %target.host, "tunnel without TLS: others can read the token and manifests on the network");
            socket
        }
        Transport::Tls(config) => {
            let shaken = secure(target, Arc::clone(config), socket);
            within(world, left(), shaken).await.ok_or_else(|| timed_out("securing the connection"))??
        }
    };
    within(world, left(), upgrade(world, target, io, token, hello))
        .await
        .ok_or_else(|| timed_out("asking for the tunnel"))?
}

async fn secure(
    target: &Target,
    config: Arc<rustls::ClientConfig>,
    socket: Box<dyn Connection>,
) -> Result<Box<dyn Connection>, DialError> {
    let name = ServerName::try_from(target.host.clone())
        .map_err(|_| DialError::InvalidHost { host: target.host.clone() })?;
    let connector = tokio_rustls::TlsConnector::from(config);
    match connector.connect(name, Corked::new(socket)).into_fallible().await {
        Ok(mut stream) => {
            stream.get_mut().0.uncork();
            Ok(Box::new(stream))
        }
        Err((error, socket)) => {
            socket.flush_rest().await;
            Err(match tls_error(&error) {
                Some(source) => DialError::Tls { host: target.host.clone(), source: source.clone() },
                None => DialError::Broken { step: "securing the connection", source: Box::new(error) },
            })
        }
    }
}

/// What rustls said inside an I/O error of a handshake.
fn tls_error(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

async fn upgrade(
    world: &World,
    target: &Target,
    io: Box<dyn Connection>,
    token: &Token,
    hello: &Hello,
) -> Result<Link, DialError> {
    let broken =
        |source: hyper::Error| DialError::Broken { step: "asking for the tunnel", source: Box::new(source) };
    let mut request = Request::get(TUNNEL_PATH)
        .header(HOST, format!("{}:{}", target.host, target.port))
        .body(Empty::<Bytes>::new())
        .map_err(|error| DialError::Broken { step: "asking for the tunnel", source: Box::new(error) })?;
    request.headers_mut().extend(hello.to_headers(token).map_err(DialError::Hello)?);

    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAXIMUM_HEAD_BYTES)
        .handshake::<_, Empty<Bytes>>(TokioIo::new(io))
        .await
        .map_err(broken)?;
    let mut connection = pin!(connection.with_upgrades());
    let answered = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let received = world.clock.now_millis();
            let headers = response.headers().clone();
            let io = hyper::upgrade::on(response).await.map_err(broken)?;
            return Ok((io, headers, received));
        }
        Err(refused(target, response).await)
    };
    let mut answered = pin!(answered);
    let (io, headers, received) = tokio::select! {
        biased;
        answer = &mut answered => answer?,
        driven = &mut connection => {
            // The connection is done with HTTP; what it carried is, or is not, there.
            driven.map_err(broken)?;
            answered.await?
        }
    };
    let welcome = Welcome::from_headers(&headers).map_err(|error| DialError::NotAGateway {
        host: target.host.clone(),
        port: target.port,
        problem: error.to_string(),
    })?;
    Ok(Link {
        world: world.clone(),
        io,
        keepalive: Keepalive::default(),
        welcome,
        clock_skew_millis: received.saturating_sub(welcome.time_millis),
    })
}

async fn refused(target: &Target, response: Response<Incoming>) -> DialError {
    let status = response.status();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok())
        .map(Duration::from_secs);
    let body = Limited::new(response.into_body(), MAXIMUM_REFUSAL_BYTES).collect().await;
    let refusal = body.ok().and_then(|body| serde_json::from_slice::<Refusal>(&body.to_bytes()).ok());
    let known = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::CONFLICT,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    match refusal {
        Some(refusal) => DialError::Refused { status, refusal, retry_after },
        None if known.contains(&status) => {
            let refusal = Refusal::new(RefusalKind::Unavailable, "no reason was given");
            DialError::Refused { status, refusal, retry_after }
        }
        None => DialError::NotAGateway {
            host: target.host.clone(),
            port: target.port,
            problem: format!("it answered {status} without a reason"),
        },
    }
}
