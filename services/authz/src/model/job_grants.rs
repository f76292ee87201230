//! Which clusters' APIs a job may use: the most specific entry of an agent's `ci_access` decides, and no other is looked at.

use events::audit::AuditMode;
use events::configuration::file_of;
use events::directory::JobFacts;
use events::grants::{CiAccessAs, CiGrant};
use events::pass::{AccessAs, Impersonated, PassGrant};
use events::recording::RecordSessions;
use events::{Actor, AgentId, JobId, OrganizationId, Refusal};
use objects::kinds::glob;

use super::jobs::Job;
use super::views::behind;
use super::{Agent, Asker, Directory};

/// The group of all jobs that Kasbah lets in as themselves.
const JOBS: &str = "kasbah:ci_job";
/// Namespace of requests that name none, where no entry says another.
const DEFAULT_NAMESPACE: &str = "default";

/// What lets a job use the API of an agent's cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobGranted {
    /// In which organization.
    pub organization: OrganizationId,
    /// As whom the cluster sees it.
    pub access_as: CiAccessAs,
    /// What is let through.
    pub grant: PassGrant,
    /// Namespace of requests that name none.
    pub default_namespace: String,
    /// The entry names environments, and the job's is one of them.
    pub is_for_environment: bool,
    /// What becomes of requests that cannot be recorded.
    pub audit: AuditMode,
    /// What of sessions is kept.
    pub record_sessions: RecordSessions,
}

impl Directory {
    /// What lets a job use the API of an agent's cluster.
    ///
    /// # Errors
    /// What is missing, when nothing does.
    pub fn granted_to_job(&self, id: AgentId, job: JobId) -> Result<JobGranted, String> {
        let agent = self.agents.get(&id).filter(|agent| !agent.deleted);
        let job = self.jobs.get(&job).ok_or_else(|| "the job is no longer known".to_owned())?;
        let agent = agent.filter(|agent| agent.organization == job.organization);
        let agent = agent.ok_or_else(|| "there is no such agent".to_owned())?;
        let file = file_of(&agent.name);
        let (audit, record_sessions) =
            self.grants.get(&id).map(|grants| (grants.audit, grants.record_sessions)).unwrap_or_default();
        match self.entry_for_job(id, agent, job) {
            Some((list, grant)) => {
                let place = format!("{file}:{} ci_access.{list} {}", grant.line, grant.path);
                fits(grant, &job.facts).map_err(|reason| format!("{place} {reason}"))?;
                Ok(JobGranted {
                    organization: agent.organization,
                    access_as: grant.access_as.clone(),
                    grant: PassGrant { narrowing: grant.narrowing.clone(), groups: Vec::new(), place },
                    default_namespace: grant.default_namespace.clone(),
                    is_for_environment: !grant.environments.is_empty(),
                    audit,
                    record_sessions,
                })
            }
            None if job.project == agent.project && self.implicit_rights.contains(&id) => Ok(JobGranted {
                organization: agent.organization,
                access_as: CiAccessAs::Agent,
                grant: PassGrant {
                    narrowing: events::pass::Narrowing::default(),
                    groups: Vec::new(),
                    place: format!(
                        "a job of the agent's own project, as {file} came into force when those needed no entry"
                    ),
                },
                default_namespace: DEFAULT_NAMESPACE.to_owned(),
                is_for_environment: false,
                audit,
                record_sessions,
            }),
            None => Err(format!(
                "{file} names neither the job's project nor its group in ci_access; add an entry to it"
            )),
        }
    }

    /// The agents behind an id whose clusters' APIs a job may use, in the order of their ids.
    pub fn agents_of_job(
        &self,
        job: JobId,
        after: Option<AgentId>,
    ) -> impl Iterator<Item = (AgentId, &Agent, JobGranted)> {
        behind(&self.agents, after)
            .filter_map(move |(id, agent)| Some((id, agent, self.granted_to_job(id, job).ok()?)))
    }

    /// The agent that an actor means and may know of: one that they see, or a job may use the cluster's API of.
    ///
    /// # Errors
    /// When there is none.
    pub fn agent_known_to(&self, asker: &Asker, text: &str) -> Result<AgentId, Refusal> {
        match self.visible_agent(asker, text) {
            Ok((agent, _)) => Ok(agent),
            Err(missing) => self.agent_granted_to(asker, text).ok_or(missing),
        }
    }

