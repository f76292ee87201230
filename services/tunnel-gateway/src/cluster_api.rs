//! The clusters' APIs, proxied for people, jobs and pages in browsers.
//!
//! The way of a request: `route` finds the agent that its path or host names. `admission` authenticates it (`browser` for pages), gets a
//! pass that authz signed (`passes`), checks it against the request, and takes a slot within the limits (`slots`, `limits`). `audit` records
//! it. `forward` finds an `upstream` to the agent, here or over a `hop` to another gateway, and streams both bodies; `upgrade` does so for
//! connections that become another protocol, and `recording` keeps what goes through container sessions. The request travels with its pass,
//! which the agent verifies. While it is open it stands in `open_requests`, and `recheck` ends it when its pass would no longer be issued.
//! What goes wrong becomes a Kubernetes `Status` (`error`).

mod admission;
mod audit;
mod browser;
mod discovery_errors;
mod error;
mod forward;
mod headers;
mod hop;
mod limits;
mod open_requests;
mod passes;
mod recheck;
mod recording;
mod redirects;
mod route;
mod slots;
mod upgrade;
mod upstream;

pub(crate) use audit::{Audit, AuditWriter, audit};
pub use browser::{InvalidOrigin, Origin};
pub(crate) use browser::{Tickets, serve_tickets};
pub(crate) use hop::accept as accept_hops;
pub(crate) use open_requests::OpenRequests;
pub(crate) use passes::Passes;
pub(crate) use recheck::watch as watch_revocations;
pub(crate) use recording::{Recordings, RecordingsWriter, recordings};
pub(crate) use slots::RequestSlots;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chassis::Shutdown;
use chassis::server::{Limits, Server};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use world::network::Listener;

use crate::gateway::Gateway;

/// Requests at once on one HTTP/2 connection; most of them may be watches.
const STREAMS: u32 = 250;
/// Connections at once.
const CONNECTIONS: usize = 16_384;
/// Largest head of a request.
const HEAD_BYTES: usize = 64 * 1024;
/// How long what is open may take to finish once the gateway is asked to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Body of an answer.
type AnswerBody = UnsyncBoxBody<Bytes, tunnel::BoxError>;

/// Where requests to clusters' APIs come in.
pub struct ClusterListener {
    /// The socket.
    pub listener: Box<dyn Listener>,
    /// What people and jobs see; `None` for plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

/// Serves until shutdown is asked for.
pub(crate) async fn serve(
    gateway: Arc<Gateway>,
    ClusterListener { listener, tls }: ClusterListener,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let limits = Limits {
        connections: CONNECTIONS,
        head_bytes: HEAD_BYTES,
        streams: STREAMS,
        drain: DRAIN,
        ..Limits::default()
    };
    let server = Server {
        name: "cluster-api",
        world: gateway.world.clone(),
        listener,
        tls,
        plain_on_loopback: !gateway.args.clusters_origins.is_empty(),
        limits,
    };
    let answering = Arc::clone(&gateway);
    let service = service_fn(move |request| answer(Arc::clone(&answering), request));
    let stopping = async {
        shutdown.requested().await;
        gateway.open_requests.drain();
    };
    let (served, ()) = tokio::join!(server.serve(service, shutdown.clone()), stopping);
    gateway.open_requests.end_all("the gateway is stopping");
    served
}

const fn class(code: StatusCode) -> &'static str {
    match code.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

async fn answer(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let is_head = request.method() == Method::HEAD;
    let origins = &gateway.args.clusters_origins;
    let origin = browser::allowed(origins, request.headers());
    let offered = browser::ticket_offered(origins, request.headers());
    let answered = match (browser::preflight(origins, &request), browser::page_endpoint(&gateway, &request)) {
        (Some(answer), _) => Ok(answer),
        (None, Some(endpoint)) => browser::answer(&gateway, endpoint, request).await,
        (None, None) => forward::answer(&gateway, request).await,
    };
    let mut answered = answered.unwrap_or_else(error::ProxyError::into_response);
    browser::add_cors_headers(origins, origin, answered.headers_mut());
    if answered.status() == StatusCode::SWITCHING_PROTOCOLS {
        browser::select_protocol(offered, answered.headers_mut());
    }
    gateway.counts.cluster_requests.with([class(answered.status())]).inc();
    // On HTTP/2 nobody but us would leave out the body of what is ours, and clients break off at it.
    Ok(if is_head { answered.map(|_| nothing()) } else { answered })
}

fn nothing() -> AnswerBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
