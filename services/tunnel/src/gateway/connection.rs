//! An agent that came in: its HTTP/2 server, seen from the gateway.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use world::World;
use world::network::Connection;
use world::spawn::TaskHandle;

use super::driver::{Driver, End, describe};
use crate::body::{BodyFault, Guard, GuardedBody, Replay, RequestBody, empty, full};
use crate::gathered::Gathered;
use crate::http2::{ExchangeError, exchange};
use crate::runtime::within;
use crate::settings::{
    CONNECTION_WINDOW_BYTES, Keepalive, MAXIMUM_HEADER_LIST_BYTES, MAXIMUM_STREAMS, RESET_STREAM_DURATION,
    SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES,
};
use crate::wire::{Farewell, MESSAGE_PACK, TRACEPARENT, cluster, path};

/// Streams at once until the agent has said how many it takes.
const STREAMS_AT_FIRST: usize = 100;
/// How long the last word may take.
const FAREWELL_TIME: Duration = Duration::from_millis(300);

/// A request to an agent got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The tunnel is closed, or broke while asking.
    #[error("the tunnel is closed: {detail}")]
    Closed {
        /// What happened.
        detail: String,
    },
    /// The agent did not answer in time.
    #[error("the agent did not answer within {limit:?}")]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The request itself cannot be sent.
    #[error("the request cannot be sent: {detail}")]
    Unsendable {
        /// What is wrong.
        detail: String,
    },
    /// The answer broke off.
    #[error("the agent's answer cannot be read")]
    Answer(#[source] BodyFault),
}

/// A request that got no answer, and what became of it.
#[derive(Debug)]
pub struct Unanswered {
    /// Why.
    pub error: AskError,
    /// The request itself, where it may be sent again.
    pub again: Option<Again>,
}

/// A request that may be sent over another connection.
#[derive(Debug)]
pub enum Again {
    /// The agent did not take it: nothing of it was sent, or the agent takes none any more.
    Unsent(Box<Request<RequestBody>>),
    /// The connection was lost, so that nobody knows what became of it. It only reads.
    Lost(Box<Request<RequestBody>>),
}

/// An answer that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentReply {
    /// HTTP status.
    pub status: StatusCode,
    /// The body.
    pub body: Bytes,
}

/// The way to one agent instance. Clones share the connection; it closes when it is told to, not when they are dropped.
#[derive(Clone)]
pub struct AgentConnection {
    world: World,
    guard: Guard,
    sender: SendRequest<Bytes>,
    traceparent: Option<HeaderValue>,
    shared: Arc<Shared>,
}

struct Shared {
    driver: TaskHandle,
    end: End,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl AgentConnection {
    /// Turns the roles round. What waits in `io`, the answer to the upgrade, goes with the first words of HTTP/2.
    pub(super) async fn turn(
        world: &World,
        io: Gathered<Box<dyn Connection>>,
        keepalive: Keepalive,
        guard: Guard,
    ) -> Result<Self, h2::Error> {
        io.hold();
        let (sender, connection) = h2::client::Builder::new()
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_reset_streams(MAXIMUM_STREAMS as usize)
            .reset_stream_duration(RESET_STREAM_DURATION)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .max_header_list_size(MAXIMUM_HEADER_LIST_BYTES)
            .max_concurrent_streams(0)
            .enable_push(false)
            .handshake(io)
            .await?;
        let end = End::default();
        let driver = Driver {
            world: world.clone(),
            connection,
            sender: sender.clone(),
            keepalive,
            end: Arc::clone(&end),
        };
        let driver = world.spawner.spawn("tunnel-connection", Box::pin(driver.run()));
        let shared = Arc::new(Shared { driver, end });
        Ok(Self { world: world.clone(), guard, sender, traceparent: None, shared })
    }

    /// The same connection, whose requests by [`Self::ask`] are part of a trace (W3C Trace Context).
    #[must_use]
    pub fn traced(&self, traceparent: Option<&str>) -> Self {
        let traceparent = traceparent.and_then(|text| HeaderValue::from_str(text).ok());
        Self { traceparent, ..self.clone() }
    }

    /// Sends a request; gives the answer's head as soon as it is there. The body is guarded, and its time the caller's business.
    ///
    /// # Errors
    /// When the tunnel is closed, or the head is not there within `limit`.
    pub async fn request(
        &self,
        request: Request<RequestBody>,
        limit: Duration,
    ) -> Result<Response<GuardedBody>, AskError> {
        self.request_guarded(request, limit, self.guard).await
    }

    /// As [`Self::request`], with other bounds for the answer.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_guarded(
        &self,
        request: Request<RequestBody>,
        limit: Duration,
        guard: Guard,
    ) -> Result<Response<GuardedBody>, AskError> {
        self.try_request(request, limit, guard).await.map_err(|unanswered| unanswered.error)
    }

