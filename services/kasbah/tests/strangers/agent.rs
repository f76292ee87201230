//! An agent that takes what it is told to have, and reports nothing.

use std::convert::Infallible;
use std::future::{pending, ready};

use bytes::Bytes;
use events::desired::DesiredReply;
use events::requests::diff::SourceDiff;
use events::{InstanceId, encode};
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use tunnel::agent::{Target, dial};
use tunnel::body::{BodyFault, GuardedBody};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::{EventFrame, encode_frame, path};
use world::World;

type AgentBody = UnsyncBoxBody<Bytes, Infallible>;

/// Opens a tunnel, which lasts until the gateway closes it. `commit` is what this agent says it has compared.
pub async fn connect(world: &World, target: &Target, secret: &str, commit: String) -> InstanceId {
    let instance = InstanceId(world.new_uuid());
    let hello = Hello::control(instance, 0, "0.1.0");
    let link = dial(world, target, &Token::new(secret), &hello).await.unwrap();
    let service = service_fn(move |request| answer(request, commit.clone()));
    let serving = async move {
        link.serve(service, pending()).await;
    };
    world.spawner.spawn("agent", Box::pin(serving));
    instance
}

async fn answer(request: Request<GuardedBody>, commit: String) -> Result<Response<AgentBody>, BodyFault> {
    let (parts, body) = request.into_parts();
    body.collect().await?;
    let whole = |bytes: Vec<u8>| Full::new(Bytes::from(bytes)).boxed_unsync();
    let body = match parts.uri.path() {
        path::EVENTS => events_without_end(),
        path::DESIRED => whole(encode(&DesiredReply { missing: Vec::new() }).unwrap()),
        path if path.ends_with("/diff") => {
            whole(encode(&SourceDiff { commit, ..SourceDiff::default() }).unwrap())
        }
        _ => whole(Vec::new()),
    };
    let mut response = Response::new(body);
    if parts.uri.path() == path::OBJECTS {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    Ok(response)
}

/// Only that this instance does not hold the Lease.
fn events_without_end() -> AgentBody {
    let first = encode_frame(&EventFrame::Lease { held: false }).unwrap();
    let first = stream::once(ready(Ok(Frame::data(first))));
    StreamBody::new(stream::StreamExt::chain(first, stream::pending())).boxed_unsync()
}
