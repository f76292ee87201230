//! Receivers as the relay reaches them: HTTP on the network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use events::CloudEvent;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use world::network::Connection;
use world::{World, WorldTasks};

use super::{Reaction, Receivers, port_of};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Headers that each message has.
const HEADERS: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];

pub(super) fn listen(receivers: Receivers, number: usize, world: World) {
    let spawner = std::sync::Arc::clone(&world.spawner);
    let serving = async move {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port_of(number));
        let Ok(listener) = world.network.listen(address).await else { return };
        while let Ok((connection, _)) = listener.accept().await {
            if receivers.is_closed(number) {
                continue;
            }
            let serving = serve(receivers.clone(), number, world.clone(), connection);
            world.spawner.spawn("receiver's connection", Box::pin(serving));
        }
    };
    spawner.spawn("receiver", Box::pin(serving));
}

async fn serve(receivers: Receivers, number: usize, world: World, connection: Box<dyn Connection>) {
    let mut builder = Builder::new(WorldTasks::new(&world, "receiver"));
    // The date would be the machine's.
    builder.http1().auto_date_header(false);
    let answering = service_fn(move |request| answer(receivers.clone(), number, request));
    let _ended = builder.serve_connection(TokioIo::new(connection), answering).await;
}

async fn answer(
    receivers: Receivers,
    number: usize,
    request: Request<Incoming>,
) -> Result<Response<Empty<Bytes>>, BoxError> {
    let (parts, body) = request.into_parts();
    let event = CloudEvent::from_json(&body.collect().await?.to_bytes());
    let is_whole =
        parts.method == Method::POST && HEADERS.iter().all(|name| parts.headers.contains_key(*name));
    let (Ok(event), true) = (event, is_whole) else {
        receivers.violated(number, "it is sent what is no signed event".to_owned());
        return Ok(with(StatusCode::BAD_REQUEST));
    };
    match receivers.react(number, &event) {
        Reaction::Takes | Reaction::NeverHears => Ok(with(StatusCode::NO_CONTENT)),
        Reaction::DoesNotWantIt => Ok(with(StatusCode::UNPROCESSABLE_ENTITY)),
        Reaction::AnswersWithErrors => Ok(with(StatusCode::SERVICE_UNAVAILABLE)),
        Reaction::TakesUnheard => Err("the answer is lost".into()),
        // Until the sender has waited for long enough.
        Reaction::IsSilent => std::future::pending().await,
    }
}

fn with(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}
