//! HTTP/1.1 connections to the API server, each for one request at a time and then kept for the next one.
//!
//! hyper's own pool starts a task for each answer, to see when its connection is free again; here whoever comes next looks.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use parking_lot::Mutex;
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
pub(super) struct Kept<C> {
    world: World,
    connector: C,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Default)]
struct Connections {
    /// The one that was used last at the end.
    open: Vec<Connection>,
    /// Somebody looks for those that nobody uses.
    are_looked_after: bool,
}

struct Connection {
    sender: SendRequest<RequestBody>,
    used_at: Duration,
}

impl<C> Kept<C> {
    pub(super) fn new(world: World, connector: C) -> Self {
        Self { world, connector, connections: Arc::default() }
    }

    /// One that nobody uses.
    fn free(&self) -> Option<SendRequest<RequestBody>> {
        let mut connections = self.connections.lock();
        connections.open.retain(|connection| !connection.sender.is_closed());
        let free = connections.open.iter().rposition(|connection| connection.sender.is_ready())?;
        Some(connections.open.remove(free).sender)
    }

    async fn ask(
        &self,
        mut sender: SendRequest<RequestBody>,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let answer = sender.try_send_request(request).await?;
        self.keep(sender);
        Ok(answer)
    }

    /// A new one.
    async fn begin(
        &self,
        io: impl Read + Write + Unpin + Send + 'static,
    ) -> hyper::Result<SendRequest<RequestBody>> {
        let (sender, connection) = http1::handshake(io).await?;
        let driving = async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "a kept connection broke");
            }
        };
        self.world.spawner.spawn("kept connection", Box::pin(driving));
        Ok(sender)
    }

    /// Its answer's body may still come: until that has ended, it is not free.
    fn keep(&self, sender: SendRequest<RequestBody>) {
        let mut connections = self.connections.lock();
        if connections.open.len() >= KEPT_CONNECTIONS {
            return;
        }
        connections.open.push(Connection { sender, used_at: self.world.clock.monotonic() });
        if !std::mem::replace(&mut connections.are_looked_after, true) {
            let looking = look_after(self.world.clone(), Arc::clone(&self.connections));
            self.world.spawner.spawn("kept connections", Box::pin(looking));
        }
    }
}

/// Closes those that nobody uses any more, until there are none.
async fn look_after(world: World, connections: Arc<Mutex<Connections>>) {
    loop {
        world.clock.sleep(LOOK).await;
        let now = world.clock.monotonic();
        let mut connections = connections.lock();
        connections.open.retain(|Connection { sender, used_at }| {
            !sender.is_closed() && (now.saturating_sub(*used_at) < KEPT || !sender.is_ready())
        });
        if connections.open.is_empty() {
            connections.are_looked_after = false;
            return;
        }
    }
}

impl<C> Service<Request<RequestBody>> for Kept<C>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Future: Send,
{
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let kept = self.clone();
        Box::pin(async move {
            let server = in_origin_form(&mut request)?;
            while let Some(sender) = kept.free() {
                match kept.ask(sender, request).await {
                    // It was closed in this very moment.
                    Err(mut failed) => request = failed.take_message().ok_or_else(|| failed.into_error())?,
                    Ok(answer) => return Ok(answer),
                }
            }
            let io = kept.connector.clone().oneshot(server).await.map_err(NoConnection)?;
            let sender = kept.begin(io).await.map_err(|error| NoConnection(error.into()))?;
            Ok(kept.ask(sender, request).await.map_err(TrySendError::into_error)?)
        })
    }
}

/// The request as one server sees it (RFC 9112, section 3.2.1); gives whose it is.
fn in_origin_form(request: &mut Request<RequestBody>) -> Result<Uri, BoxError> {
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Empty, Full};
    use hyper::server::conn::http1 as server;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::DuplexStream;

    use super::*;

    /// How many connections were made to a server, and how many of them are open.
    #[derive(Clone, Default)]
    struct Made {
        all: Arc<AtomicUsize>,
        open: Arc<AtomicUsize>,
    }

    fn kept(
        made: &Made,
    ) -> Kept<
        impl Service<Uri, Response = TokioIo<DuplexStream>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    > {
        let made = made.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let (near, far) = tokio::io::duplex(4096);
            made.all.fetch_add(1, Ordering::Relaxed);
            made.open.fetch_add(1, Ordering::Relaxed);
            let open = Arc::clone(&made.open);
            let serving = async move {
                let answer = service_fn(|request: Request<Incoming>| async move {
                    let host = request.headers()[HOST].to_str().unwrap().to_owned();
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!(
                        "{host} {}",
                        request.uri()
                    ))))
                });
                let _ended = server::Builder::new().serve_connection(TokioIo::new(far), answer).await;
                open.fetch_sub(1, Ordering::Relaxed);
            };
            World::real().spawner.spawn("server", Box::pin(serving));
            std::future::ready(Ok(TokioIo::new(near)))
        });
        Kept::new(World::real(), connector)
    }

    fn request() -> Request<RequestBody> {
        let nothing = Empty::new().map_err(|never| match never {}).boxed_unsync();
        Request::get("https://api.example:6443/version?a=b").body(nothing).unwrap()
    }

    async fn text(answer: Response<Incoming>) -> Bytes {
        answer.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_the_other_shares_a_connection_and_those_at_once_have_one_each() {
        let made = Made::default();
        let mut kept = kept(&made);
        for _ in 0..10 {
            let answer = kept.call(request()).await.unwrap();
            assert_eq!(text(answer).await, "api.example:6443 /version?a=b");
        }
        assert_eq!(made.all.load(Ordering::Relaxed), 1);
        let (one, other) = tokio::join!(kept.call(request()), kept.call(request()));
        drop((text(one.unwrap()).await, text(other.unwrap()).await));
        assert_eq!(made.all.load(Ordering::Relaxed), 2);
        tokio::time::sleep(KEPT / 2).await;
        drop(text(kept.call(request()).await.unwrap()).await);
        assert_eq!(made.all.load(Ordering::Relaxed), 2, "both are kept");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_nobody_uses_is_closed() {
        let made = Made::default();
        let mut kept = kept(&made);
        for _ in 0..2 {
            drop(text(kept.call(request()).await.unwrap()).await);
            tokio::time::sleep(KEPT + LOOK * 2).await;
            assert_eq!(made.open.load(Ordering::Relaxed), 0);
        }
        assert_eq!(made.all.load(Ordering::Relaxed), 2, "who comes later has another one");
    }

    #[tokio::test]
    async fn without_a_connection_nothing_was_sent() {
        let connector = tower::service_fn(|_: Uri| {
            std::future::ready(Err::<TokioIo<DuplexStream>, BoxError>("refused".into()))
        });
        let error = Kept::new(World::real(), connector).call(request()).await.unwrap_err();
        assert!(error.is::<NoConnection>(), "{error}");
    }
}