    /// The agent that a job means, which it may know of if it may use its cluster's API.
    fn agent_granted_to(&self, asker: &Asker, text: &str) -> Option<AgentId> {
        let Actor::Job(job) = asker.actor else { return None };
        let is_meant = |id: AgentId, agent: &Agent| {
            let full = self.project_path_of(agent).map(|path| format!("{path}:{}", agent.name));
            text == agent.name || full.as_deref() == Some(text) || text == id.to_string()
        };
        let mut meant = self.agents_of_job(job, None).filter(|(id, agent, _)| is_meant(*id, agent));
        let (id, ..) = meant.next()?;
        meant.next().is_none().then_some(id)
    }

    /// `group/name` of an agent's project.
    #[must_use]
    pub fn project_path_of(&self, agent: &Agent) -> Option<String> {
        self.projects.get(&agent.project).map(|project| self.path(project))
    }

    /// An entry of the job's project comes before one of its group. What the agent's own project has without one, where it has
    /// something, stands between the two.
    fn entry_for_job(&self, id: AgentId, agent: &Agent, job: &Job) -> Option<(&'static str, &CiGrant)> {
        let grants = self.grants.get(&id)?;
        let of_project = grants.ci_projects.iter().find(|grant| {
            self.find_project(agent.organization, &grant.path).is_some_and(|(id, _)| id == job.project)
        });
        if let Some(grant) = of_project {
            return Some(("projects", grant));
        }
        if job.project == agent.project && self.implicit_rights.contains(&id) {
            return None;
        }
        let group = self.projects.get(&job.project)?.group;
        let of_group = grants
            .ci_groups
            .iter()
            .find(|grant| self.group_named(agent.organization, &grant.path) == Some(group));
        of_group.map(|grant| ("groups", grant))
    }

    /// As whom the cluster sees a job.
    #[must_use]
    pub fn job_as(&self, id: AgentId, job: JobId, access_as: CiAccessAs) -> AccessAs {
        match access_as {
            CiAccessAs::Agent => AccessAs::Agent,
            CiAccessAs::Impersonate(whom) => AccessAs::Impersonated(whom),
            CiAccessAs::CiJob => AccessAs::Impersonated(self.job_itself(id, job)),
        }
    }

    fn job_itself(&self, agent: AgentId, id: JobId) -> Impersonated {
        let mut whom = Impersonated {
            username: format!("{JOBS}:{id}"),
            groups: vec![JOBS.to_owned()],
            uid: id.to_string(),
            ..Impersonated::default()
        };
        let Some(job) = self.jobs.get(&id) else { return whom };
        let project = job.project;
        let group = self.projects.get(&project).map(|project| project.group);
        whom.groups.extend(group.map(|group| format!("kasbah:group:{group}")));
        whom.groups.push(format!("kasbah:project:{project}"));
        let mut extra = vec![
            (Impersonated::AGENT, agent.to_string()),
            (Impersonated::PROJECT, project.to_string()),
            (Impersonated::CI_JOB, job.facts.name.clone()),
            (Impersonated::CI_PIPELINE, job.facts.pipeline.clone()),
        ];
        if let Some(environment) = &job.facts.environment {
            let (name, tier) = (&environment.name, &environment.tier);
            whom.groups.push(format!("kasbah:project_env:{project}:{name}"));
            if !tier.is_empty() {
                whom.groups.extend(group.map(|group| format!("kasbah:group_env_tier:{group}:{tier}")));
                whom.groups.push(format!("kasbah:project_env_tier:{project}:{tier}"));
            }
            extra.extend([
                (Impersonated::ENVIRONMENT, name.clone()),
                (Impersonated::ENVIRONMENT_TIER, tier.clone()),
            ]);
        }
        let given = extra.into_iter().filter(|(_, text)| !text.is_empty());
        whom.extra = given.map(|(key, text)| (key.to_owned(), vec![text])).collect();
        whom
    }
}

/// Whether an entry is meant for such a job.
fn fits(grant: &CiGrant, facts: &JobFacts) -> Result<(), String> {
    if grant.protected_branches_only && !facts.is_protected {
        return Err("permits only jobs of protected branches and tags, and this job has neither".to_owned());
    }
    if grant.environments.is_empty() {
        return Ok(());
    }
    let wanted = grant.environments.join(", ");
    match &facts.environment {
        None => Err(format!("permits only jobs with an environment of {wanted}, and this job has none")),
        Some(environment) if grant.environments.iter().any(|name| glob(name, &environment.name)) => Ok(()),
        Some(environment) => Err(format!(
            "permits only jobs with an environment of {wanted}, and this job has {}",
            environment.name
        )),
    }
}

#[cfg(test)]
mod tests;
