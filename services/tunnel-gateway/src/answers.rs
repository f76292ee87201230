//! What the gateway answers over the bus.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, MAXIMUM_MESSAGE_BYTES, Serving};
use bytes::Bytes;
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::Action;
use events::requests::gateway::{DiffSource, ListTunnels, SourceDiff, TunnelView};
use events::subject::Subject;
use events::{AgentId, Refusal, RefusalKind, Request};
use http::{Method, StatusCode};
use tunnel::gateway::AskError;
use tunnel::wire::path;

use crate::gateway::Gateway;
use crate::session::Session;

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

/// Answers for one agent, while one of its tunnels is open here.
pub(crate) async fn serve_agent(gateway: &Arc<Gateway>, session: &Session) -> Result<Serving, BusError> {
    let subject = Subject::agent_request(DiffSource::NAME, session.agent);
    let answering = Arc::clone(gateway);
    bus::answer_under::<DiffSource, _>(&*gateway.bus, &subject, move |context, request| {
        let gateway = Arc::clone(&answering);
        Box::pin(async move { diff(&gateway, &context, &request).await })
    })
    .await
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
    let to = format!("{}{source}/diff", path::SOURCES);
    let asked = session.connection.ask(Method::GET, &to, Bytes::new(), MAXIMUM_DIFF_BYTES, limit).await;
    let asked = asked.map_err(|error| match error {
        AskError::Closed { .. } => away(),
        AskError::TimedOut { .. } => {
            Refusal::new(RefusalKind::Unavailable, "the agent did not answer in time; retry")
        }
        AskError::Answer(_) => {
            Refusal::new(RefusalKind::Unavailable, "the agent's answer broke off or is over 1 MiB")
        }
        AskError::Unsendable { .. } => Refusal::new(RefusalKind::Internal, "the request cannot be sent"),
    })?;
    match asked.status {
        StatusCode::OK => events::decode(&asked.body).map_err(|_| {
            Refusal::new(RefusalKind::Unavailable, "the agent's answer is malformed: upgrade the older side")
        }),
        StatusCode::NOT_FOUND => Err(Refusal::not_found("source")),
        status => Err(events::decode(&asked.body).unwrap_or_else(|_| {
            Refusal::new(RefusalKind::Unavailable, format!("the agent cannot compare now ({status}); retry"))
        })),
    }
}

fn away() -> Refusal {
    Refusal::new(RefusalKind::Unavailable, "the agent is not connected; retry once it is")
}
