//! Connections beside the tunnel, for requests to the cluster's API: the server asks for each when it needs one. One that ends is not
//! dialled again before it is asked for again.

use std::convert::Infallible;
use std::sync::Arc;

use chassis::Shutdown;
use events::RefusalKind;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::sync::Semaphore;
use tunnel::agent::{Link, Target, dial};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::path;
use world::World;

use super::client::serve;
use super::service::{AgentService, AnswerBody, empty, refusal};
use crate::kubernetes::client::chain;
use crate::metrics::Counts;

/// Open at once, whatever the server asks for.
const MOST: usize = 16;

/// Opens them, and answers on them. Cheap to clone.
#[derive(Clone)]
pub(super) struct Bulk {
    pub(super) world: World,
    pub(super) service: AgentService,
    pub(super) target: Target,
    pub(super) token: Token,
    pub(super) room: BulkRoom,
    pub(super) counts: Counts,
    pub(super) shutdown: Shutdown,
}

/// For how many more there is room, whichever tunnel they were asked for over.
#[derive(Clone)]
pub(super) struct BulkRoom(Arc<Semaphore>);

impl Default for BulkRoom {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl Bulk {
    /// Answers a request that came over the tunnel.
    pub(super) async fn answer(self, request: Request<Incoming>) -> Result<Response<AnswerBody>, Infallible> {
        if request.method() == Method::POST && request.uri().path() == path::BULK {
            return Ok(self.open().await);
        }
        self.service.answer(request).await
    }

    async fn open(self) -> Response<AnswerBody> {
        let Ok(place) = Arc::clone(&self.room.0).try_acquire_owned() else {
            let message = format!("{MOST} connections are open beside the tunnel");
            return *refusal(StatusCode::CONFLICT, RefusalKind::Conflict, &message);
        };
        let hello = Hello::bulk(self.service.instance(), env!("CARGO_PKG_VERSION"));
        match dial(&self.world, &self.target, &self.token, &hello).await {
            Ok(link) => {
                let spawner = Arc::clone(&self.world.spawner);
                let serving = async move {
                    self.serve(link).await;
                    drop(place);
                };
                spawner.spawn("bulk", Box::pin(serving));
                empty(StatusCode::NO_CONTENT)
            }
            Err(error) => {
                let reason = chain(&error);
                tracing::debug!(reason, "no connection beside the tunnel");
                *refusal(StatusCode::SERVICE_UNAVAILABLE, RefusalKind::Unavailable, &reason)
            }
        }
    }

    async fn serve(self, link: Link) {
        self.counts.bulk_connections.inc();
        let service = self.service;
        let answer = service_fn(move |request: Request<Incoming>| service.clone().answer(request));
        let end = serve(&self.world, link, answer, &self.shutdown).await;
        self.counts.bulk_connections.dec();
        tracing::debug!(end = ?end, "connection beside the tunnel closed");
    }
}
