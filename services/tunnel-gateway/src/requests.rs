//! Requests over the bus that the gateway answers.

use std::sync::Arc;

use bus::{BusError, PageBuilder, Serving};
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::Action;
use events::requests::diff::DiffSource;
use events::requests::gateway::{ForwardedRequest, ListTunnels, TunnelView};
use events::requests::page::{Page, Paged as _};
use events::requests::rights::ReviewRights;
use events::subject::Subject;
use events::{AgentId, Refusal, Request};

use crate::cluster_api;
use crate::delivery::diff;
use crate::gateway::{Gateway, SERVICE};
use crate::rights;
use crate::tunnels::session::Session;

/// Answers for all agents.
pub(crate) async fn serve(gateway: &Arc<Gateway>) -> Result<Serving, BusError> {
    let answering = Arc::clone(gateway);
    bus::answer::<ListTunnels, _>(&*gateway.bus, move |context, request| {
        let gateway = Arc::clone(&answering);
        Box::pin(async move { list(&gateway, &context, &request).await })
    })
    .await
}

/// Answers for one agent, and takes what other gateways have for it, while one of its tunnels is open here.
pub(crate) async fn serve_agent(gateway: &Arc<Gateway>, session: &Arc<Session>) -> Result<Serving, BusError> {
    let agent = session.agent;
    let comparing = Arc::clone(gateway);
    let compares = bus::handler_of::<DiffSource, _>(move |context, request| {
        let gateway = Arc::clone(&comparing);
        Box::pin(async move { diff::answer(&gateway, &context, &request).await })
    });
    let reviewing = Arc::clone(gateway);
    let reviews = bus::handler_of::<ReviewRights, _>(move |context, request| {
        let gateway = Arc::clone(&reviewing);
        Box::pin(async move { rights::answer(&gateway, agent, &context, &request).await })
    });
    let answers = vec![
        (Subject::agent_request(DiffSource::NAME, agent), compares),
        (Subject::agent_request(ReviewRights::NAME, agent), reviews),
    ];
    let opened = Subject::agent_request(ForwardedRequest::NAME, agent);
    let accepts = cluster_api::accept_hops(gateway, session);
    gateway.bus.serve_together(SERVICE, answers, (&opened, accepts)).await
}

async fn list(
    gateway: &Gateway,
    context: &RequestContext,
    request: &ListTunnels,
) -> Result<Page<TunnelView>, Refusal> {
    let (agent, after) = (request.agent, request.after()?);
    if let Some(agent) = agent {
        gateway.permit(context, Action::ReadAgent, Scope::Agent(agent), "agent").await?;
    }
    let mut page = PageBuilder::of(request);
    let mut judged: Option<(AgentId, bool)> = None;
    for session in gateway.registry.list(agent) {
        let key = (session.agent, session.instance);
        if session.organization != context.organization || after.is_some_and(|after| key <= after) {
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
        let view = TunnelView {
            agent: session.agent,
            instance: session.instance,
            since: session.since,
            version: session.version.clone(),
            applier: session.is_applier(),
        };
        if seen && !page.push(key, view)? {
            break;
        }
    }
    page.finish()
}
