//! Serving on an open tunnel.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Either, Empty, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::Service;
use parking_lot::Mutex;

use super::dial::Link;
use world::World;

use crate::BoxError;
use crate::body::Coalesced;
use crate::runtime::{WorldExecutor, WorldTimer};
use crate::settings::{
    CONNECTION_WINDOW_BYTES, MAXIMUM_HEADER_LIST_BYTES, MAXIMUM_STREAMS, SEND_BUFFER_BYTES,
    STREAM_WINDOW_BYTES,
};
use crate::wire::{Farewell, path};

const MAXIMUM_FAREWELL_BYTES: usize = 4096;

/// Body of an answer on the link: the caller's, or this crate's own.
pub type LinkBody<B> = Either<Coalesced<B>, Empty<Bytes>>;

/// How a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEnd {
    /// The gateway said why, and when to come back.
    Farewell(Farewell),
    /// The gateway closed in order, without a word.
    Closed,
    /// This end drained, because the caller asked for it.
    Drained,
    /// The connection was lost.
    Lost {
        /// What happened.
        detail: String,
    },
}

impl Link {
    /// Serves the gateway's requests with `service` until the link ends. Once `drain` is ready no new request is taken
    /// (GOAWAY), and those that run are finished; the caller bounds the time by dropping this future. An endless answer ends when
    /// the caller's body ends.
    pub async fn serve<S, B, D>(self, service: S, drain: D) -> LinkEnd
    where
        S: Service<Request<Incoming>, Response = Response<B>>,
        S::Error: Into<BoxError> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Unpin + Send,
        D: Future<Output = ()>,
    {
        let farewell = Arc::new(Mutex::new(None));
        let service =
            WithFarewell { inner: service, world: self.world.clone(), farewell: Arc::clone(&farewell) };
        let connection = http2::Builder::new(WorldExecutor(Arc::clone(&self.world.spawner)))
            .timer(WorldTimer::new(&self.world))
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(MAXIMUM_STREAMS)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .max_header_list_size(MAXIMUM_HEADER_LIST_BYTES)
            .keep_alive_interval(self.keepalive.interval)
            .keep_alive_timeout(self.keepalive.timeout)
            .auto_date_header(false)
            .serve_connection(self.io, service);
        let mut connection = pin!(connection);
        let mut drain = pin!(drain);
        let mut draining = false;
        let result = loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => break result,
                () = drain.as_mut(), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        let said = farewell.lock().take();
        match (said, result) {
            (Some(farewell), _) => LinkEnd::Farewell(farewell),
            (None, _) if draining => LinkEnd::Drained,
            (None, Ok(())) => LinkEnd::Closed,
            (None, Err(error)) => LinkEnd::Lost { detail: chain(&error) },
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Hears the gateway's farewell; everything else is the caller's.
struct WithFarewell<S> {
    inner: S,
    world: World,
    farewell: Arc<Mutex<Option<Farewell>>>,
}

type Answered<B, E> = Result<Response<LinkBody<B>>, E>;

impl<S, B> Service<Request<Incoming>> for WithFarewell<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    type Response = Response<LinkBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Answered<B, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if request.method() == Method::PUT && request.uri().path() == path::FAREWELL {
            return hear(request, Arc::clone(&self.farewell));
        }
        let (answer, world) = (self.inner.call(request), self.world.clone());
        Box::pin(async move { Ok(answer.await?.map(|body| Either::Left(Coalesced::new(&world, body)))) })
    }
}

fn hear<B: Body + Send + 'static, E: Send + 'static>(
    request: Request<Incoming>,
    farewell: Arc<Mutex<Option<Farewell>>>,
) -> BoxFuture<'static, Answered<B, E>> {
    Box::pin(async move {
        let body = Limited::new(request.into_body(), MAXIMUM_FAREWELL_BYTES).collect().await;
        let said = body.ok().and_then(|body| events::decode::<Farewell>(&body.to_bytes()).ok());
        let status = if said.is_some() { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST };
        if said.is_some() {
            *farewell.lock() = said;
        }
        let mut response = Response::new(Either::Right(Empty::new()));
        *response.status_mut() = status;
        Ok(response)
    })
}
