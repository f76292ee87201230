//! Serving on an open tunnel.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{Either, Empty};
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use super::dial::Link;

use crate::BoxError;
use crate::body::GuardedBody;
use crate::gathered::Gathered;
use crate::http2;
use crate::wire::{Farewell, path};

const MAXIMUM_FAREWELL_BYTES: usize = 4096;

/// Body of an answer on the link: the caller's, or this crate's own.
pub type LinkBody<B> = Either<B, Empty<Bytes>>;

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

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Farewell(farewell) => write!(f, "closed by the gateway: {}", farewell.reason),
            Self::Closed => f.write_str("closed by the gateway"),
            Self::Drained => f.write_str("this side is stopping"),
            Self::Lost { detail } => write!(f, "connection lost: {detail}"),
        }
    }
}

impl Link {
    /// Serves the gateway's requests with `service` until the link ends. Once `drain` is ready no new request is taken
    /// (GOAWAY), and those that run are finished; the caller bounds the time by dropping this future. An endless answer ends when
    /// the caller's body ends.
    pub async fn serve<S, B, D>(self, service: S, drain: D) -> LinkEnd
    where
        S: Service<Request<GuardedBody>, Response = Response<B>>,
        S::Error: Into<BoxError> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Unpin + Send,
        D: Future<Output = ()>,
    {
        let farewell = Arc::new(Mutex::new(None));
        let service = WithFarewell { inner: service, farewell: Arc::clone(&farewell) };
        let drains = AtomicBool::new(false);
        let draining = async {
            drain.await;
            drains.store(true, Ordering::Relaxed);
        };
        let answer = |request| service.call(request);
        let io = Gathered::new(TokioIo::new(self.io), Arc::new(AtomicBool::new(true)));
        let result = http2::serve(&self.world, io, self.keepalive, answer, draining).await;
        let said = farewell.lock().take();
        match (said, result) {
            (Some(farewell), _) => LinkEnd::Farewell(farewell),
            (None, _) if drains.into_inner() => LinkEnd::Drained,
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
    farewell: Arc<Mutex<Option<Farewell>>>,
}

type Answered<B, E> = Result<Response<LinkBody<B>>, E>;

impl<S, B> Service<Request<GuardedBody>> for WithFarewell<S>
where
    S: Service<Request<GuardedBody>, Response = Response<B>>,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    type Response = Response<LinkBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Answered<B, S::Error>> + Send>>;

    fn call(&self, request: Request<GuardedBody>) -> Self::Future {
        if request.method() == Method::PUT && request.uri().path() == path::FAREWELL {
            return hear(request, Arc::clone(&self.farewell));
        }
        let answer = self.inner.call(request);
        Box::pin(async move { Ok(answer.await?.map(Either::Left)) })
    }
}

fn hear<B: Body + Send + 'static, E: Send + 'static>(
    request: Request<GuardedBody>,
    farewell: Arc<Mutex<Option<Farewell>>>,
) -> BoxFuture<'static, Answered<B, E>> {
    Box::pin(async move {
        let body = request.into_body().collect_up_to(MAXIMUM_FAREWELL_BYTES).await;
        let said = body.ok().and_then(|body| events::decode::<Farewell>(&body).ok());
        let status = if said.is_some() { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST };
        if said.is_some() {
            *farewell.lock() = said;
        }
        let mut response = Response::new(Either::Right(Empty::new()));
        *response.status_mut() = status;
        Ok(response)
    })
}
