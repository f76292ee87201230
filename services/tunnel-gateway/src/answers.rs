//! What the gateway answers over the bus.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, MAXIMUM_MESSAGE_BYTES, Serving};
use bytes::Bytes;
use events::desired::DesiredSource;
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::Action;
use events::requests::delivery::ShowNext;
use events::requests::gateway::{DiffSource, ForwardedRequest, ListTunnels, SourceDiff, TunnelView};
use events::subject::Subject;
use events::{Actor, AgentId, Refusal, RefusalKind, Request, SourceId};
use http::{Method, StatusCode};
use tunnel::gateway::AskError;
use tunnel::wire::path;

use crate::cluster_api;
use crate::gateway::{ASK_TIME, Gateway, SERVICE};
use crate::session::Session;
use crate::supply::{MAXIMUM_REPLY_BYTES, ROUNDS, Supply};

const MAXIMUM_DIFF_BYTES: usize = MAXIMUM_MESSAGE_BYTES - 16 * 1024;

/// Answers for all agents.
pub(crate) async fn serve(gateway: &Arc<Gateway>) -> Result<Serving, BusError> {
    let answering = Arc::clone(gateway);
    bus::answer::<ListTunnels, _>(&*gateway.bus, move |context, request| {
        let gateway = Arc::clone(&answering);
        Box::pin(async move { list(&gateway, &context, request.agent).await })
    })
    .await
}

/// Answers for one agent, and takes what other gateways have for it, while one of its tunnels is open here.
pub(crate) async fn serve_agent(gateway: &Arc<Gateway>, session: &Arc<Session>) -> Result<Serving, BusError> {
    let asked = Subject::agent_request(DiffSource::NAME, session.agent);
    let answering = Arc::clone(gateway);
    let answers = bus::handler_of::<DiffSource, _>(move |context, request| {
        let gateway = Arc::clone(&answering);
        Box::pin(async move { diff(&gateway, &context, &request).await })
    });
    let opened = Subject::agent_request(ForwardedRequest::NAME, session.agent);
    let accepts = cluster_api::accept_hops(gateway, session);
    gateway.bus.serve_both(SERVICE, (&asked, answers), (&opened, accepts)).await
}

async fn list(
    gateway: &Gateway,
    context: &RequestContext,
    agent: Option<AgentId>,
) -> Result<Vec<TunnelView>, Refusal> {
    if let Some(agent) = agent {
        gateway.permit(context, Action::ReadAgent, Scope::Agent(agent), "agent").await?;
    }
    let mut views = Vec::new();
    let mut judged: Option<(AgentId, bool)> = None;
    for session in gateway.registry.list(agent) {
        if session.organization != context.organization {
            continue;
        }
        let seen = match judged {
            Some((judged, seen)) if judged == session.agent => seen,
            _ if agent.is_some() => true,
            _ => {
                gateway.permit(context, Action::ReadAgent, Scope::Agent(session.agent), "agent").await.is_ok()
            }
        };
        judged = Some((session.agent, seen));
        if seen {
            views.push(TunnelView {
                agent: session.agent,
                instance: session.instance,
                since: session.since,
                version: session.version.clone(),
                applier: session.applies(),
            });
        }
    }
    Ok(views)
}

async fn diff(
    gateway: &Gateway,
    context: &RequestContext,
    request: &DiffSource,
) -> Result<SourceDiff, Refusal> {
    let DiffSource { agent, source } = *request;
    gateway.permit(context, Action::DiffSource, Scope::Agent(agent), "source").await?;
    let sessions = gateway.registry.list(Some(agent));
    let session = sessions.iter().find(|session| session.applies()).or(sessions.first());
    let session = session.filter(|session| session.organization == context.organization);
    let Some(session) = session else { return Err(away()) };
    if !gateway.standing.read(|standing| standing.owns(agent, source)) {
        return Err(Refusal::not_found("source"));
    }
    let limit = Duration::from_millis(u64::from(context.deadline_millis));
    let asking = bus::within(RequestContext { actor: Actor::service(SERVICE), ..context.clone() }, ASK_TIME);
    let next = bus::ask(&*gateway.bus, &asking, &ShowNext { source }).await?;
    let planned = gateway.shelf.source(session.organization, next.planned).await;
    let desired = planned.map_err(|error| unreadable(source, &error))?;
    let diff = compare(Supply { gateway, session }, &desired, limit).await?;
    Ok(SourceDiff { pending: next.pending, ..diff })
}

/// Has the agent compare, and sends it what it lacks for that.
async fn compare(supply: Supply<'_>, next: &DesiredSource, limit: Duration) -> Result<SourceDiff, Refusal> {
    let source = next.head.source;
    let to = format!("{}{source}/diff", path::SOURCES);
    let internal = |_| Refusal::new(RefusalKind::Internal, "the request cannot be encoded");
    let body = Bytes::from(events::encode(next).map_err(internal)?);
    let pages = next.pages.iter().flatten().copied().collect();
    for _ in 0..ROUNDS {
        let connection = supply.session.connection.traced(chassis::traces::current_traceparent().as_deref());
        let asked = connection.ask(Method::POST, &to, body.clone(), MAXIMUM_REPLY_BYTES, limit).await;
        let asked = asked.map_err(not_asked)?;
        match asked.status {
            StatusCode::OK if asked.body.len() > MAXIMUM_DIFF_BYTES => {
                let message = "the difference is over 1 MiB: too much to show";
                return Err(Refusal::new(RefusalKind::Unavailable, message));
            }
            StatusCode::OK => {
                let malformed = "the agent's answer is malformed: upgrade the older side";
                return events::decode(&asked.body)
                    .map_err(|_| Refusal::new(RefusalKind::Unavailable, malformed));
            }
            StatusCode::CONFLICT => {
                let sent = supply.send_missing(&pages, &asked.body).await;
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

fn not_asked(error: AskError) -> Refusal {
    let unavailable = |message| Refusal::new(RefusalKind::Unavailable, message);
    match error {
        AskError::Closed { .. } => away(),
        AskError::TimedOut { .. } => unavailable("the agent did not answer in time; retry"),
        AskError::Answer(_) => unavailable("the agent's answer broke off or is over 8 MiB"),
        AskError::Unsendable { .. } => Refusal::new(RefusalKind::Internal, "the request cannot be sent"),
    }
}

fn unreadable(source: SourceId, error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::warn!(%source, error, "bundle cannot be brought to the agent for a comparison");
    Refusal::new(RefusalKind::Unavailable, "the bundle cannot be brought to the agent now; retry")
}

fn away() -> Refusal {
    Refusal::new(RefusalKind::Unavailable, "the agent is not connected; retry once it is")
}
