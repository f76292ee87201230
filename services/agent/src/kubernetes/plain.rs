//! An API server that is reached over the world's network, in plain text and with nobody's credentials.

use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _, service_fn};
use world::World;
use world::network::Connection;

use super::api_server::RequestBody;
use super::clients::{Client, DIAL_DEADLINE, Transports, head_of};
use super::per_request::PerRequest;
use super::pool::ConnectionPool;
use super::shared::Shared;

type Connector = BoxCloneSyncService<Uri, TokioIo<Box<dyn Connection>>, BoxError>;

/// The ways to it; whether it speaks HTTP/2 is known.
pub(super) fn ways(world: &World, server: &Authority, speaks_http2: bool) -> Transports {
    let connector = connector(world);
    let alone = PerRequest::new(world.clone(), connector.clone());
    let kept = ConnectionPool::new(world.clone(), connector.clone());
    let alone = client(server, move |request| {
        let alone = alone.clone();
        async move { alone.send(request).await }
    });
    let kept = client(server, move |request| {
        let kept = kept.clone();
        async move { kept.send(request).await }
    });
    let (world, server) = (world.clone(), server.clone());
    let shared = move || {
        let shared = Shared::new(world.clone(), connector.clone());
        client(&server, move |request| {
            let shared = shared.clone();
            async move { shared.send(request).await }
        })
    };
    let probe = if speaks_http2 { head_of(shared()) } else { head_of(alone.clone()) };
    Transports { probe, alone, kept, shared: Box::new(shared), impersonates: false }
}

fn connector(world: &World) -> Connector {
    let world = world.clone();
    BoxCloneSyncService::new(service_fn(move |server: Uri| {
        let world = world.clone();
        async move {
            let host = server.host().ok_or("the API server has no host")?;
            let dialling = world.network.dial(host, server.port_u16().unwrap_or(80));
            let dialled = tokio::select! {
                biased;
                dialled = dialling => dialled?,
                () = world.clock.sleep(DIAL_DEADLINE) => return Err("the API server accepts no connection".into()),
            };
            Ok(TokioIo::new(dialled))
        }
    }))
}

fn client<A, Sending>(
    server: &Authority,
    send: impl Fn(Request<RequestBody>) -> Sending + Clone + Send + Sync + 'static,
) -> Client<RequestBody, A>
where
    A: 'static,
    Sending: Future<Output = Result<Response<A>, BoxError>> + Send + 'static,
{
    let server = server.clone();
    BoxCloneSyncService::new(service_fn(send).map_request(move |mut request: Request<RequestBody>| {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        (parts.scheme, parts.authority) = (Some(Scheme::HTTP), Some(server.clone()));
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        request
    }))
}
