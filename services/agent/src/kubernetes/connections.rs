//! The connections to the API server, over HTTP/2 where it can be had.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::Config;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use thiserror::Error;
use tower::{BoxError, ServiceExt as _};
use world::World;

use super::api_server::ApiServer;
use super::clients::Clients;

/// Connections for requests, at most.
const REQUEST_LANES: usize = 2;
/// Requests in flight on one of them: an API server allows about a hundred.
pub(super) const REQUESTS_PER_LANE: usize = 96;
/// Requests for which there is room.
pub(super) const REQUESTS: usize = REQUEST_LANES * REQUESTS_PER_LANE;
/// Connections for watches, at most.
const WATCH_LANES: usize = 8;
/// Watches that share one.
pub const WATCHES_PER_LANE: usize = 64;
/// Connections for the observer's feeds, at most.
const FEED_LANES: usize = 16;
/// Feeds for which there is room.
pub const FEEDS: usize = FEED_LANES * WATCHES_PER_LANE;

/// A request, or an answer's body, did not come through.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct ChannelError(#[from] BoxError);

/// Body of an answer, while it comes.
pub type AnswerBody = UnsyncBoxBody<Bytes, ChannelError>;

/// An answer, as soon as its head is there.
pub type Answering = BoxFuture<'static, Result<Response<AnswerBody>, ChannelError>>;

/// What carries requests to an API server: a connection, or several.
pub trait Channel: Send + Sync {
    /// Sends a request.
    fn send(&self, request: Request<Bytes>) -> Answering;
}

impl Channel for kube::Client {
    fn send(&self, request: Request<Bytes>) -> Answering {
        let client = self.clone();
        let lost = |error: kube::Error| ChannelError(error.into());
        Box::pin(async move {
            let answer = Self::send(&client, request.map(Body::from)).await.map_err(lost)?;
            Ok(answer.map(|body| body.map_err(lost).boxed_unsync()))
        })
    }
}

/// Where the API server is.
#[derive(Debug, Clone, Default)]
pub struct KubeOptions {
    /// A kubeconfig; the pod's service account where there is none.
    pub kubeconfig: Option<PathBuf>,
    /// A context of it.
    pub context: Option<String>,
}

