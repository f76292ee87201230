//! May an agent's project read a project's repository?
//!
//! Both must be of one organization, the agent must have a live token, and one of these must hold:
//! - it is the agent's own project;
//! - both projects are in the same group;
//! - the repository is read with a credential that an owner granted to the agent's project too.
//!
//! Who wrote an agent's configuration cannot be known, only in which repository it lies; so the right to read is the
//! project's. A credential is used only where it was granted to the project whose repository it is, and only for its host.

use std::collections::BTreeMap;

use events::directory::TokenHolder;
use events::requests::authz::{DecideFetch, FetchDecision};
use events::{AgentId, OrganizationId, ProjectId, Timestamp};

use super::projects::fits;
use super::{Agent, Credential, Directory, Project};

impl Directory {
    /// The answer, at `now`.
    #[must_use]
    pub fn decide_fetch(
        &self,
        organization: OrganizationId,
        query: &DecideFetch,
        now: Timestamp,
    ) -> FetchDecision {
        let mut decision = FetchDecision { refused: BTreeMap::new(), settings: None, credential_host: None };
        for agent in &query.agents {
            match self.fetch(organization, *agent, query.project, now) {
                Ok((project, credential)) => {
                    decision.settings.get_or_insert_with(|| project.settings.clone());
                    decision.credential_host = credential.map(|credential| credential.host.clone());
                }
                Err(reason) => {
                    decision.refused.insert(*agent, reason);
                }
            }
        }
        decision
    }

    fn fetch(
        &self,
        organization: OrganizationId,
        agent: AgentId,
        id: ProjectId,
        now: Timestamp,
    ) -> Result<(&Project, Option<&Credential>), String> {
        let agent = self.live_agent(organization, agent, now)?;
        let missing = || format!("project {id} not found, or not readable for this agent's project");
        let project = self.projects.get(&id).filter(|found| found.organization == organization);
        let project = project.ok_or_else(missing)?;
        let credential = self.granted(id, project)?;
        let own = self.projects.get(&agent.project).ok_or_else(missing)?;
        let shared = credential.is_some_and(|credential| credential.projects.contains(&agent.project));
        if agent.project == id || own.group == project.group || shared {
            return Ok((project, credential));
        }
        Err(missing()
            + ": put both projects into one group, or grant the credential to the agent's project too")
    }

    fn live_agent(
        &self,
        organization: OrganizationId,
        id: AgentId,
        now: Timestamp,
    ) -> Result<&Agent, String> {
        let agent = self.agents.get(&id).filter(|agent| agent.organization == organization && !agent.deleted);
        let agent = agent.ok_or_else(|| format!("agent {id} not found"))?;
        if !self.has_live_token(TokenHolder::Agent(id), now) {
            return Err(format!("agent {} has no valid token; issue one", agent.name));
        }
        Ok(agent)
    }

    fn granted(&self, id: ProjectId, project: &Project) -> Result<Option<&Credential>, String> {
        let Some(credential) = project.settings.credential else { return Ok(None) };
        let credential =
            self.credentials.get(&credential).filter(|found| found.organization == project.organization);
        let credential = credential.ok_or("the project's credential is gone; set another")?;
        if credential.revoked {
            return Err(format!("credential {} was revoked; set another on the project", credential.name));
        }
        if !credential.projects.contains(&id) {
            return Err(format!(
                "credential {} is not granted to the project; ask an owner",
                credential.name
            ));
        }
        fits(&credential.host, &project.settings.repository)
            .map_err(|refusal| format!("credential {} {}", credential.name, refusal.message))?;
        Ok(Some(credential))
    }
}
