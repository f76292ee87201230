//! An HTTP/1.1 connection to the API server for each request, which may become another protocol.

use futures::TryFutureExt as _;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use tower::{BoxError, Service, ServiceExt as _};
use world::World;

use super::api_server::RequestBody;
use super::pool::in_origin_form;

/// Dials for each request.
#[derive(Clone)]
pub(super) struct PerRequest<C> {
    world: World,
    connector: C,
}

impl<C> PerRequest<C>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Future: Send,
{
    pub(super) const fn new(world: World, connector: C) -> Self {
        Self { world, connector }
    }

    /// Sends a request; gives its answer as soon as its head is there.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, BoxError> {
        let server = in_origin_form(&mut request)?;
        let io = self.connector.clone().oneshot(server).await?;
        let (mut sender, connection) = http1::handshake(io).await?;
        let moving = connection.with_upgrades().unwrap_or_else(|error| {
            tracing::debug!(error = &error as &dyn std::error::Error, "a connection for one request broke");
        });
        self.world.spawner.spawn("connection for one request", Box::pin(moving));
        let answering = sender.send_request(request);
        // As in `shared`: a request that the connection did not take is heard of when nobody can write to it any more.
        drop(sender);
        Ok(answering.await?)
    }
}