/// The API server cannot be used.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig is no good.
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// Not in a pod.
    #[error("neither --kubeconfig was given nor is this a pod with a service account")]
    InCluster(#[from] kube::config::InClusterError),
    /// The client cannot be made.
    #[error("cannot create a client for the API server")]
    Client(#[from] kube::Error),
}

/// Watches and the Lease have connections of their own, so that they never wait behind a thousand writes; and an API server allows
/// about a hundred streams on one. A connection that nobody uses is never made.
pub struct Connections {
    /// The namespace of the configuration.
    pub(super) namespace: String,
    /// For a start, and where HTTP/2 is not to be had: speaks what the server does, with a connection for each request that comes
    /// while none is open.
    any: Lane,
    /// Whether its last answer was in HTTP/2: then all go over connections that speak nothing else, on which many share one dial.
    http2: AtomicBool,
    lanes: Box<[Lane]>,
    watches: Box<[Arc<dyn Channel>]>,
    /// For the observer's feeds and lists, of which there may be many: nothing else waits behind them.
    feeds: Box<[Arc<dyn Channel>]>,
    looks: Arc<dyn Channel>,
    /// For the Lease; by its answers the server's protocol is known, too.
    pub(super) lease: Arc<dyn Channel>,
    /// For requests of others: they never wait behind the agent's own, nor those behind them.
    api_server: Option<Arc<ApiServer>>,
}

/// A channel and how many requests are under way on it; one connection, if it speaks HTTP/2.
pub(super) struct Lane {
    pub(super) channel: Arc<dyn Channel>,
    pub(super) requests: Arc<AtomicUsize>,
}

/// A request that is under way, counted while it lives.
pub(super) struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    pub(super) fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }

    /// Unless there are so many already.
    pub(super) fn begin_below(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |others| (others < most).then_some(others + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Connections {
    /// Reads the configuration and prepares the connections; dials nothing yet. Call inside a tokio runtime.
    ///
    /// # Errors
    /// When there is no usable configuration.
    pub async fn open(world: &World, options: &KubeOptions) -> Result<Self, ConnectError> {
        let config = match &options.kubeconfig {
            Some(path) => {
                let context =
                    KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
                Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &context).await?
            }
            None => Config::incluster()?,
        };
        let namespace = config.default_namespace.clone();
        let clients = Clients::new(world.clone(), config)?;
        let any =
            || -> Arc<dyn Channel> { Arc::new(kube::Client::new(clients.any::<Body>(), namespace.clone())) };
        let shared = || -> Arc<dyn Channel> {
            let boxed = |request: Request<Body>| request.map(|body| body.map_err(Into::into).boxed_unsync());
            Arc::new(kube::Client::new(clients.shared().map_request(boxed), namespace.clone()))
        };
        let connections = Self::of(namespace.clone(), any, shared);
        Ok(connections.reaching(ApiServer::new(world.clone(), clients.ways())))
    }

    /// Everything over one channel, as in `namespace`.
    #[must_use]
    pub fn over(channel: &Arc<dyn Channel>, namespace: &str) -> Self {
        let same = || Arc::clone(channel);
        Self::of(namespace.to_owned(), same, same)
    }

    /// Requests of others come to the API server on a way of their own.
    #[must_use]
    pub fn reaching(self, api_server: ApiServer) -> Self {
        Self { api_server: Some(Arc::new(api_server)), ..self }
    }

    fn of(
        namespace: String,
        any: impl Fn() -> Arc<dyn Channel>,
        shared: impl Fn() -> Arc<dyn Channel>,
    ) -> Self {
        let lane = |channel| Lane { channel, requests: Arc::default() };
        Self {
            namespace,
            any: lane(any()),
            http2: AtomicBool::new(false),
            lanes: (0..REQUEST_LANES).map(|_| lane(shared())).collect(),
            watches: (0..WATCH_LANES).map(|_| shared()).collect(),
            feeds: (0..FEED_LANES).map(|_| shared()).collect(),
            looks: shared(),
            lease: any(),
            api_server: None,
        }
    }

    /// The way to the API server for requests of others, where connections are known and not only a channel.
    #[must_use]
    pub fn api_server(&self) -> Option<Arc<ApiServer>> {
        self.api_server.clone()
    }

    /// The first one that has room, so that few requests need one connection.
    pub(super) fn for_request(&self) -> &Lane {
        let room = |lane: &&Lane| lane.requests.load(Ordering::Acquire) < REQUESTS_PER_LANE;
        let lane = if self.speaks_http2() { self.lanes.iter().find(room) } else { None };
        lane.unwrap_or(&self.any)
    }

    pub(super) fn for_watch(&self, lane: usize) -> &Arc<dyn Channel> {
        let watches = if self.speaks_http2() { self.watches.get(lane % WATCH_LANES) } else { None };
        watches.unwrap_or(&self.any.channel)
    }

    pub(super) fn for_feed(&self, lane: usize) -> &Arc<dyn Channel> {
        let feeds = if self.speaks_http2() { self.feeds.get(lane % FEED_LANES) } else { None };
        feeds.unwrap_or(&self.any.channel)
    }

    pub(super) fn for_look(&self) -> &Arc<dyn Channel> {
        if self.speaks_http2() { &self.looks } else { &self.any.channel }
    }

    /// What a request was answered in.
    pub(super) fn learn(&self, answered: Version) {
        self.http2.store(answered == Version::HTTP_2, Ordering::Release);
    }

    fn speaks_http2(&self) -> bool {
        self.http2.load(Ordering::Acquire)
    }
}
