//! An agent that came in: its HTTP/2 server, seen from the gateway.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::client::conn::http2;
use hyper::upgrade::Upgraded;
use tokio::sync::watch;
use world::World;
use world::spawn::TaskHandle;

use crate::body::{
    BodyFault, Coalesced, Guard, GuardedBody, Replay, RequestBody, empty, full, was_not_taken,
};
use crate::runtime::{ConnectionTasks, WorldTimer, within};
use crate::settings::{
    CONNECTION_WINDOW_BYTES, Keepalive, MAXIMUM_HEADER_LIST_BYTES, SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES,
};
use crate::wire::{Farewell, MESSAGE_PACK, TRACEPARENT, path};

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
    /// The request itself, if the agent did not take it: nothing of it was sent, or the agent takes none any more.
    pub unsent: Option<Box<Request<RequestBody>>>,
}

/// An answer that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
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
    /// hyper keeps room for 32 requests of each connection: what is boxed costs an idle one less.
    sender: http2::SendRequest<Pin<Box<Coalesced<RequestBody>>>>,
    traceparent: Option<HeaderValue>,
    shared: Arc<Shared>,
}

struct Shared {
    driver: TaskHandle,
    tasks: ConnectionTasks,
    ended: watch::Sender<Option<String>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn end(&self) {
        self.driver.abort();
        self.tasks.end();
    }
}

impl AgentConnection {
    /// Turns the roles round.
    pub(super) async fn turn(
        world: &World,
        io: Upgraded,
        keepalive: Keepalive,
        guard: Guard,
    ) -> hyper::Result<Self> {
        let tasks = ConnectionTasks::new(world);
        let (sender, connection) = http2::Builder::new(tasks.clone())
            .timer(WorldTimer::new(world))
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .max_header_list_size(MAXIMUM_HEADER_LIST_BYTES)
            .max_concurrent_streams(0)
            .keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout)
            .keep_alive_while_idle(true)
            .handshake(io)
            .await?;
        let (ended, _) = watch::channel(None);
        let told = ended.clone();
        let driver = world.spawner.spawn(
            "tunnel-connection",
            Box::pin(async move {
                let why = match connection.await {
                    Ok(()) => "closed by the agent".to_owned(),
                    Err(error) => describe(&error),
                };
                told.send_replace(Some(why));
            }),
        );
        let shared = Arc::new(Shared { driver, tasks, ended });
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

    /// As [`Self::request_guarded`]; a request that was not taken comes back, and may go over another connection.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn try_request(
        &self,
        request: Request<RequestBody>,
        limit: Duration,
        guard: Guard,
    ) -> Result<Response<GuardedBody>, Unanswered> {
        let mut sender = self.sender.clone();
        let (parts, body) = request.into_parts();
        let (head, (replay, body)) = (parts.clone(), Replay::of(body));
        let request = Request::from_parts(parts, Box::pin(Coalesced::new(&self.world, body)));
        let late = Unanswered { error: AskError::TimedOut { limit }, unsent: None };
        let answer = within(&self.world, limit, sender.try_send_request(request)).await.ok_or(late)?;
        match answer {
            Ok(response) => Ok(response.map(|incoming| GuardedBody::new(&self.world, guard, incoming))),
            Err(mut failed) => {
                let is_unsent = failed.take_message().is_some() || was_not_taken(failed.error());
                let body = if is_unsent { replay.again() } else { None };
                let unsent = body.map(|body| Box::new(Request::from_parts(head, body)));
                Err(Unanswered { error: AskError::Closed { detail: describe(failed.error()) }, unsent })
            }
        }
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
    ) -> Result<Asked, AskError> {
        let mut request = request(method, path, body)?;
        if let Some(traceparent) = &self.traceparent {
            request.headers_mut().insert(TRACEPARENT, traceparent.clone());
        }
        let asked = async {
            let response = self.request(request, limit).await?;
            let status = response.status();
            let body = response.into_body().collect_up_to(largest).await.map_err(AskError::Answer)?;
            Ok(Asked { status, body })
        };
        within(&self.world, limit, asked).await.ok_or(AskError::TimedOut { limit })?
    }

    /// Whether the connection has ended, or takes no more requests.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // The sender knows it first: before a request that was not sent comes back.
        self.sender.is_closed() || self.shared.ended.borrow().is_some()
    }

    /// Returns, with the reason, once the connection has ended, or an agent that stops was found to take no more requests: answers that
    /// were under way then go on until [`Self::close`], or until the agent ends them.
    pub async fn closed(&self) -> String {
        let mut ended = self.shared.ended.subscribe();
        let ended = ended.wait_for(Option::is_some).await;
        ended.ok().and_then(|why| why.clone()).unwrap_or_default()
    }

    /// Says why and when to come back, as far as that goes quickly, and ends the connection with all its streams.
    pub async fn close(&self, farewell: &Farewell) {
        if let Ok(body) = events::encode(farewell) {
            let said = self.ask(Method::PUT, path::FAREWELL, Bytes::from(body), 0, FAREWELL_TIME).await;
            tracing::debug!(heard = said.is_ok(), reason = %farewell.reason, "farewell");
        }
        self.shared.end();
        self.shared.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(farewell.reason.clone());
            }
            first
        });
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

fn describe(error: &hyper::Error) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}
