//! One HTTP/2 connection to the API server for all requests that are under way at once, dialled when there is none.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared as ForAll};
use h2::client::{Connection, SendRequest};
use http::{Request, Response, Uri};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tower::{BoxError, Service, ServiceExt as _};
use tunnel::body::Replay;
use tunnel::http2::{ExchangeError, Received, exchange, keep_alive};
use tunnel::settings::{CONNECTION_WINDOW_BYTES, Keepalive, RESET_STREAM_DURATION, STREAM_WINDOW_BYTES};
use world::World;

use super::api_server::RequestBody;
use super::pool::KEPT;

/// An answer with a longer list of headers fails. One that is longer by far would end the connection that many share, as what it says
/// cannot be skipped: this is more than an API server says by itself.
pub(super) const MAXIMUM_HEADER_LIST_BYTES: u32 = 1 << 20;
/// Requests at once until the API server has said how many it takes.
const STREAMS_AT_FIRST: usize = 100;
/// A connection that leads nowhere any more is found by asking: what is written to it waits for a quarter of an hour otherwise.
pub(super) const KEEPALIVE: Keepalive =
    Keepalive { interval: Duration::from_secs(10), timeout: Duration::from_secs(10) };
/// How often it is looked whether anybody still uses the connection.
const LOOK: Duration = Duration::from_secs(10);
/// How often a request is sent that was not taken: whoever closes a connection in order (GOAWAY) names the last one that it took.
const ATTEMPTS: usize = 5;

/// Why there is no connection. All who waited for it hear the same.
#[derive(Debug, Clone, thiserror::Error)]
enum DialError {
    #[error(transparent)]
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    #[error("the agent is stopping")]
    Ended,
}

/// Sends requests over the connection. Clones share it.
pub(super) struct Shared<C> {
    world: World,
    connector: C,
    current: Arc<Mutex<Option<Current>>>,
}

impl<C: Clone> Clone for Shared<C> {
    fn clone(&self) -> Self {
        let (world, connector) = (self.world.clone(), self.connector.clone());
        Self { world, connector, current: Arc::clone(&self.current) }
    }
}

/// A connection that was made or is being made: whoever began it may give up, and the next one is not to find it half done.
struct Current {
    dialled: ForAll<BoxFuture<'static, Dialled>>,
    used_at: Duration,
}

type Dialled = Result<SendRequest<Bytes>, DialError>;

impl Current {
    fn takes_requests(&self) -> bool {
        let takes_requests = |sender: &SendRequest<Bytes>| {
            let ready = sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
            !matches!(ready, Poll::Ready(Err(_)))
        };
        // Whoever began it may not have waited for its end.
        let dialled = self.dialled.clone().now_or_never();
        dialled.is_none_or(|dialled| dialled.as_ref().is_ok_and(takes_requests))
    }
}

impl<C> Shared<C>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Future: Send,
{
    pub(super) fn new(world: World, connector: C) -> Self {
        Self { world, connector, current: Arc::default() }
    }

