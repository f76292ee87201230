//! Groups and projects that go. What hangs on one keeps it, and is named.

use events::directory::{DirectoryEvent, GroupDeleted, ProjectDeleted, Scope, TokenHolder};
use events::requests::authz::Action;
use events::{AgentId, AggregateKind, GroupId, ProjectId, Refusal, RefusalKind, Timestamp};

use super::{Asker, Decided, Directory, aggregate};

/// So many things are named; of more their number is.
const NAMED: usize = 10;

impl Directory {
    /// The group that the asker means and may see, by name or id.
    ///
    /// # Errors
    /// Not found, also when it is not theirs to see.
    pub fn group_to_delete(&self, asker: &Asker, text: &str) -> Result<GroupId, Refusal> {
        let missing =
            || Refusal { field: Some("group".to_owned()), ..Refusal::not_found(format!("group {text:?}")) };
        let named = || self.group_named(asker.organization, text);
        let id = text.parse().ok().or_else(named).ok_or_else(missing)?;
        let known = self.groups.get(&id).is_some_and(|group| group.organization == asker.organization);
        if !known {
            return Err(missing());
        }
        self.authorize(asker, Action::DeleteGroup, Scope::Group(id), format!("group {text:?}"))?;
        Ok(id)
    }

    /// Deletes a group.
    ///
    /// # Errors
    /// Not found, not allowed, or projects are in it: these are named.
    pub fn delete_group(&self, asker: &Asker, id: GroupId) -> Result<Decided<()>, Refusal> {
        if self.gone.contains(&id.0) {
            return Ok(Decided::already(()));
        }
        self.authorize(asker, Action::DeleteGroup, Scope::Group(id), "group")?;
        let inside = self.projects.values().filter(|project| project.group == id);
        keep_for("the group", inside.map(|project| format!("project {}", self.path(project))).collect())?;
        let event = DirectoryEvent::GroupDeleted(GroupDeleted { group: id });
        self.draft(asker.organization, aggregate(AggregateKind::Group, id), vec![event], ())
    }

    /// The project that the asker means and may delete.
    ///
    /// # Errors
    /// Not found or not allowed.
    pub fn project_to_delete(&self, asker: &Asker, text: &str) -> Result<ProjectId, Refusal> {
        let (id, _) = self.visible_project(asker, text)?;
        self.authorize(asker, Action::DeleteProject, Scope::Project(id), "project")?;
        Ok(id)
    }

    /// Deletes a project.
    ///
    /// # Errors
    /// Not found, not allowed, or agents are registered in it, or sources read it: these are named as far as the asker may see them.
    pub fn delete_project(&self, asker: &Asker, id: ProjectId) -> Result<Decided<()>, Refusal> {
        if self.gone.contains(&id.0) {
            return Ok(Decided::already(()));
        }
        self.authorize(asker, Action::DeleteProject, Scope::Project(id), "project")?;
        let sees = |agent: AgentId| self.may(asker, Action::ReadAgent, Scope::Agent(agent));
        let mut hanging = Vec::new();
        for (agent, found) in self.agents.iter().filter(|(_, found)| found.project == id && !found.deleted) {
            hanging.push(if sees(*agent) { format!("agent {}", found.name) } else { unseen() });
        }
        for (agent, reads) in &self.readers {
            let Some(found) = self.agents.get(agent).filter(|found| !found.deleted) else { continue };
            for (_, source) in reads.iter().filter(|(project, _)| *project == id) {
                hanging.push(if sees(*agent) {
                    let path = self.project_path_of(found).unwrap_or_default();
                    format!("source {source} of agent {path}:{}", found.name)
                } else {
                    unseen()
                });
            }
        }
        hanging.dedup();
        keep_for("the project", hanging)?;
        let event = DirectoryEvent::ProjectDeleted(ProjectDeleted { project: id });
        self.draft(asker.organization, aggregate(AggregateKind::Project, id), vec![event], ())
    }

    pub(super) fn apply_group_deleted(&mut self, id: GroupId) {
        self.groups.remove(&id);
        self.gone.insert(id.0);
        self.withdraw_all(Scope::Group(id));
    }

    /// What hangs on it all the same, as it came at the same moment, goes with it.
    pub(super) fn apply_project_deleted(&mut self, id: ProjectId, at: Timestamp) {
        self.projects.remove(&id);
        self.gone.insert(id.0);
        self.withdraw_all(Scope::Project(id));
        for credential in self.credentials.values_mut() {
            credential.projects.remove(&id);
        }
        let agents: Vec<AgentId> =
            self.agents.iter().filter(|(_, agent)| agent.project == id).map(|(id, _)| *id).collect();
        for agent in agents {
            if let Some(agent) = self.agents.get_mut(&agent) {
                agent.deleted = true;
            }
            self.forget_grants(agent);
            self.kill_tokens(TokenHolder::Agent(agent), at);
        }
        let jobs: Vec<_> = self.tokens_of_jobs(id).collect();
        for job in jobs {
            self.kill_tokens(TokenHolder::Job(job), at);
        }
    }

    /// Whether nothing can be held by this holder any more.
    pub(super) fn is_gone(&self, holder: TokenHolder) -> bool {
        match holder {
            TokenHolder::Agent(agent) => self.agents.get(&agent).is_some_and(|agent| agent.deleted),
            TokenHolder::User(user) => self.is_disabled(user),
            TokenHolder::Job(job) => {
                self.jobs.get(&job).is_some_and(|job| self.gone.contains(&job.project.0))
            }
        }
    }

    fn withdraw_all(&mut self, scope: Scope) {
        for user in self.users.values_mut() {
            user.roles.retain(|(_, at)| *at != scope);
        }
    }
}

fn unseen() -> String {
    "a source of an agent that you may not see".to_owned()
}

/// Refuses while something hangs on it.
fn keep_for(what: &str, hanging: Vec<String>) -> Result<(), Refusal> {
    if hanging.is_empty() {
        return Ok(());
    }
    let more = hanging.len().saturating_sub(NAMED);
    let mut named = hanging.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        named.push_str(&format!(" and {more} more"));
    }
    let message =
        format!("{what} cannot be deleted, because these depend on it: {named}; delete or change them first");
    Err(Refusal::new(RefusalKind::Conflict, message))
}

#[cfg(test)]
mod tests;
