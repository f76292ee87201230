//! Comparing the next state of a source with the cluster, before it is applied.

use std::time::Duration;

use bus::MAXIMUM_MESSAGE_BYTES;
use bytes::Bytes;
use events::desired::DesiredSource;
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::Action;
use events::requests::delivery::ShowNext;
use events::requests::diff::{DiffSource, ObjectDiff, SourceDiff};
use events::{Actor, Refusal, RefusalKind, SourceId};
use http::{Method, StatusCode};
use tunnel::gateway::AskError;
use tunnel::wire::path;

use super::transfer::{MAXIMUM_REPLY_BYTES, ObjectTransfer, ROUNDS};
use crate::gateway::{ASK_TIME, Gateway, SERVICE};

const MAXIMUM_DIFF_BYTES: usize = MAXIMUM_MESSAGE_BYTES - 16 * 1024;

/// Has an agent compare the next state of a source with its cluster.
pub(crate) async fn answer(
    gateway: &Gateway,
    context: &RequestContext,
    request: &DiffSource,
) -> Result<SourceDiff, Refusal> {
    let DiffSource { agent, source } = *request;
    gateway.permit(context, Action::DiffSource, Scope::Agent(agent), "source").await?;
    let sessions = gateway.registry.list(Some(agent));
    let session = sessions.iter().find(|session| session.is_applier()).or(sessions.first());
    let session = session.filter(|session| session.organization == context.organization);
    let Some(session) = session else { return Err(away()) };
    if !gateway.standing.read(|standing| standing.owns(agent, source)) {
        return Err(Refusal::not_found("source"));
    }
    let limit = Duration::from_millis(u64::from(context.deadline_millis));
    let asking = bus::within(RequestContext { actor: Actor::service(SERVICE), ..context.clone() }, ASK_TIME);
    let next = bus::ask(&*gateway.bus, &asking, &ShowNext { source }).await?;
    let planned = gateway.bundles.source(session.organization, next.planned).await;
    let desired = planned.map_err(|error| unreadable(source, &error))?;
    let mut diff = compare(ObjectTransfer { gateway, session }, &desired, limit).await?;
    // What the agent has on its list, it knows better.
    let is_new = |kept: &ObjectDiff| !diff.objects.iter().any(|object| object.identity == kept.identity);
    let kept: Vec<ObjectDiff> = next.kept.into_iter().filter(is_new).collect();
    diff.objects.extend(kept);
    Ok(SourceDiff {
        more_kept: diff.more_kept.saturating_add(next.more_kept),
        pending: next.pending,
        rejected: next.rejected,
        fetch_failure: next.fetch_failure,
        ..diff
    })
}

/// Has the agent compare, and sends it what it lacks for that.
async fn compare(
    transfer: ObjectTransfer<'_>,
    next: &DesiredSource,
    limit: Duration,
) -> Result<SourceDiff, Refusal> {
    let source = next.head.source;
    let to = format!("{}{source}/diff", path::SOURCES);
    let internal = |_| Refusal::new(RefusalKind::Internal, "the request cannot be encoded");
    let body = Bytes::from(events::encode(next).map_err(internal)?);
    let pages = next.pages.iter().flatten().copied().collect();
    for _ in 0..ROUNDS {
        let connection =
            transfer.session.connection.traced(chassis::traces::current_traceparent().as_deref());
        let asked = connection.ask(Method::POST, &to, body.clone(), MAXIMUM_REPLY_BYTES, limit).await;
        let asked = asked.map_err(|error| not_asked(error, "8 MiB"))?;
        match asked.status {
            StatusCode::OK if asked.body.len() > MAXIMUM_DIFF_BYTES => {
                let message = "the difference is larger than 1 MiB, the maximum to show";
                return Err(Refusal::new(RefusalKind::Unavailable, message));
            }
            StatusCode::OK => {
                let malformed = "the agent's answer is malformed: upgrade the older side";
                return events::decode(&asked.body)
                    .map_err(|_| Refusal::new(RefusalKind::Unavailable, malformed));
            }
            StatusCode::CONFLICT => {
                let sent = transfer.send_missing(&pages, &asked.body).await;
                sent.map_err(|error| unreadable(source, &error))?;
            }
            StatusCode::NOT_FOUND => {
                let message = "the agent does not know this source yet, or is older than the server: retry, then upgrade it";
                return Err(Refusal::new(RefusalKind::Unavailable, message));
            }
            status => {
                return Err(events::decode(&asked.body).unwrap_or_else(|_| {
                    let message = format!("the agent cannot compare now ({status}); retry");
                    Refusal::new(RefusalKind::Unavailable, message)
                }));
            }
        }
    }
    Err(Refusal::new(RefusalKind::Unavailable, "the agent is busy with newer states; retry"))
}

/// Why an agent gave no answer of at most `most`.
pub(crate) fn not_asked(error: AskError, most: &str) -> Refusal {
    let unavailable = |message: &str| Refusal::new(RefusalKind::Unavailable, message);
    match error {
        AskError::Closed { .. } => away(),
        AskError::TimedOut { .. } => unavailable("the agent did not answer in time; retry"),
        AskError::Answer(_) => unavailable(&format!("the agent's answer broke off or is over {most}")),
        AskError::Unsendable { .. } => Refusal::new(RefusalKind::Internal, "the request cannot be sent"),
    }
}

fn unreadable(source: SourceId, error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::warn!(%source, error, "bundle cannot be sent to the agent for a comparison");
    Refusal::new(RefusalKind::Unavailable, "the bundle cannot be sent to the agent now; retry")
}

/// No instance of the agent is connected.
pub(crate) fn away() -> Refusal {
    Refusal::new(RefusalKind::Unavailable, "the agent is not connected; retry once it is")
}
