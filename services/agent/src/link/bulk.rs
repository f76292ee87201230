//! Connections beside the tunnel, for requests to the cluster's API: the server asks for each when it needs one. One that ends is not
//! dialled again before it is asked for again.

use std::convert::Infallible;
use std::sync::Arc;

use chassis::Shutdown;
use events::RefusalKind;
use http::{Method, Request, Response, StatusCode};
use hyper::service::service_fn;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tunnel::agent::{DialError, Link, dial};
use tunnel::body::GuardedBody;
use tunnel::handshake::Hello;
use tunnel::wire::path;
use world::World;

use super::access::Access;
use super::client::{serve, words};
use super::last_message::LastMessage;
use super::service::{AgentService, AnswerBody, empty, refusal};
use crate::kubernetes::client::chain;
use crate::metrics::Counts;

/// Open at once, whatever the server asks for.
const MOST: u32 = 16;

/// Opens them, and answers on them. Cheap to clone.
#[derive(Clone)]
pub(super) struct Bulk {
    pub(super) world: World,
    pub(super) service: AgentService,
    pub(super) access: Arc<Mutex<Access>>,
    pub(super) room: BulkRoom,
    pub(super) counts: Counts,
    pub(super) shutdown: Shutdown,
}

/// For how many more there is room, whichever tunnel they were asked for over.
#[derive(Clone)]
pub(super) struct BulkRoom {
    places: Arc<Semaphore>,
    /// What was wrong with the last dial.
    last_message: Arc<Mutex<LastMessage>>,
}

impl Default for BulkRoom {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST as usize)), last_message: Arc::default() }
    }
}

impl BulkRoom {
    /// Returns once none is open, and none is opened any more.
    pub(super) async fn emptied(&self) {
        // Nothing closes the semaphore itself.
        let _all = self.places.acquire_many(MOST).await;
    }
}

impl Bulk {
    /// Answers a request that came over the tunnel.
    pub(super) async fn answer(
        self,
        request: Request<GuardedBody>,
    ) -> Result<Response<AnswerBody>, Infallible> {
        if request.method() == Method::POST && request.uri().path() == path::BULK {
            return Ok(self.open().await);
        }
        self.service.answer(request).await
    }

    async fn open(self) -> Response<AnswerBody> {
        let Ok(place) = Arc::clone(&self.room.places).try_acquire_owned() else {
            let message = format!("{MOST} connections are open beside the tunnel");
            return *refusal(StatusCode::CONFLICT, RefusalKind::Conflict, &message);
        };
        let dialled = tokio::select! {
            biased;
            () = self.shutdown.requested() => {
                let message = "this agent is stopping";
                return *refusal(StatusCode::SERVICE_UNAVAILABLE, RefusalKind::Unavailable, message);
            }
            dialled = self.dial() => dialled,
        };
        match dialled {
            Ok(link) => {
                self.room.last_message.lock().forget();
                let spawner = Arc::clone(&self.world.spawner);
                let serving = async move {
                    self.serve(link).await;
                    drop(place);
                };
                spawner.spawn("bulk", Box::pin(serving));
                empty(StatusCode::NO_CONTENT)
            }
            Err(error) => {
                if let Some(reason) = self.room.last_message.lock().if_changed(words(&error)) {
                    tracing::warn!(reason, "no bulk connection");
                }
                *refusal(StatusCode::SERVICE_UNAVAILABLE, RefusalKind::Unavailable, &chain(&error))
            }
        }
    }

    /// With what is in force now: the tunnel may be older than the token.
    async fn dial(&self) -> Result<Link, DialError> {
        let (target, token) = {
            let mut access = self.access.lock();
            access.refresh();
            (access.target().clone(), access.token().clone())
        };
        let hello = Hello::bulk(self.service.instance(), env!("CARGO_PKG_VERSION"));
        dial(&self.world, &target, &token, &hello).await
    }

    async fn serve(self, link: Link) {
        self.counts.bulk_connections.inc();
        let service = self.service;
        let answer = service_fn(move |request: Request<GuardedBody>| service.clone().answer(request));
        let end = serve(&self.world, link, answer, &self.shutdown).await;
        self.counts.bulk_connections.dec();
        tracing::debug!(reason = %end, "bulk connection closed");
    }
}

#[cfg(test)]
mod tests;
