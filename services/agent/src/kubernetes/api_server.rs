//! The API server for requests that others make through this agent: whatever they are, streamed both ways, as many as come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::uri::Authority;
use http::{Request, Response, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tower::{BoxError, ServiceExt};
use tunnel::http2::Received;
use world::World;

use super::clients::{Client, Transports};
use super::connections::{REQUESTS_PER_LANE, UnderWay};
use super::plain;
use super::pool::{NoConnection, PooledBody};

/// Connections that nobody uses and that are kept all the same.
const IDLE_LANES: usize = 2;
/// Asked once to see which protocol the API server speaks. Its answer's status does not matter.
const PROBE: &str = "/version";
/// How long that answer is waited for.
const PROBE_DEADLINE: Duration = Duration::from_secs(30);

/// Requests on kept connections at once; those beyond share lanes.
pub const KEPT_CONNECTIONS: usize = 32;

/// How the answer to a request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Soon and by the API server itself, to a request without a body that only reads: it can be asked twice.
    Soon,
    /// By the API server itself.
    Own,
    /// By somebody behind it, whatever that is.
    OfOthers,
}

/// Body of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Body of an answer.
pub type AnswerBody = Either<Incoming, Either<PooledBody, Received>>;

/// Where the API server speaks HTTP/2, requests share connections ("lanes") that are made as more are under way than one takes:
/// an API server allows about a hundred on one, and the next would wait for a watch to end. What is answered soon goes on HTTP/1.1
/// connections that are kept for the next one, as far as there are some: an API server answers there with less work. Where it speaks
/// only HTTP/1.1, each of the others has a connection alone.
pub struct ApiServer {
    world: World,
    ways: Transports,
    on_kept: Arc<AtomicUsize>,
    probe: Mutex<Option<Probe>>,
    lanes: Arc<Mutex<Vec<OpenLane>>>,
}

/// How a request is sent that has no place on a kept connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// HTTP/2, with others.
    Lane,
    /// HTTP/1.1, on a connection of its own.
    PerRequest,
}

/// The way that the API server's protocol allows, once that is known.
type Probe = Shared<BoxFuture<'static, Result<Way, ProbeError>>>;

/// Which protocol the API server speaks is not known. All who wait for it hear it.
#[derive(Debug, Clone, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    NotAnswered(Arc<dyn std::error::Error + Send + Sync>),
    #[error("it accepts connections but did not report its version within {PROBE_DEADLINE:?}")]
    Silent,
    #[error("the agent is stopping")]
    Ended,
}

struct OpenLane {
    client: Client<RequestBody, Received>,
    requests: Arc<AtomicUsize>,
}

/// A place on a connection, taken while it lives.
pub struct Lane {
    under_way: Option<UnderWay>,
    lanes: Arc<Mutex<Vec<OpenLane>>>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.under_way.take();
        let mut idle = 0;
        self.lanes.lock().retain(|lane| {
            let is_used = lane.requests.load(Ordering::Acquire) > 0;
            idle += usize::from(!is_used);
            is_used || idle <= IDLE_LANES
        });
    }
}

impl ApiServer {
    /// Dials nothing yet.
    pub(super) fn new(world: World, ways: Transports) -> Self {
        Self { world, ways, on_kept: Arc::default(), probe: Mutex::default(), lanes: Arc::default() }
    }

    /// One that is reached over the world's network in plain text, with nobody's credentials; dials nothing yet.
    #[must_use]
    pub fn in_plain_text(world: World, server: &Authority, speaks_http2: bool) -> Self {
        let ways = plain::ways(&world, server, speaks_http2);
        Self::new(world, ways)
    }

    /// Whether the agent itself acts as somebody else here, so that it can act as nobody further.
    #[must_use]
    pub const fn impersonates(&self) -> bool {
        self.ways.impersonates
    }

