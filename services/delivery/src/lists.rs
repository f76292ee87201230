//! Lists of sources, their objects, and how agents stand: page by page, of what the caller may see.

use std::collections::VecDeque;
use std::sync::Arc;

use bus::{PageBuilder, ask, page};
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::{Action, ListAllowedAgents};
use events::requests::delivery::{ListSources, ListSyncs, SourceSync, SourceView};
use events::requests::page::{Page, Paged as _};
use events::requests::status::{AgentStatus, ListAgentStatuses, ListObjects, ObjectStatus};
use events::{AgentId, Refusal};

use crate::driver::Driver;
use crate::handlers::{decide_on, own_context};
use crate::model::{agent_status, objects_behind};

impl Driver {
    pub(crate) async fn list_sources(
        self: Arc<Self>,
        context: RequestContext,
        request: ListSources,
    ) -> Result<Page<SourceView>, Refusal> {
        let after = request.after()?;
        let from = after.as_ref().map(|(agent, _)| *agent);
        let mut agents = self.allowed_agents(&context, Action::ReadSource, request.agent, from).await?;
        let around = self.around();
        let mut page = PageBuilder::of(&request);
        while let Some(agent) = agents.next().await? {
            let behind = after.as_ref().filter(|(begun, _)| *begun == agent).map(|(_, name)| name);
            let sources = self.fold.read(|state| state.configured_sources(context.organization, agent));
            for (name, source) in
                sources.into_iter().filter(|(name, _)| behind.is_none_or(|last| name > last))
            {
                let Some(mut view) = self.view_with(source, &around) else { continue };
                // A page would hold few sources with them.
                view.status.not_well.clear();
                view.kept_objects.clear();
                if !page.push((agent, name), view)? {
                    return page.finish();
                }
            }
        }
        page.finish()
    }

    pub(crate) async fn list_agent_statuses(
        self: Arc<Self>,
        context: RequestContext,
        request: ListAgentStatuses,
    ) -> Result<Page<AgentStatus>, Refusal> {
        let after = request.after()?;
        let mut agents = self.allowed_agents(&context, Action::ReadAgent, request.agent, after).await?;
        let around = self.around();
        let mut page = PageBuilder::of(&request);
        while let Some(agent) = agents.next().await? {
            let status = self.fold.read(|state| agent_status(state, agent, &around));
            let Some(status) = status.filter(|_| after.is_none_or(|last| agent > last)) else { continue };
            if !page.push(agent, status)? {
                break;
            }
        }
        page.finish()
    }

    pub(crate) async fn list_syncs(
        self: Arc<Self>,
        context: RequestContext,
        request: ListSyncs,
    ) -> Result<Page<SourceSync>, Refusal> {
        let after = request.after()?;
        self.allowed(&context, request.source, Action::ReadSource).await?;
        let most = request.limit().items().saturating_add(1);
        let syncs = self.fold.read(|state| state.syncs_behind(request.source, after, most));
        let syncs = syncs.ok_or_else(|| Refusal::not_found(format!("source {}", request.source)))?;
        page(&request, syncs.into_iter().map(|sync| ((sync.decided_at, sync.id), sync)))
    }

    pub(crate) async fn list_objects(
        self: Arc<Self>,
        context: RequestContext,
        request: ListObjects,
    ) -> Result<Page<ObjectStatus>, Refusal> {
        let after = request.after()?;
        self.allowed(&context, request.source, Action::ReadSource).await?;
        let most = request.limit().items().saturating_add(1);
        let objects = self.fold.read(|state| objects_behind(state, request.source, after.as_ref(), most));
        let objects = objects.ok_or_else(|| Refusal::not_found(format!("source {}", request.source)))?;
        page(&request, objects)
    }

    /// The agents on which the caller may do something, from an id on: one, or all.
    async fn allowed_agents(
        &self,
        context: &RequestContext,
        action: Action,
        agent: Option<AgentId>,
        from: Option<AgentId>,
    ) -> Result<AllowedAgents<'_>, Refusal> {
        let (actor, organization) = (context.actor.clone(), context.organization);
        let wanted = ListAllowedAgents { actor, organization, action, from };
        let mut agents = AllowedAgents {
            driver: self,
            context: own_context(context),
            wanted,
            known: VecDeque::new(),
            are_all_known: agent.is_some(),
        };
        if let Some(agent) = agent.filter(|agent| from.is_none_or(|from| *agent >= from))
            && decide_on(&*self.deps.bus, context, Scope::Agent(agent), action).await?.allowed
        {
            agents.known.push_back(agent);
        }
        Ok(agents)
    }
}

/// Agents in the order of their ids, asked for as they are needed.
struct AllowedAgents<'d> {
    driver: &'d Driver,
    context: RequestContext,
    wanted: ListAllowedAgents,
    known: VecDeque<AgentId>,
    are_all_known: bool,
}

impl AllowedAgents<'_> {
    async fn next(&mut self) -> Result<Option<AgentId>, Refusal> {
        if self.known.is_empty() && !self.are_all_known {
            self.known = ask(&*self.driver.deps.bus, &self.context, &self.wanted).await?.into();
            let following = self.known.back().and_then(|last| last.0.as_u128().checked_add(1));
            self.wanted.from = following.map(|id| AgentId(uuid::Uuid::from_u128(id)));
            self.are_all_known = following.is_none() || self.known.len() < ListAllowedAgents::MOST;
        }
        Ok(self.known.pop_front())
    }
}
