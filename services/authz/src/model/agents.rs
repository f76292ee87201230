//! Agents.

use events::directory::{AgentDeleted, AgentRegistered, DirectoryEvent, Scope, TokenIssued};
use events::requests::authz::Action;
use events::{AgentId, AggregateKind, CommitId, GroupId, OrganizationId, ProjectId, Refusal, RefusalKind};

use super::claims::{NameId, Named};
use super::{Asker, Decided, Directory, aggregate};

/// Objects of those before them were handed over long ago.
const MOST_FORMER: usize = 32;

impl Directory {
    /// The configuration project of an agent, and its group where one is to own it, if the asker may register agents there.
    ///
    /// # Errors
    /// Not found or not allowed, or a project of another group.
    pub fn place_for_agent(
        &self,
        asker: &Asker,
        project: &str,
        group: Option<&str>,
    ) -> Result<(ProjectId, Option<GroupId>), Refusal> {
        let Some(group) = group else {
            let (id, _) = self.visible_project(asker, project)?;
            self.authorize(asker, Action::RegisterAgent, Scope::Project(id), "project")?;
            return Ok((id, None));
        };
        let group = self.group_for_agent(asker, group)?;
        let (id, found) = self.visible_project(asker, project)?;
        if found.group != group {
            return Err(Refusal::invalid("project", "must be one of the group that is to own the agent"));
        }
        Ok((id, Some(group)))
    }

    fn group_for_agent(&self, asker: &Asker, text: &str) -> Result<GroupId, Refusal> {
        let missing =
            || Refusal { field: Some("group".to_owned()), ..Refusal::not_found(format!("group {text:?}")) };
        let named = || self.group_named(asker.organization, text);
        let id = text.parse().ok().or_else(named).ok_or_else(missing)?;
        let known = self.groups.get(&id).is_some_and(|group| group.organization == asker.organization);
        if !known {
            return Err(missing());
        }
        self.authorize(asker, Action::RegisterAgent, Scope::Group(id), format!("group {text:?}"))?;
        Ok(id)
    }

    /// Deleted agents that had a name in a configuration project, the last one first. What a group owned is not handed down to one of
    /// its projects, whose people had no say in it.
    #[must_use]
    pub fn former_agents(
        &self,
        organization: OrganizationId,
        (project, group): (ProjectId, Option<GroupId>),
        name: &str,
    ) -> Vec<AgentId> {
        let name_of = |name: &str| NameId::of(Named::Agent, organization, project.0, name);
        let wanted = name_of(name);
        let had_it = self.agents.iter().filter(|(_, agent)| {
            agent.deleted
                && (agent.organization, agent.project) == (organization, project)
                && (agent.group == group || agent.group.is_none())
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
        match agent.group {
            None => {
                self.authorize(asker, Action::RegisterAgent, Scope::Project(agent.project), "project")?;
            }
            Some(group) => {
                self.authorize(asker, Action::RegisterAgent, Scope::Group(group), "group")?;
                // It may have been deleted a moment before.
                self.projects
                    .get(&agent.project)
                    .filter(|project| project.group == group)
                    .ok_or_else(|| Refusal::not_found("project"))?;
            }
        }
        if let Some(existing) = self.agents.get(&agent.agent) {
            let message = if existing.created_by == key {
                "this request has already registered the agent, and its token is shown only once; issue another token"
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

#[cfg(test)]
mod tests;
