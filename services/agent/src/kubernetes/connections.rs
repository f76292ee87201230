//! The connections to the API server, over HTTP/2 where it can be had.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Version;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt};

/// Connections for requests, at most.
const REQUEST_LANES: usize = 2;
/// Requests in flight on one of them: an API server allows about a hundred.
const REQUESTS_PER_LANE: usize = 96;
/// Requests for which there is room.
pub(super) const REQUESTS: usize = REQUEST_LANES * REQUESTS_PER_LANE;
/// Connections for watches, at most.
const WATCH_LANES: usize = 8;
/// Watches that share one.
pub const WATCHES_PER_LANE: usize = 64;
/// How long a dial may take, TLS included: others wait for it.
const DIAL_DEADLINE: Duration = Duration::from_secs(10);
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Watches and the Lease have connections of their own, so that they never wait behind a thousand writes; and an API server allows
/// about a hundred streams on one. A connection that nobody uses is never made.
pub(super) struct Connections {
    /// For a start, and where HTTP/2 is not to be had: speaks what the server does, with a connection for each request that comes
    /// while none is open.
    any: Lane,
    /// Whether its last answer was in HTTP/2: then all go over connections that speak nothing else, on which many share one dial.
    http2: AtomicBool,
    lanes: Box<[Lane]>,
    watches: Box<[kube::Client]>,
    /// For the Lease; by its answers the server's protocol is known, too.
    pub(super) lease: kube::Client,
}

/// A client and how many requests are under way on it; one connection, if it speaks HTTP/2.
pub(super) struct Lane {
    pub(super) client: kube::Client,
    pub(super) requests: Arc<AtomicUsize>,
}

/// A request that is under way, counted while it lives.
pub(super) struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    pub(super) fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Connections {
    pub(super) fn new(config: &Config) -> Result<Self, kube::Error> {
        let lane = |protocols| Ok(Lane { client: client(config, protocols)?, requests: Arc::default() });
        let lanes = (0..REQUEST_LANES).map(|_| lane(Protocols::Http2)).collect::<Result<_, kube::Error>>()?;
        let watches = (0..WATCH_LANES).map(|_| client(config, Protocols::Http2));
        Ok(Self {
            any: lane(Protocols::Any)?,
            http2: AtomicBool::new(false),
            lanes,
            watches: watches.collect::<Result<_, _>>()?,
            lease: client(config, Protocols::Any)?,
        })
    }

    /// The first one that has room, so that few requests need one connection.
    pub(super) fn for_request(&self) -> &Lane {
        let room = |lane: &&Lane| lane.requests.load(Ordering::Acquire) < REQUESTS_PER_LANE;
        let lane = if self.speaks_http2() { self.lanes.iter().find(room) } else { None };
        lane.unwrap_or(&self.any)
    }

    pub(super) fn for_watch(&self, lane: usize) -> &kube::Client {
        let watches = if self.speaks_http2() { self.watches.get(lane % WATCH_LANES) } else { None };
        watches.unwrap_or(&self.any.client)
    }

    /// What a request was answered in.
    pub(super) fn learn(&self, answered: Version) {
        self.http2.store(answered == Version::HTTP_2, Ordering::Release);
    }

    fn speaks_http2(&self) -> bool {
        self.http2.load(Ordering::Acquire)
    }
}

/// What a connection may speak.
#[derive(Clone, Copy)]
enum Protocols {
    Any,
    Http2,
}

fn client(config: &Config, protocols: Protocols) -> Result<kube::Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    connector.set_connect_timeout(Some(DIAL_DEADLINE));
    let builder = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    let builder = match &config.tls_server_name {
        Some(name) => {
            let name = rustls::pki_types::ServerName::try_from(name.clone())
                .map_err(|_| kube::Error::Service(format!("{name:?} is no server name").into()))?;
            builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
        }
        None => builder,
    };
    let https = match protocols {
        Protocols::Any => builder.enable_all_versions().wrap_connector(connector),
        Protocols::Http2 => builder.enable_http2().wrap_connector(connector),
    };
    let https = tower::ServiceBuilder::new().map_future(Box::pin).timeout(DIAL_DEADLINE).service(https);
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_only(matches!(protocols, Protocols::Http2))
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .http2_keep_alive_timeout(Duration::from_secs(10))
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(https);
    let service = tower::ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}
