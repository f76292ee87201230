//! What somebody may list in a cluster: passed on to its agent, as it came, and the answer back.

use std::time::Duration;

use bytes::Bytes;
use events::request::RequestContext;
use events::requests::rights::{ReviewRights, ReviewedRights};
use events::{Actor, AgentId, Refusal, RefusalKind};
use http::{Method, StatusCode};
use tunnel::wire::path;

use crate::delivery::diff::{away, not_asked};
use crate::gateway::Gateway;

/// Largest answer of an agent, in bytes: it goes on in one message.
const MAXIMUM_ANSWER_BYTES: usize = bus::MAXIMUM_MESSAGE_BYTES - 16 * 1024;

/// Has an agent ask its cluster. Nothing of the question is looked at here: the agent verifies the pass in it.
pub(crate) async fn answer(
    gateway: &Gateway,
    agent: AgentId,
    context: &RequestContext,
    request: &ReviewRights,
) -> Result<ReviewedRights, Refusal> {
    if !matches!(context.actor, Actor::Service(_)) {
        return Err(Refusal::new(RefusalKind::Denied, "only services may request this"));
    }
    let unavailable = |message: &str| Refusal::new(RefusalKind::Unavailable, message);
    let sessions = gateway.registry.list(Some(agent));
    let session = sessions.first().filter(|session| session.organization == context.organization);
    let Some(session) = session else { return Err(away()) };
    let internal = |_| Refusal::new(RefusalKind::Internal, "the request cannot be encoded");
    let body = Bytes::from(events::encode(request).map_err(internal)?);
    let limit = Duration::from_millis(u64::from(context.deadline_millis));
    let connection = session.connection.traced(chassis::traces::current_traceparent().as_deref());
    let asked = connection.ask(Method::POST, path::RIGHTS, body, MAXIMUM_ANSWER_BYTES, limit).await;
    let reply = asked.map_err(|error| not_asked(error, "1 MiB"))?;
    match reply.status {
        StatusCode::OK => events::decode(&reply.body)
            .map_err(|_| unavailable("the agent's answer is malformed: upgrade the older side")),
        StatusCode::NOT_FOUND => {
            Err(unavailable("the agent is older than the server and cannot ask its cluster: upgrade it"))
        }
        status => Err(events::decode(&reply.body).unwrap_or_else(|_| {
            unavailable(&format!("the agent cannot ask its cluster now ({status}); retry"))
        })),
    }
}
