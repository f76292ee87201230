//! Agents.

use events::directory::{AgentDeleted, AgentRegistered, DirectoryEvent, Scope, TokenIssued};
use events::requests::authz::Action;
use events::{AgentId, AggregateKind, CommitId, OrganizationId, ProjectId, Refusal, RefusalKind};

use super::claims::{NameId, Named};
use super::{Asker, Decided, Directory, aggregate};

/// Objects of those before them were handed over long ago.
const MOST_FORMER: usize = 32;

impl Directory {
    /// The project in which the asker may register agents.
    ///
    /// # Errors
    /// Not found or not allowed.
    pub fn project_for_agent(&self, asker: &Asker, project: &str) -> Result<ProjectId, Refusal> {
        let (id, _) = self.visible_project(asker, project)?;
        self.authorize(asker, Action::RegisterAgent, Scope::Project(id), "project")?;
        Ok(id)
    }

    /// Deleted agents that had a name in a project, the last one first.
    #[must_use]
    pub fn former_agents(
        &self,
        organization: OrganizationId,
        project: ProjectId,
        name: &str,
    ) -> Vec<AgentId> {
        let name_of = |name: &str| NameId::of(Named::Agent, organization, project.0, name);
        let wanted = name_of(name);
        let had_it = self.agents.iter().filter(|(_, agent)| {
            agent.deleted
                && (agent.organization, agent.project) == (organization, project)
                && name_of(&agent.name) == wanted
        });
        let mut former: Vec<_> = had_it.map(|(id, agent)| (agent.registered_at, *id)).collect();
        former.sort_by(|left, right| right.cmp(left));
        former.into_iter().take(MOST_FORMER).map(|(_, id)| id).collect()
    }

    /// Registers an agent under its claimed id, with its first token, in one commit.
    ///
    /// # Errors
    /// Not allowed, another has the name, or the request is a repetition: a token is shown once.
    pub fn register_agent(
        &self,
        asker: &Asker,
        agent: AgentRegistered,
        token: TokenIssued,
        key: CommitId,
    ) -> Result<Decided<()>, Refusal> {
        self.authorize(asker, Action::RegisterAgent, Scope::Project(agent.project), "project")?;
        if let Some(existing) = self.agents.get(&agent.agent) {
            let message = if existing.created_by == key {
                "this request registered the agent already, and its token is shown once; issue another token"
            } else {
                "this name was taken at the same moment; choose another"
            };
            return Err(Refusal {
                field: Some("name".to_owned()),
                ..Refusal::new(RefusalKind::Conflict, message)
            });
        }
        let aggregate = aggregate(AggregateKind::Agent, agent.agent);
        let events = vec![DirectoryEvent::AgentRegistered(agent), DirectoryEvent::TokenIssued(token)];
        self.draft(asker.organization, aggregate, events, ())
    }

    /// Deletes an agent; its tokens die with it.
    ///
    /// # Errors
    /// Not found or not allowed.
    pub fn delete_agent(&self, asker: &Asker, text: &str) -> Result<Decided<AgentId>, Refusal> {
        let (agent, _) = self.visible_agent(asker, text)?;
        self.authorize(asker, Action::DeleteAgent, Scope::Agent(agent), "agent")?;
        let events = vec![DirectoryEvent::AgentDeleted(AgentDeleted { agent })];
        self.draft(asker.organization, aggregate(AggregateKind::Agent, agent), events, agent)
    }
}