    /// As [`Self::request_guarded`]; a request that was not taken comes back, and may go over another connection, and so does one that only
    /// reads where the connection was lost.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn try_request(
        &self,
        request: Request<RequestBody>,
        limit: Duration,
        guard: Guard,
    ) -> Result<Response<GuardedBody>, Unanswered> {
        let (parts, body) = request.into_parts();
        let head = Request::from_parts(parts.clone(), ());
        let (replay, body) = Replay::of(body);
        let exchange = exchange(&self.world, self.sender.clone(), head, body);
        let late = Unanswered { error: AskError::TimedOut { limit }, again: None };
        let unheard = match within(&self.world, limit, exchange).await.ok_or(late)? {
            Ok(response) => {
                return Ok(response.map(|stream| GuardedBody::new(&self.world, guard, stream)));
            }
            Err(unheard) => unheard,
        };
        let closed = |error: &h2::Error| AskError::Closed { detail: describe(error) };
        // Before the request comes back: it finds another connection.
        let end = |error: &h2::Error| drop(self.shared.end.set(describe(error)));
        let only_reads = cluster::only_reads(&parts.method, &parts.headers);
        let again = || replay.again().map(|body| Box::new(Request::from_parts(parts, body)));
        Err(match unheard {
            ExchangeError::NotTaken(error) => {
                end(&error);
                Unanswered { error: closed(&error), again: again().map(Again::Unsent) }
            }
            ExchangeError::Broken(error) if error.is_io() => {
                end(&error);
                let again = only_reads.then(again).flatten().map(Again::Lost);
                Unanswered { error: closed(&error), again }
            }
            ExchangeError::Unsendable(error) => {
                Unanswered { error: AskError::Unsendable { detail: error.to_string() }, again: None }
            }
            // An agent of ours takes as many as it said, so that nothing is gained by asking it again.
            ExchangeError::Refused(error) | ExchangeError::Broken(error) => {
                Unanswered { error: closed(&error), again: None }
            }
        })
    }

    /// Sends `body` with this method to this path (and query), and reads the whole answer, of at most `largest` bytes, within
    /// `limit`.
    ///
    /// # Errors
    /// See [`AskError`]. Any status is an answer.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        largest: usize,
        limit: Duration,
    ) -> Result<AgentReply, AskError> {
        let mut request = request(method, path, body)?;
        if let Some(traceparent) = &self.traceparent {
            request.headers_mut().insert(TRACEPARENT, traceparent.clone());
        }
        let asked = async {
            let response = self.request(request, limit).await?;
            let status = response.status();
            let body = response.into_body().collect_up_to(largest).await.map_err(AskError::Answer)?;
            Ok(AgentReply { status, body })
        };
        within(&self.world, limit, asked).await.ok_or(AskError::TimedOut { limit })?
    }

    /// Whether the connection has ended, or takes no more requests.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.end.initialized()
    }

    /// Returns, with the reason, once the connection has ended, or an agent that stops was found to take no more requests: answers that
    /// were under way then go on until [`Self::close`], or until the agent ends them.
    pub async fn closed(&self) -> String {
        self.shared.end.wait().await.clone()
    }

    /// Says why and when to come back, as far as that goes quickly, and ends the connection with all its streams.
    pub async fn close(&self, farewell: &Farewell) {
        if let Ok(body) = events::encode(farewell) {
            let said = self.ask(Method::PUT, path::FAREWELL, Bytes::from(body), 0, FAREWELL_TIME).await;
            tracing::debug!(heard = said.is_ok(), reason = %farewell.reason, "farewell");
        }
        self.shared.driver.abort();
        let _first = self.shared.end.set(farewell.reason.clone());
    }
}

fn request(method: Method, to: &str, body: Bytes) -> Result<Request<RequestBody>, AskError> {
    let unsendable = |error: http::Error| AskError::Unsendable { detail: error.to_string() };
    let uri = http::Uri::builder()
        .scheme("http")
        .authority("agent")
        .path_and_query(to)
        .build()
        .map_err(unsendable)?;
    let bodied = !body.is_empty();
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .body(if bodied { full(body) } else { empty() })
        .map_err(unsendable)?;
    if bodied {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MESSAGE_PACK));
    }
    Ok(request)
}
