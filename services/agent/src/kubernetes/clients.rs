//! Makes HTTP clients of one API server: its address, TLS, and the agent's own credentials.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::Config;
use kube::client::ConfigExt;
use kube::client::middleware::{AuthLayer, ExtraHeadersLayer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service};
use world::World;

use super::api_server::RequestBody;
use super::kept::{KEPT, Kept, KeptBody};

/// How long a dial may take, TLS included: others wait for it.
const DIAL_DEADLINE: Duration = Duration::from_secs(10);
/// What a reader that stands still leaves unread in memory.
const STREAM_WINDOW: u32 = 1 << 20;
/// The largest that HTTP/2 has: readers that stand still never exhaust it, so that they stop no other.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// An answer with a longer list of headers fails. One that is longer by far would end the connection that many share, as what it says
/// cannot be skipped: this is more than an API server says by itself.
const MAXIMUM_HEADER_LIST_BYTES: u32 = 1 << 20;

/// What a client may speak.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocols {
    /// What the server prefers.
    Any,
    /// HTTP/2 alone, all on one connection.
    Http2,
    /// HTTP/1.1 on a connection of its own for each request, which may become another protocol.
    FreshHttp1,
}

/// A client; clones share its connections.
pub(super) type Client<B, A = Incoming> = BoxCloneSyncService<Request<B>, Response<A>, BoxError>;

type Dialled = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Makes clients. All of them renew the agent's credentials together.
pub(super) struct Clients {
    config: Config,
    tls: ClientConfig,
    server_name: Option<ServerName<'static>>,
    credentials: Option<AuthLayer>,
    headers: ExtraHeadersLayer,
}

impl Clients {
    pub(super) fn new(config: Config) -> Result<Self, kube::Error> {
        let server_name = config.tls_server_name.as_ref().map(|name| {
            ServerName::try_from(name.clone())
                .map_err(|_| kube::Error::Service(format!("{name:?} is no server name").into()))
        });
        Ok(Self {
            tls: config.rustls_client_config()?,
            server_name: server_name.transpose()?,
            credentials: config.auth_layer()?,
            headers: config.extra_headers_layer()?,
            config,
        })
    }

    /// Whether the agent itself acts as somebody else, by its kubeconfig.
    pub(super) const fn impersonates(&self) -> bool {
        let user = &self.config.auth_info;
        user.impersonate.is_some()
            || user.impersonate_uid.is_some()
            || user.impersonate_groups.is_some()
            || user.impersonate_user_extra.is_some()
    }

    pub(super) fn make<B>(&self, protocols: Protocols) -> Client<B>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let mut http = legacy::Client::builder(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEPT)
            .http2_only(protocols == Protocols::Http2)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(MAXIMUM_HEADER_LIST_BYTES)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .http2_keep_alive_timeout(Duration::from_secs(10))
            .http2_keep_alive_while_idle(true);
        if protocols == Protocols::FreshHttp1 {
            http.pool_max_idle_per_host(0);
        }
        self.client(http.build::<_, B>(self.connector(protocols)))
    }

    /// One that speaks HTTP/1.1, each request on a connection that nobody uses just now.
    pub(super) fn make_kept(&self, world: &World) -> Client<RequestBody, KeptBody> {
        self.client(Kept::new(world.clone(), self.connector(Protocols::FreshHttp1)))
    }

    /// Dials the API server.
    fn connector(
        &self,
        protocols: Protocols,
    ) -> impl Service<Uri, Response = Dialled, Error = BoxError, Future: Send + Unpin>
    + Clone
    + Send
    + Sync
    + 'static
    + use<> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_keepalive(Some(Duration::from_secs(30)));
        connector.set_connect_timeout(Some(DIAL_DEADLINE));
        let builder =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(self.tls.clone()).https_or_http();
        let builder = match &self.server_name {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name.clone())),
            None => builder,
        };
        let https = match protocols {
            Protocols::Any => builder.enable_all_versions().wrap_connector(connector),
            Protocols::Http2 => builder.enable_http2().wrap_connector(connector),
            Protocols::FreshHttp1 => builder.enable_http1().wrap_connector(connector),
        };
        tower::ServiceBuilder::new().map_future(Box::pin).timeout(DIAL_DEADLINE).service(https)
    }

    /// What goes to the API server goes with the agent's own credentials.
    fn client<S, B, A>(&self, http: S) -> Client<B, A>
    where
        S: Service<Request<B>, Response = Response<A>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Body + Send + 'static,
        A: 'static,
    {
        let service = tower::ServiceBuilder::new()
            .layer(self.config.base_uri_layer())
            .option_layer(self.credentials.as_ref())
            .layer(&self.headers)
            .map_err(Into::into)
            .service(http);
        BoxCloneSyncService::new(service)
    }
}