    /// Sends a request; its place is taken until the lane is dropped. When its connection turns out to be broken, only a request of
    /// which nothing was sent, which the API server says that it did not take, or which can be asked twice, is sent again. An answer of
    /// others comes on a connection of its own, as it can break the one that it comes on.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(
        &self,
        request: Request<RequestBody>,
        expected: Expected,
    ) -> Result<(Response<AnswerBody>, Lane), BoxError> {
        if expected == Expected::OfOthers {
            return self.ask(request, Way::PerRequest).await;
        }
        let probe = self.probe();
        let answered = match probe.clone().await {
            Ok(way) if expected == Expected::Soon => self.ask_soon(request, way).await,
            Ok(way) => self.ask(request, way).await,
            Err(error) => Err(error.into()),
        };
        // It may be another API server behind the same address by now.
        answered.inspect_err(|_| self.forget(&probe))
    }

    /// On a kept connection if there is room. An API server may close one that nobody used in the moment in which somebody does.
    async fn ask_soon(
        &self,
        request: Request<RequestBody>,
        otherwise: Way,
    ) -> Result<(Response<AnswerBody>, Lane), BoxError> {
        let Some(place) = UnderWay::begin_below(&self.on_kept, KEPT_CONNECTIONS) else {
            return self.ask(request, otherwise).await;
        };
        let (parts, body) = request.into_parts();
        match answer(self.ways.kept.clone(), Request::from_parts(parts.clone(), nothing())).await {
            Ok(answer) => Ok((answer.map(|body| Either::Right(Either::Left(body))), self.place(Some(place)))),
            Err(error) if error.is::<NoConnection>() => Err(error),
            Err(error) => {
                tracing::debug!(%error, "no answer on a kept connection");
                self.ask(Request::from_parts(parts, body), otherwise).await
            }
        }
    }

    async fn ask(
        &self,
        request: Request<RequestBody>,
        way: Way,
    ) -> Result<(Response<AnswerBody>, Lane), BoxError> {
        match way {
            Way::Lane => {
                let (client, lane) = self.lane();
                let answer = answer(client, request).await?;
                Ok((answer.map(|body| Either::Right(Either::Right(body))), lane))
            }
            Way::PerRequest => {
                Ok((answer(self.ways.alone.clone(), request).await?.map(Either::Left), self.place(None)))
            }
        }
    }

    /// Sends a request on a connection of its own that may become another protocol.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn upgrade(&self, request: Request<()>) -> Result<Response<Incoming>, BoxError> {
        answer(self.ways.alone.clone(), request.map(|()| nothing())).await
    }

    /// Requests under way on each connection.
    #[must_use]
    pub fn lanes(&self) -> Vec<usize> {
        self.lanes.lock().iter().map(|lane| lane.requests.load(Ordering::Acquire)).collect()
    }

    /// One finds out, and the others wait for it and hear the same, an error too: each of them would dial, and all end up on one
    /// connection.
    fn probe(&self) -> Probe {
        let mut current = self.probe.lock();
        // One that failed, and for which nobody has waited to its end, says nothing of now.
        let _failed = current.take_if(|probe| matches!(probe.clone().now_or_never(), Some(Err(_))));
        current.get_or_insert_with(|| probe(&self.world, self.ways.probe.clone())).clone()
    }

    /// Has the next request find out anew, unless one has already begun to.
    fn forget(&self, probe: &Probe) {
        let mut current = self.probe.lock();
        if current.as_ref().is_some_and(|current| current.ptr_eq(probe)) {
            *current = None;
        }
    }

    fn place(&self, under_way: Option<UnderWay>) -> Lane {
        Lane { under_way, lanes: Arc::clone(&self.lanes) }
    }

    /// The first one that has room, so that few requests need one connection.
    fn lane(&self) -> (Client<RequestBody, Received>, Lane) {
        let mut lanes = self.lanes.lock();
        let has_room = |lane: &&OpenLane| lane.requests.load(Ordering::Acquire) < REQUESTS_PER_LANE;
        let (client, requests) = match lanes.iter().find(has_room) {
            Some(lane) => (lane.client.clone(), Arc::clone(&lane.requests)),
            None => {
                let (client, requests) = ((self.ways.shared)(), Arc::default());
                lanes.push(OpenLane { client: client.clone(), requests: Arc::clone(&requests) });
                (client, requests)
            }
        };
        (client, self.place(Some(UnderWay::begin(&requests))))
    }
}

/// Goes on by itself: whoever began it may give up, and the next one is not to find it half done.
fn probe(world: &World, client: Client<RequestBody, ()>) -> Probe {
    let clock = Arc::clone(&world.clock);
    let (tell, known) = oneshot::channel();
    let probing = async move {
        let way = tokio::select! {
            biased;
            way = allowed_way(client) => way.map_err(|error| ProbeError::NotAnswered(error.into())),
            () = clock.sleep(PROBE_DEADLINE) => Err(ProbeError::Silent),
        };
        // Nobody may want to know any more.
        let _heard = tell.send(way);
    };
    world.spawner.spawn("API server's protocol", Box::pin(probing));
    known.map(|known| known.unwrap_or(Err(ProbeError::Ended))).boxed().shared()
}

async fn allowed_way(client: Client<RequestBody, ()>) -> Result<Way, BoxError> {
    let response = answer(client, Request::get(PROBE).body(nothing())?).await?;
    Ok(if response.version() == Version::HTTP_2 { Way::Lane } else { Way::PerRequest })
}

/// One type for whoever waits, whatever the client is made of.
fn answer<A: 'static>(
    client: Client<RequestBody, A>,
    request: Request<RequestBody>,
) -> BoxFuture<'static, Result<Response<A>, BoxError>> {
    Box::pin(client.oneshot(request))
}

fn nothing() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