    /// Sends a request; gives its answer as soon as its head is there.
    pub(super) async fn send(&self, request: Request<RequestBody>) -> Result<Response<Received>, BoxError> {
        let (head, body) = request.into_parts();
        let (replay, mut body) = Replay::of(body);
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            let sender = self.sender(&head.uri).await?;
            let answer = exchange(&self.world, sender, Request::from_parts(head.clone(), ()), body).await;
            body = match answer {
                Ok(answer) => return Ok(answer.map(Received::new)),
                Err(ExchangeError::NotTaken(_) | ExchangeError::Refused(_))
                    if left > 0
                        && let Some(again) = replay.again() =>
                {
                    again
                }
                Err(unheard) => return Err(unheard.into()),
            };
        }
    }

    async fn sender(&self, server: &Uri) -> Dialled {
        let now = self.world.clock.monotonic();
        let dialled = {
            let mut current = self.current.lock();
            let _left = current.take_if(|current| !current.takes_requests());
            let begun = || Current { dialled: self.dial(server.clone()), used_at: now };
            let current = current.get_or_insert_with(begun);
            current.used_at = now;
            current.dialled.clone()
        };
        dialled.await
    }

    fn dial(&self, server: Uri) -> ForAll<BoxFuture<'static, Dialled>> {
        let (tell, known) = oneshot::channel();
        let shared = self.clone();
        let living = async move {
            // Those who waited for it may have given up.
            match shared.begin(server).await {
                Ok((sender, connection)) => {
                    let _heard = tell.send(Ok(sender));
                    shared.live(connection).await;
                }
                Err(error) => {
                    let _heard = tell.send(Err(DialError::Failed(error.into())));
                }
            }
        };
        self.world.spawner.spawn("connection to the API server", Box::pin(living));
        known.map(|known| known.unwrap_or(Err(DialError::Ended))).boxed().shared()
    }

    async fn begin(
        &self,
        server: Uri,
    ) -> Result<(SendRequest<Bytes>, Connection<TokioIo<C::Response>, Bytes>), BoxError> {
        let io = self.connector.clone().oneshot(server).await?;
        let begun = h2::client::Builder::new()
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_reset_streams(STREAMS_AT_FIRST)
            .reset_stream_duration(RESET_STREAM_DURATION)
            .max_header_list_size(MAXIMUM_HEADER_LIST_BYTES)
            .enable_push(false)
            .handshake(TokioIo::new(io));
        Ok(begun.await?)
    }

    /// Until it has ended. One that nobody has used for long takes no more requests, and ends when those have that it has.
    async fn live(&self, connection: Connection<TokioIo<C::Response>, Bytes>) {
        let mut alive = std::pin::pin!(keep_alive(&self.world, connection, KEEPALIVE));
        loop {
            tokio::select! {
                biased;
                ended = &mut alive => {
                    if let Err(error) = ended {
                        tracing::debug!(error = &error as &dyn std::error::Error, "a shared connection broke");
                    }
                    return;
                }
                () = self.world.clock.sleep(LOOK) => self.leave_unless_used(),
            }
        }
    }

    fn leave_unless_used(&self) {
        let now = self.world.clock.monotonic();
        let is_unused = |current: &mut Current| now.saturating_sub(current.used_at) >= KEPT;
        let _left = self.current.lock().take_if(is_unused);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::StreamExt as _;
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Incoming;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::DuplexStream;
    use tokio::sync::Notify;

    use super::super::counted::{Connected, Connector, CountedConnections, connector};
    use super::*;

    /// A server, and what came over its connections.
    #[derive(Clone, Default)]
    struct Server {
        made: CountedConnections,
        /// How often each body came.
        came: Arc<Mutex<BTreeMap<Bytes, usize>>>,
        /// Has the server answer what waits.
        go_on: Arc<Notify>,
        /// On one connection.
        answered: Arc<Notify>,
    }

    impl Server {
        async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
            if request.uri().path() == "/waits" {
                self.go_on.notified().await;
            }
            let body = request.into_body().collect().await.unwrap().to_bytes();
            *self.came.lock().entry(body.clone()).or_default() += 1;
            self.answered.notify_one();
            Ok(Response::new(Full::new(body)))
        }

        /// One that closes each connection in order when it has answered a request, or in the end.
        async fn serve(self, io: DuplexStream, closes: bool) {
            let server = Self { answered: Arc::default(), ..self };
            let answered = Arc::clone(&server.answered);
            let answer = service_fn(move |request| server.clone().answer(request));
            let http = http2::Builder::new(TokioExecutor::new());
            let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(io), answer));
            tokio::select! {
                biased;
                _ended = &mut serving => {}
                () = answered.notified(), if closes => {
                    serving.as_mut().graceful_shutdown();
                    drop(serving.await);
                }
            }
        }
    }

    fn shared_over(connect: impl Fn() -> Connected + Clone + Send + Sync + 'static) -> Shared<Connector> {
        Shared::new(World::real(), connector(connect))
    }

    fn connect_to(server: &Server, closes: bool) -> impl Fn() -> Connected + Clone + Send + Sync + 'static {
        let server = server.clone();
        move || Ok(server.made.connect(1 << 16, |far| server.clone().serve(far, closes)))
    }

    fn request(path: &str, body: &str) -> Request<RequestBody> {
        let body = Full::from(body.to_owned()).map_err(|never| match never {}).boxed_unsync();
        Request::post(format!("https://api.example:6443{path}")).body(body).unwrap()
    }

    async fn text(answer: Response<Received>) -> Bytes {
        answer.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test(start_paused = true)]
    async fn those_at_once_share_a_connection_and_what_is_under_way_goes_on_when_it_is_left() {
        let server = Server::default();
        let shared = shared_over(connect_to(&server, false));
        let (one, other) = tokio::join!(shared.send(request("/", "a")), shared.send(request("/", "b")));
        assert_eq!((text(one.unwrap()).await, text(other.unwrap()).await), ("a".into(), "b".into()));
        let waiting = async { text(shared.send(request("/waits", "c")).await.unwrap()).await };
        let left = async {
            tokio::time::sleep(KEPT + LOOK * 2).await;
            assert!(shared.current.lock().is_none(), "nobody has used it for long");
            assert_eq!((server.made.all(), server.made.open()), (1, 1));
            server.go_on.notify_one();
        };
        assert_eq!(tokio::join!(waiting, left).0, "c");
        server.made.until_none_is_open().await;
        drop(text(shared.send(request("/", "d")).await.unwrap()).await);
        assert_eq!(server.made.all(), 2, "who comes later has another one");
    }

    /// A server that closes at once, and not some time after it has said so, may break what it had not taken.
    fn is_broken(error: &(dyn std::error::Error + 'static)) -> bool {
        matches!(error.downcast_ref(), Some(ExchangeError::Broken(error)) if error.is_io())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn what_is_asked_as_connections_close_in_order_is_heard_of_and_comes_once() {
        const REQUESTS: usize = 5_000;
        let server = Server::default();
        let shared = shared_over(connect_to(&server, true));
        let asked = futures::stream::iter(0..REQUESTS).map(async |number| {
            let number = number.to_string();
            match shared.send(request("/", &number)).await {
                Ok(answer) => assert_eq!(text(answer).await, number),
                Err(error) => assert!(is_broken(&*error), "{error:?}"),
            }
        });
        let all = asked.buffer_unordered(8).collect::<Vec<()>>();
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("each is heard of");
        assert!(server.made.all() > REQUESTS / 20, "connections close all the time");
        let came = server.came.lock();
        assert!(came.len() > REQUESTS / 2, "{} came", came.len());
        assert!(came.values().all(|times| *times == 1), "nothing came twice");
    }

    /// A server that has no room for the first streams of each connection.
    async fn refuse(io: DuplexStream, streams: usize) {
        let mut connection = h2::server::handshake(io).await.unwrap();
        let mut taken = 0;
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            taken += 1;
            if taken <= streams {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            } else {
                respond.send_response(Response::new(()), true).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn what_is_refused_for_now_is_asked_again_some_times() {
        for (refused, is_answered) in [(ATTEMPTS - 1, true), (ATTEMPTS, false)] {
            let made = CountedConnections::default();
            let shared = shared_over(move || Ok(made.connect(1 << 16, |far| refuse(far, refused))));
            assert_eq!(shared.send(request("/", "a")).await.is_ok(), is_answered, "{refused}");
        }
    }

    #[tokio::test]
    async fn all_who_wait_for_a_connection_hear_why_there_is_none_and_the_next_one_dials_anew() {
        let dialled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&dialled);
        let shared = shared_over(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Err("refused".into())
        });
        let (one, other) = tokio::join!(shared.send(request("/", "a")), shared.send(request("/", "b")));
        for answer in [one, other] {
            assert_eq!(answer.err().unwrap().to_string(), "refused");
        }
        assert_eq!(dialled.load(Ordering::Relaxed), 1);
        assert!(shared.send(request("/", "c")).await.is_err());
        assert_eq!(dialled.load(Ordering::Relaxed), 2);
    }
}
