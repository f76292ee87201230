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
use tower::{BoxError, Service, ServiceExt as _, service_fn};
use tunnel::http2::Received;
use tunnel::settings::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES};
use world::World;

use super::api_server::RequestBody;
use super::per_request::PerRequest;
use super::pool::{ConnectionPool, KEPT, PooledBody};
use super::shared::{KEEPALIVE, MAXIMUM_HEADER_LIST_BYTES, Shared};

/// How long a dial may take, TLS included: others wait for it.
pub(super) const DIAL_DEADLINE: Duration = Duration::from_secs(10);

/// What a connection may speak.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocols {
    /// What the server prefers.
    Any,
    Http2,
    Http1,
}

/// A client; clones share its connections.
pub(super) type Client<B, A = Incoming> = BoxCloneSyncService<Request<B>, Response<A>, BoxError>;

type Dialled = MaybeHttpsStream<TokioIo<TcpStream>>;

/// How requests of others come to an API server.
pub(super) struct Transports {
    /// To see what it speaks.
    pub(super) probe: Client<RequestBody, ()>,
    /// A connection for each request.
    pub(super) alone: Client<RequestBody>,
    /// A connection for each request while it lasts, and then for the next one.
    pub(super) kept: Client<RequestBody, PooledBody>,
    /// Makes one more connection for all that are sent over it.
    pub(super) shared: Box<dyn Fn() -> Client<RequestBody, Received> + Send + Sync>,
    /// The agent itself acts as somebody else there.
    pub(super) impersonates: bool,
}

/// Without what follows the head of an answer.
pub(super) fn head_of<A: 'static>(client: Client<RequestBody, A>) -> Client<RequestBody, ()> {
    BoxCloneSyncService::new(client.map_response(|answer: Response<A>| answer.map(drop)))
}

/// Makes clients. All of them renew the agent's credentials together.
pub(super) struct Clients {
    world: World,
    config: Config,
    tls: ClientConfig,
    server_name: Option<ServerName<'static>>,
    credentials: Option<AuthLayer>,
    headers: ExtraHeadersLayer,
}

impl Clients {
    pub(super) fn new(world: World, config: Config) -> Result<Self, kube::Error> {
        let server_name = config.tls_server_name.as_ref().map(|name| {
            ServerName::try_from(name.clone())
                .map_err(|_| kube::Error::Service(format!("{name:?} is not a valid server name").into()))
        });
        Ok(Self {
            tls: config.rustls_client_config()?,
            server_name: server_name.transpose()?,
            credentials: config.auth_layer()?,
            headers: config.extra_headers_layer()?,
            config,
            world,
        })
    }

    /// The ways of others' requests.
    pub(super) fn ways(self) -> Transports {
        Transports {
            probe: head_of(self.any()),
            alone: self.alone(),
            kept: self.kept(),
            impersonates: self.impersonates(),
            shared: Box::new(move || self.shared()),
        }
    }

    /// Whether the agent itself acts as somebody else, by its kubeconfig.
    const fn impersonates(&self) -> bool {
        let user = &self.config.auth_info;
        user.impersonate.is_some()
            || user.impersonate_uid.is_some()
            || user.impersonate_groups.is_some()
            || user.impersonate_user_extra.is_some()
    }

    /// One that speaks what the server prefers.
    pub(super) fn any<B>(&self) -> Client<B>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let mut http = legacy::Client::builder(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEPT)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_max_header_list_size(MAXIMUM_HEADER_LIST_BYTES)
            .http2_keep_alive_interval(KEEPALIVE.interval)
            .http2_keep_alive_timeout(KEEPALIVE.timeout)
            .http2_keep_alive_while_idle(true);
        self.client(http.build::<_, B>(self.connector(Protocols::Any)))
    }

    /// One that speaks HTTP/2, all on one connection.
    pub(super) fn shared(&self) -> Client<RequestBody, Received> {
        let shared = Shared::new(self.world.clone(), self.connector(Protocols::Http2));
        self.client(service_fn(move |request| {
            let shared = shared.clone();
            async move { shared.send(request).await }
        }))
    }

    /// One that speaks HTTP/1.1, each request on a connection of its own, which may become another protocol.
    fn alone(&self) -> Client<RequestBody> {
        let alone = PerRequest::new(self.world.clone(), self.connector(Protocols::Http1));
        self.client(service_fn(move |request| {
            let alone = alone.clone();
            async move { alone.send(request).await }
        }))
    }

    /// One that speaks HTTP/1.1, each request on a connection that nobody uses just now.
    fn kept(&self) -> Client<RequestBody, PooledBody> {
        let kept = ConnectionPool::new(self.world.clone(), self.connector(Protocols::Http1));
        self.client(service_fn(move |request| {
            let kept = kept.clone();
            async move { kept.send(request).await }
        }))
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
            Protocols::Http1 => builder.enable_http1().wrap_connector(connector),
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
