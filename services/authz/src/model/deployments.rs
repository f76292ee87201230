//! Whose deployments go where.

use events::directory::Scope;
use events::pass::PassGrant;
use events::requests::authz::{Action, AssociationDecision, DecideAssociation, FindProject, FoundProject};
use events::{Actor, AgentId, Refusal};

use super::{Asker, Directory};

impl Directory {
    /// The project that an actor means, whether or not they may see it.
    ///
    /// # Errors
    /// When there is none.
    pub fn meant_project(&self, asker: &Asker, request: &FindProject) -> Result<FoundProject, Refusal> {
        let job = match request.actor {
            Actor::Job(job) => self.job(job),
            _ => None,
        };
        let for_environment = job.and_then(|job| job.facts.environment.clone()).map(|it| it.name);
        let project = match &request.project {
            Some(text) => self.find_project(asker.organization, text).map(|(id, _)| id).ok_or_else(|| {
                let refusal = Refusal::not_found(format!("project {text:?}"));
                Refusal { field: Some("project".to_owned()), ..refusal }
            })?,
            None => job.map(|job| job.project).ok_or_else(|| {
                Refusal::invalid("project", "is required, because the caller is not a job; give group/name")
            })?,
        };
        let actor = Asker { actor: request.actor.clone(), organization: asker.organization };
        let visible = self.may(&actor, Action::ReadProject, Scope::Project(project));
        Ok(FoundProject { project, visible, for_environment })
    }

    /// Whether an actor's deployments may be associated with an agent and a namespace.
    #[must_use]
    pub fn association(&self, asker: &Asker, request: &DecideAssociation) -> AssociationDecision {
        let actor = Asker { actor: request.actor.clone(), organization: asker.organization };
        let agent = match self.agent_known_to(&actor, &request.agent) {
            Ok(agent) => agent,
            Err(missing) => {
                return AssociationDecision { agent: None, allowed: false, reason: missing.message };
            }
        };
        match self.grant_for_namespace(agent, &request.actor, &request.namespace) {
            Ok(reason) => AssociationDecision { agent: Some(agent), allowed: true, reason },
            Err(reason) => AssociationDecision { agent: Some(agent), allowed: false, reason },
        }
    }

    /// The entry that lets an actor use a namespace of an agent's cluster, or what is missing.
    fn grant_for_namespace(&self, agent: AgentId, actor: &Actor, namespace: &str) -> Result<String, String> {
        let grants = match actor {
            Actor::User(user) => self.use_granted(agent, *user)?.grants,
            Actor::Job(job) => vec![self.granted_to_job(agent, *job)?.grant],
            Actor::Agent(_) | Actor::Service(_) => {
                return Err("only users and jobs are granted the use of clusters".to_owned());
            }
        };
        let reaches = |grant: &&PassGrant| {
            let namespaces = &grant.narrowing.namespaces;
            namespaces.is_empty() || namespaces.iter().any(|name| name == namespace)
        };
        match grants.iter().find(reaches) {
            Some(grant) => Ok(grant.place.clone()),
            None => {
                let places: Vec<&str> = grants.iter().map(|grant| grant.place.as_str()).collect();
                Err(format!("{} does not include namespace {namespace}", places.join("; ")))
            }
        }
    }
}
