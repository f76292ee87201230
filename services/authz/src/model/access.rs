//! Who may do what where: roles on scopes, inherited downwards, deny by default.

use std::collections::BTreeSet;

use events::directory::{Role, Scope};
use events::requests::authz::{Action, Decide, Decision};
use events::{Actor, AgentId, OrganizationId, Refusal, RefusalKind, UserId};

use super::{Asker, Directory, User};
use crate::table::{Cell, cell, roles_that_may, service_may};

impl Directory {
    /// The answer to "may this actor do this there".
    #[must_use]
    pub fn decide_access(&self, query: &Decide) -> Decision {
        let Some(chain) = self.chain(query.organization, query.scope) else {
            return invisible();
        };
        match &query.actor {
            Actor::Service(name) => service_decision(name, query.action),
            Actor::Agent(agent) => self.agent_decision(*agent, query),
            Actor::User(user) => match self.users.get(user) {
                Some(User { organization, roles, disabled: None, .. }) => {
                    self.decision_by_role(*organization, roles, query, &chain)
                }
                _ => invisible(),
            },
            Actor::Job(job) => match self.jobs.get(job) {
                Some(job) => self.decision_by_role(job.organization, &job.roles(), query, &chain),
                None => invisible(),
            },
        }
    }

    /// Refuses unless the asker may do it: as "not found" when they may not even know of it.
    ///
    /// # Errors
    /// Not found or denied.
    pub fn authorize(
        &self,
        asker: &Asker,
        action: Action,
        scope: Scope,
        what: impl std::fmt::Display,
    ) -> Result<(), Refusal> {
        let (actor, organization) = (asker.actor.clone(), asker.organization);
        let decision = self.decide_access(&Decide { actor, organization, action, scope });
        match decision {
            Decision { visible: false, .. } => Err(Refusal::not_found(what)),
            Decision { allowed: false, reason, .. } => Err(Refusal::new(RefusalKind::Denied, reason)),
            Decision { .. } => Ok(()),
        }
    }

    /// Whether the asker may do it.
    #[must_use]
    pub fn may(&self, asker: &Asker, action: Action, scope: Scope) -> bool {
        let (actor, organization) = (asker.actor.clone(), asker.organization);
        let decision = self.decide_access(&Decide { actor, organization, action, scope });
        decision.allowed && decision.visible
    }

    /// Whether the user runs the server side.
    #[must_use]
    pub fn is_operator(&self, user: UserId) -> bool {
        self.users.get(&user).is_some_and(|user| user.roles.contains(&OPERATOR))
    }

    /// The scope and all above it, lowest first; `None` when it is not one of that organization.
    pub(super) fn chain(&self, organization: OrganizationId, scope: Scope) -> Option<Vec<Scope>> {
        let mut chain = vec![scope];
        let mut at = scope;
        while let Some(parent) = self.parent(at)? {
            chain.push(parent);
            at = parent;
        }
        (at == Scope::Organization(organization)).then_some(chain)
    }

    /// The next scope above; `Some(None)` above an organization, `None` when there is no such scope.
    #[expect(clippy::option_option, reason = "known and topmost differ from unknown")]
    fn parent(&self, scope: Scope) -> Option<Option<Scope>> {
        match scope {
            Scope::Organization(OrganizationId::SYSTEM) => Some(None),
            Scope::Organization(id) => self.organizations.get(&id).map(|_| None),
            Scope::Group(id) => {
                self.groups.get(&id).map(|group| Some(Scope::Organization(group.organization)))
            }
            Scope::Project(id) => self.projects.get(&id).map(|project| Some(Scope::Group(project.group))),
            Scope::Agent(id) => {
                self.agents.get(&id).filter(|agent| !agent.deleted).map(|agent| Some(agent.owner()))
            }
        }
    }

    fn agent_decision(&self, agent: AgentId, query: &Decide) -> Decision {
        let own = query.scope == Scope::Agent(agent);
        let known = self.agents.get(&agent).is_some_and(|record| record.organization == query.organization);
        if !own || !known {
            return invisible();
        }
        if cell(query.action, Role::Agent) == Cell::Self_ {
            Decision { allowed: true, visible: true, reason: "an agent may do this on itself".to_owned() }
        } else {
            denied(query.action)
        }
    }

    fn decision_by_role(
        &self,
        organization: OrganizationId,
        roles: &BTreeSet<(Role, Scope)>,
        query: &Decide,
        chain: &[Scope],
    ) -> Decision {
        let operator = roles.contains(&OPERATOR);
        if operator && cell(query.action, Role::Operator) == Cell::Yes {
            return allowed(Role::Operator, Scope::Organization(OrganizationId::SYSTEM));
        }
        let home = organization == query.organization;
        let in_system = operator && query.organization == OrganizationId::SYSTEM;
        if !(home || in_system) {
            return invisible();
        }
        let by_role = roles.iter().find(|(role, scope)| {
            *role != Role::Operator && chain.contains(scope) && cell(query.action, *role) == Cell::Yes
        });
        match by_role {
            Some((role, scope)) => allowed(*role, *scope),
            None if self.sees(organization, roles, query.scope, chain) => denied(query.action),
            None => invisible(),
        }
    }

    /// Whoever has roles sees their organization, everything that a role of theirs covers, and what lies above it.
    fn sees(
        &self,
        organization: OrganizationId,
        roles: &BTreeSet<(Role, Scope)>,
        scope: Scope,
        chain: &[Scope],
    ) -> bool {
        matches!(scope, Scope::Organization(_))
            || roles.iter().any(|(_, held)| {
                chain.contains(held)
                    || self.chain(organization, *held).is_some_and(|above| above.contains(&scope))
            })
    }
}

/// The role of operators.
pub(crate) const OPERATOR: (Role, Scope) = (Role::Operator, Scope::Organization(OrganizationId::SYSTEM));

fn service_decision(name: &str, action: Action) -> Decision {
    if service_may(action) {
        Decision { allowed: true, visible: true, reason: format!("service {name} needs it") }
    } else {
        Decision { allowed: false, visible: true, reason: "services may not do this".to_owned() }
    }
}

fn invisible() -> Decision {
    Decision { allowed: false, visible: false, reason: "not found, or not visible to this actor".to_owned() }
}

fn allowed(role: Role, scope: Scope) -> Decision {
    Decision { allowed: true, visible: true, reason: format!("role {} on {}", word(role), describe(scope)) }
}

fn denied(action: Action) -> Decision {
    let roles: Vec<_> = roles_that_may(action).map(word).collect();
    let reason = if roles.is_empty() {
        "no role permits this".to_owned()
    } else {
        format!("needs the role {} there; ask an owner", roles.join(" or "))
    };
    Decision { allowed: false, visible: true, reason }
}

/// The role as people write it.
pub(crate) const fn word(role: Role) -> &'static str {
    match role {
        Role::Operator => "operator",
        Role::Owner => "owner",
        Role::Maintainer => "maintainer",
        Role::Developer => "developer",
        Role::Viewer => "viewer",
        Role::Job => "job",
        Role::Agent => "agent",
    }
}

fn describe(scope: Scope) -> String {
    match scope {
        Scope::Organization(id) => format!("organization {id}"),
        Scope::Group(id) => format!("group {id}"),
        Scope::Project(id) => format!("project {id}"),
        Scope::Agent(id) => format!("agent {id}"),
    }
}
