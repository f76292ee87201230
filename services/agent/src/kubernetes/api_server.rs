//! The API server for requests that others make through this agent: whatever they are, streamed both ways, as many as come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tower::{BoxError, ServiceExt};

use super::clients::{Client, Clients, Protocols};
use super::connections::{REQUESTS_PER_LANE, UnderWay};

/// Connections that nobody uses and that are kept all the same.
const IDLE_LANES: usize = 2;
/// Asked once to see which protocol the API server speaks. Its answer's status does not matter.
const PROBE: &str = "/version";

/// Body of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Where the API server speaks HTTP/2, requests share connections ("lanes") that are made as more are under way than one takes:
/// an API server allows about a hundred on one, and the next would wait for a watch to end. Where it speaks only HTTP/1.1, each has
/// a connection.
pub struct ApiServer {
    clients: Clients,
    /// Dials once for each request while none is open: alone used where HTTP/2 is not to be had.
    any: Client<RequestBody>,
    upgrading: Client<RequestBody>,
    speaks_http2: tokio::sync::Mutex<Option<bool>>,
    lanes: Arc<Mutex<Vec<OpenLane>>>,
}

struct OpenLane {
    client: Client<RequestBody>,
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
    pub(super) fn new(clients: Clients) -> Self {
        Self {
            any: clients.make(Protocols::Any),
            upgrading: clients.make(Protocols::FreshHttp1),
            clients,
            speaks_http2: tokio::sync::Mutex::default(),
            lanes: Arc::default(),
        }
    }

    /// Whether the agent itself acts as somebody else here, so that it can act as nobody further.
    #[must_use]
    pub const fn impersonates(&self) -> bool {
        self.clients.impersonates()
    }

    /// Sends a request; its place is taken until the lane is dropped. Only a request of which nothing was sent is sent again, when
    /// its connection turns out to be broken.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<(Response<Incoming>, Lane), BoxError> {
        let (client, lane) = if self.speaks_http2().await? {
            self.lane()
        } else {
            (self.any.clone(), Lane { under_way: None, lanes: Arc::clone(&self.lanes) })
        };
        match ask(client, request).await {
            Ok(response) => Ok((response, lane)),
            Err(error) => {
                // It may be another API server behind the same address by now.
                *self.speaks_http2.lock().await = None;
                Err(error)
            }
        }
    }

    /// Sends a request on a connection of its own that may become another protocol.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn upgrade(&self, request: Request<()>) -> Result<Response<Incoming>, BoxError> {
        ask(self.upgrading.clone(), request.map(|()| nothing())).await
    }

    /// Requests under way on each connection.
    #[must_use]
    pub fn lanes(&self) -> Vec<usize> {
        self.lanes.lock().iter().map(|lane| lane.requests.load(Ordering::Acquire)).collect()
    }

    /// One request finds out, and the others wait for it: each of them would dial, and all end up on one connection.
    async fn speaks_http2(&self) -> Result<bool, BoxError> {
        let mut known = self.speaks_http2.lock().await;
        if let Some(known) = *known {
            return Ok(known);
        }
        let response = ask(self.any.clone(), Request::get(PROBE).body(nothing())?).await?;
        Ok(*known.insert(response.version() == Version::HTTP_2))
    }

    /// The first one that has room, so that few requests need one connection.
    fn lane(&self) -> (Client<RequestBody>, Lane) {
        let mut lanes = self.lanes.lock();
        let has_room = |lane: &&OpenLane| lane.requests.load(Ordering::Acquire) < REQUESTS_PER_LANE;
        let (client, requests) = match lanes.iter().find(has_room) {
            Some(lane) => (lane.client.clone(), Arc::clone(&lane.requests)),
            None => {
                let (client, requests) = (self.clients.make(Protocols::Http2), Arc::default());
                lanes.push(OpenLane { client: client.clone(), requests: Arc::clone(&requests) });
                (client, requests)
            }
        };
        (client, Lane { under_way: Some(UnderWay::begin(&requests)), lanes: Arc::clone(&self.lanes) })
    }
}

/// One type for whoever waits, whatever the client is made of.
fn ask(
    client: Client<RequestBody>,
    request: Request<RequestBody>,
) -> BoxFuture<'static, Result<Response<Incoming>, BoxError>> {
    Box::pin(client.oneshot(request))
}

fn nothing() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
