//! HTTP/1.1 connections to the API server, each for one request at a time and then kept for the next one.
//!
//! None has a task: who waits for an answer moves its bytes. hyper's own pool has one for each connection and starts another for each
//! answer, and what a task does for another one may wake a thread.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Fuse};
use futures::{FutureExt as _, TryFutureExt as _};
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use parking_lot::Mutex;
use tokio::task::coop::unconstrained;
use tower::{BoxError, Service, ServiceExt as _};
use world::World;

use super::api_server::{KEPT_CONNECTIONS, RequestBody};

/// How long a connection is kept that nobody uses: less long than API servers keep it.
pub(super) const KEPT: Duration = Duration::from_secs(30);
/// How often it is looked for those.
const LOOK: Duration = Duration::from_secs(10);

/// There is no connection: nothing of the request was sent.
#[derive(Debug, thiserror::Error)]
#[error("no connection")]
pub(super) struct NoConnection(#[source] BoxError);

/// Sends requests over such connections. Clones share them.
#[derive(Clone)]
pub(super) struct ConnectionPool<C> {
    connector: C,
    connections: Arc<Connections>,
}

/// Those that nobody uses.
struct Connections {
    world: World,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// The one that was used last at the end.
    connections: Vec<Connection>,
    /// Somebody looks for those that nobody uses any more.
    are_looked_after: bool,
}

struct Connection {
    sender: SendRequest<RequestBody>,
    /// Moves its bytes until it ends.
    moving: Fuse<BoxFuture<'static, ()>>,
    used_at: Duration,
}

impl Connection {
    /// Moves what there is to move; whoever waits for more is woken when it is there.
    fn advance(&mut self, context: &mut Context<'_>) {
        let _ended = self.moving.poll_unpin(context);
    }

    /// Whether a request can be sent over it, as far as is known.
    fn is_free(&mut self) -> bool {
        self.advance(&mut unwoken());
        self.sender.is_ready()
    }
}

/// For what only happens in [`Connection::advance`], where it is looked for right after that.
fn unwoken() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl<C> ConnectionPool<C> {
    pub(super) fn new(world: World, connector: C) -> Self {
        Self { connector, connections: Arc::new(Connections { world, free: Mutex::default() }) }
    }

    async fn ask(
        &self,
        mut connection: Connection,
        request: Request<RequestBody>,
    ) -> Result<Response<PooledBody>, TrySendError<Request<RequestBody>>> {
        // Out of budget it would say that it is not there yet, and that nobody hears.
        let mut answering = Box::pin(unconstrained(connection.sender.try_send_request(request)));
        let answer = std::future::poll_fn(|context| {
            connection.advance(context);
            answering.poll_unpin(&mut unwoken())
        });
        Ok(answer.await?.map(|incoming| {
            let connections = Arc::clone(&self.connections);
            let mut body = PooledBody { incoming, connection: Some(connection), connections };
            body.leave_at_end();
            body
        }))
    }
}

/// A new one.
async fn begin(io: impl Read + Write + Unpin + Send + 'static) -> hyper::Result<Connection> {
    let (sender, connection) = http1::handshake(io).await?;
    let moving = connection.unwrap_or_else(|error| {
        tracing::debug!(error = &error as &dyn std::error::Error, "a kept connection broke");
    });
    Ok(Connection { sender, moving: moving.boxed().fuse(), used_at: Duration::ZERO })
}

impl Connections {
    fn take(&self) -> Option<Connection> {
        let mut free = self.free.lock();
        while let Some(mut connection) = free.connections.pop() {
            if connection.is_free() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(self: &Arc<Self>, mut connection: Connection) {
        let mut free = self.free.lock();
        if free.connections.len() >= KEPT_CONNECTIONS || !connection.is_free() {
            return;
        }
        connection.used_at = self.world.clock.monotonic();
        free.connections.push(connection);
        if !std::mem::replace(&mut free.are_looked_after, true) {
            self.world.spawner.spawn("kept connections", Box::pin(Arc::clone(self).look_after()));
        }
    }

    /// Closes those that nobody uses any more, until there are none.
    async fn look_after(self: Arc<Self>) {
        loop {
            self.world.clock.sleep(LOOK).await;
            let now = self.world.clock.monotonic();
            let mut free = self.free.lock();
            free.connections.retain_mut(|connection| {
                connection.is_free() && now.saturating_sub(connection.used_at) < KEPT
            });
            if free.connections.is_empty() {
                free.are_looked_after = false;
                return;
            }
        }
    }
}

/// An answer's body. Its connection is free for the next request when it has ended, and closed when it is dropped before.
pub struct PooledBody {
    incoming: Incoming,
    connection: Option<Connection>,
    connections: Arc<Connections>,
}

impl PooledBody {
    fn leave_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.connections.keep(connection);
        }
    }
}

impl Body for PooledBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if let Some(connection) = &mut this.connection {
            connection.advance(context);
        }
        let frame = ready!(Pin::new(&mut this.incoming).poll_frame(&mut unwoken()));
        match frame {
            Some(Ok(_)) => this.leave_at_end(),
            None => this.leave(),
            Some(Err(_)) => this.connection = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl<C> ConnectionPool<C>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Future: Send,
{
    /// Sends a request; gives its answer as soon as its head is there.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<PooledBody>, BoxError> {
        let server = in_origin_form(&mut request)?;
        while let Some(connection) = self.connections.take() {
            match self.ask(connection, request).await {
                // It was closed in this very moment.
                Err(mut failed) => request = failed.take_message().ok_or_else(|| failed.into_error())?,
                Ok(answer) => return Ok(answer),
            }
        }
        let io = self.connector.clone().oneshot(server).await.map_err(NoConnection)?;
        let connection = begin(io).await.map_err(|error| NoConnection(error.into()))?;
        Ok(self.ask(connection, request).await.map_err(TrySendError::into_error)?)
    }
}

/// The request as one server sees it (RFC 9112, section 3.2.1); gives whose it is.
pub(super) fn in_origin_form(request: &mut Request<RequestBody>) -> Result<Uri, BoxError> {
    let server = std::mem::take(request.uri_mut());
    if let Some(target) = server.path_and_query() {
        *request.uri_mut() = Uri::from(target.clone());
    }
    if let Some(authority) = server.authority()
        && !request.headers().contains_key(HOST)
    {
        let host = HeaderValue::from_str(authority.as_str())?;
        request.headers_mut().insert(HOST, host);
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Empty, Full};
    use hyper::server::conn::http1 as server;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::sync::Notify;

    use super::super::counted::{Connector, CountedConnections, connector};
    use super::*;

    const LARGE: usize = 1 << 20;

    fn kept(made: &CountedConnections) -> ConnectionPool<Connector> {
        kept_until(made, Arc::default())
    }

    /// The server closes a connection when it is told to.
    fn kept_until(made: &CountedConnections, close: Arc<Notify>) -> ConnectionPool<Connector> {
        let made = made.clone();
        let connector = connector(move || {
            let close = Arc::clone(&close);
            let near = made.connect(4096, async move |far| {
                let answer = service_fn(|request: Request<Incoming>| async move {
                    let host = request.headers()[HOST].to_str().unwrap().to_owned();
                    let text = match request.uri().path() {
                        "/large" => "x".repeat(LARGE),
                        _ => format!("{host} {}", request.uri()),
                    };
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(text)))
                });
                tokio::select! {
                    biased;
                    _ended = server::Builder::new().serve_connection(TokioIo::new(far), answer) => {}
                    () = close.notified() => {}
                }
            });
            Ok(near)
        });
        ConnectionPool::new(World::real(), connector)
    }

    fn request_of(target: &str) -> Request<RequestBody> {
        let nothing = Empty::new().map_err(|never| match never {}).boxed_unsync();
        Request::get(format!("https://api.example:6443{target}")).body(nothing).unwrap()
    }

    fn request() -> Request<RequestBody> {
        request_of("/version?a=b")
    }

    async fn text(answer: Response<PooledBody>) -> Bytes {
        answer.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_the_other_shares_a_connection_and_those_at_once_have_one_each() {
        let made = CountedConnections::default();
        let kept = kept(&made);
        for _ in 0..10 {
            let answer = kept.send(request()).await.unwrap();
            assert_eq!(text(answer).await, "api.example:6443 /version?a=b");
        }
        assert_eq!(made.all(), 1);
        let (one, other) = tokio::join!(kept.send(request()), kept.send(request()));
        drop((text(one.unwrap()).await, text(other.unwrap()).await));
        assert_eq!(made.all(), 2);
        tokio::time::sleep(KEPT / 2).await;
        drop(text(kept.send(request()).await.unwrap()).await);
        assert_eq!(made.all(), 2, "both are kept");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_nobody_uses_is_closed() {
        let made = CountedConnections::default();
        let kept = kept(&made);
        for _ in 0..2 {
            drop(text(kept.send(request()).await.unwrap()).await);
            tokio::time::sleep(KEPT + LOOK * 2).await;
            assert_eq!(made.open(), 0);
        }
        assert_eq!(made.all(), 2, "who comes later has another one");
    }

    #[tokio::test]
    async fn what_comes_in_many_pieces_comes_whole_and_its_connection_is_kept() {
        let made = CountedConnections::default();
        let kept = kept(&made);
        for _ in 0..2 {
            assert_eq!(text(kept.send(request_of("/large")).await.unwrap()).await.len(), LARGE);
        }
        assert_eq!(made.all(), 1);
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_to_its_end_closes_its_connection() {
        let made = CountedConnections::default();
        let kept = kept(&made);
        drop(kept.send(request_of("/large")).await.unwrap());
        made.until_none_is_open().await;
        drop(text(kept.send(request()).await.unwrap()).await);
        assert_eq!(made.all(), 2);
    }

    #[tokio::test]
    async fn a_connection_that_the_server_closed_meanwhile_is_not_used() {
        let (made, close) = (CountedConnections::default(), Arc::<Notify>::default());
        let kept = kept_until(&made, Arc::clone(&close));
        drop(text(kept.send(request()).await.unwrap()).await);
        close.notify_one();
        made.until_none_is_open().await;
        assert_eq!(text(kept.send(request()).await.unwrap()).await, "api.example:6443 /version?a=b");
        assert_eq!(made.all(), 2);
    }

    #[tokio::test]
    async fn without_a_connection_nothing_was_sent() {
        let refused = connector(|| Err("refused".into()));
        let error = ConnectionPool::new(World::real(), refused).send(request()).await.err().unwrap();
        assert!(error.is::<NoConnection>(), "{error}");
    }
}
