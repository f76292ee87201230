//! What of the index somebody may see: what they could list in the clusters, by their agents' configurations and, where those let them in
//! as themselves, by the clusters' own authorization too.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::attributes::{Attributes, ResourceTarget, Target};
use events::grants::UserAccessAs;
use events::pass::Narrowing;
use events::requests::authz::UsableAgent;
use events::{AgentId, ProjectId, Sha256};
use objects::narrowing;

use super::listable::Listable;
use super::record::Kind;
use super::text::Text;

/// The reason where nobody has asked the cluster.
const NOT_ASKED: &str = "its cluster was not asked";

/// What one asker may see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    agents: BTreeMap<AgentId, Use>,
    /// Projects whose environments the asker may see.
    projects: BTreeSet<ProjectId>,
    /// Of those that are used as themselves.
    identities: BTreeMap<AgentId, Option<Sha256>>,
}

/// How somebody may use an agent's cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Use {
    /// As the agent: what any of these leaves.
    AsAgent(Vec<Narrowing>),
    /// As themselves: of what any of these leaves, what the cluster's own authorization permits.
    AsThemselves(Vec<Narrowing>, ClusterRights),
}

/// An agent whose cluster sees the asker as themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsThemselves<'a> {
    /// Which agent.
    pub agent: AgentId,
    /// What its configuration leaves.
    pub grants: &'a [Narrowing],
    /// See [`UsableAgent::identity`].
    pub identity: Option<Sha256>,
}

/// What the cluster's own authorization permits somebody to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterRights {
    /// So much.
    Known(Arc<Listable>),
    /// It is not known, for this reason: nothing is shown.
    Unknown(String),
}

impl Rights {
    /// Those that authz answered.
    #[must_use]
    pub fn of(usable: impl IntoIterator<Item = UsableAgent>) -> Self {
        let mut rights = Self::default();
        for UsableAgent { agent, access_as, grants, identity } in usable {
            let way = match access_as {
                UserAccessAs::Agent => Use::AsAgent(grants),
                UserAccessAs::User => {
                    rights.identities.insert(agent, identity);
                    Use::AsThemselves(grants, ClusterRights::Unknown(NOT_ASKED.to_owned()))
                }
            };
            rights.agents.insert(agent, way);
        }
        rights
    }

    /// The same with the projects whose environments the asker may see.
    #[must_use]
    pub fn seeing(mut self, projects: impl IntoIterator<Item = ProjectId>) -> Self {
        self.projects.extend(projects);
        self
    }

    /// Whether the asker may see a project's environments.
    #[must_use]
    pub fn see_environments_of(&self, project: ProjectId) -> bool {
        self.projects.contains(&project)
    }

    /// These rights, with what clusters said.
    #[must_use]
    pub fn with(&self, said: impl IntoIterator<Item = (AgentId, ClusterRights)>) -> Self {
        let mut rights = self.clone();
        for (agent, says) in said {
            if let Some(Use::AsThemselves(_, cluster)) = rights.agents.get_mut(&agent) {
                *cluster = says;
            }
        }
        rights
    }

    /// The agents whose clusters see the asker as themselves.
    pub fn as_themselves(&self) -> impl Iterator<Item = AsThemselves<'_>> + '_ {
        self.identities.iter().filter_map(|(agent, identity)| match self.agents.get(agent)? {
            Use::AsThemselves(grants, _) => Some(AsThemselves { agent: *agent, grants, identity: *identity }),
            Use::AsAgent(_) => None,
        })
    }

    /// Why it is not known what the asker may see there, or of a part of it; nothing where all is known.
    #[must_use]
    pub fn unknown(&self, agent: AgentId) -> Option<String> {
        match self.agents.get(&agent)? {
            Use::AsThemselves(_, ClusterRights::Unknown(reason)) => Some(reason.clone()),
            Use::AsThemselves(_, ClusterRights::Known(listable)) => {
                let reasons = listable.unknown();
                (!reasons.is_empty()).then(|| format!("of a part: {}", reasons.join("; ")))
            }
            Use::AsAgent(_) => None,
        }
    }

    /// The agents that the asker may use, whether objects of them can be shown or not.
    pub fn agents(&self) -> impl Iterator<Item = AgentId> + '_ {
        self.agents.keys().copied()
    }

    /// The agents of which objects can be shown.
    pub fn shown(&self) -> impl Iterator<Item = AgentId> + '_ {
        self.agents.keys().copied().filter(|agent| self.shows(*agent))
    }

    /// Whether the asker may use it.
    #[must_use]
    pub fn includes(&self, agent: AgentId) -> bool {
        self.agents.contains_key(&agent)
    }

    /// Whether objects of it can be shown.
    #[must_use]
    pub fn shows(&self, agent: AgentId) -> bool {
        let way = self.agents.get(&agent);
        matches!(way, Some(Use::AsAgent(_) | Use::AsThemselves(_, ClusterRights::Known(_))))
    }

    /// Whether every object of it can be shown.
    #[must_use]
    pub fn shows_all(&self, agent: AgentId) -> bool {
        matches!(self.agents.get(&agent), Some(Use::AsAgent(grants)) if grants.iter().any(Narrowing::is_empty))
    }

    /// Whether the asker could list objects of a resource anywhere.
    #[must_use]
    pub fn lists_somewhere(&self, agent: AgentId, group: &str, resource: &str) -> bool {
        let grants = match self.agents.get(&agent) {
            Some(Use::AsAgent(grants)) => grants,
            Some(Use::AsThemselves(grants, ClusterRights::Known(listable)))
                if listable.lists_somewhere(group, resource) =>
            {
                grants
            }
            _ => return false,
        };
        leave_somewhere(grants, group, resource)
    }

    /// Whether the asker could list objects of a resource in a namespace.
    fn lists(&self, agent: AgentId, group: &str, resource: &str, namespace: &str) -> bool {
        match self.agents.get(&agent) {
            Some(Use::AsAgent(grants)) => leave(grants, group, resource, namespace),
            Some(Use::AsThemselves(grants, ClusterRights::Known(listable))) => {
                listable.lists(group, resource, namespace) && leave(grants, group, resource, namespace)
            }
            _ => false,
        }
    }
}

/// Whether any of these leaves it to list a resource anywhere.
pub(super) fn leave_somewhere(grants: &[Narrowing], group: &str, resource: &str) -> bool {
    let namespaces = grants.iter().flat_map(|grant| grant.namespaces.iter().map(String::as_str));
    namespaces.chain([""]).any(|namespace| leave(grants, group, resource, namespace))
}

/// Whether any of these leaves it to list a resource of which the objects are in no namespace.
pub(super) fn leave_in_none(grants: &[Narrowing], group: &str, resource: &str) -> bool {
    leave(grants, group, resource, "")
}

/// Whether any of these leaves it to list a resource in a namespace.
fn leave(grants: &[Narrowing], group: &str, resource: &str, namespace: &str) -> bool {
    // A user who is let into a namespace may look at the namespace itself, which nobody can list but all of them.
    let is_namespace = group.is_empty() && resource == "namespaces";
    let target = ResourceTarget {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        ..ResourceTarget::default()
    };
    let verb = if is_namespace { "get" } else { "list" };
    let attributes = Attributes { verb: verb.to_owned(), target: Target::Resource(target) };
    grants.iter().any(|grant| narrowing::check(grant, &attributes).is_ok())
}

/// Answers whether objects may be seen; remembers what it answered, as there are few kinds and namespaces and many objects.
#[derive(Debug)]
pub struct Sight<'a> {
    rights: &'a Rights,
    known: RefCell<BTreeMap<(AgentId, Kind, Text), bool>>,
}

impl<'a> Sight<'a> {
    /// By these rights.
    #[must_use]
    pub const fn of(rights: &'a Rights) -> Self {
        Self { rights, known: RefCell::new(BTreeMap::new()) }
    }

    /// The rights.
    #[must_use]
    pub const fn rights(&self) -> &'a Rights {
        self.rights
    }

    /// Whether an object of a kind in a namespace may be seen; of a Namespace it is its own name. `resource` is asked where it is needed:
    /// a kind whose resource is not known is not shown to those who may see some resources only.
    pub fn sees(
        &self,
        (agent, kind, namespace): (AgentId, &Kind, &Text),
        resource: impl FnOnce() -> Option<Text>,
    ) -> bool {
        if self.rights.shows_all(agent) {
            return true;
        }
        if !self.rights.shows(agent) {
            return false;
        }
        let place = (agent, kind.clone(), namespace.clone());
        if let Some(known) = self.known.borrow().get(&place) {
            return *known;
        }
        let sees =
            resource().is_some_and(|resource| self.rights.lists(agent, &kind.group, &resource, namespace));
        self.known.borrow_mut().insert(place, sees);
        sees
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn usable(number: u128, access_as: UserAccessAs, grants: &[(&[&str], &[&str], &[&str])]) -> UsableAgent {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let grants = grants.iter().map(|(namespaces, verbs, resources)| Narrowing {
            namespaces: texts(namespaces),
            verbs: texts(verbs),
            resources: texts(resources),
        });
        let agent = AgentId(Uuid::from_u128(number));
        UsableAgent { agent, access_as, grants: grants.collect(), identity: None }
    }

    #[test]
    fn only_what_could_be_listed_is_seen() {
        let rights = Rights::of([
            usable(1, UserAccessAs::Agent, &[(&["a"], &[], &[]), (&[], &["list"], &["deployments.apps"])]),
            usable(2, UserAccessAs::User, &[(&[], &[], &[])]),
            usable(3, UserAccessAs::Agent, &[(&[], &["create"], &[])]),
            usable(4, UserAccessAs::Agent, &[(&["a"], &[], &[]), (&[], &[], &[])]),
        ]);
        let sight = Sight::of(&rights);
        let sees = |agent: u128, (group, kind, resource): (&str, &str, &str), namespace: &str| {
            let place = (AgentId(Uuid::from_u128(agent)), &Kind::new(group, kind), &Text::from(namespace));
            sight.sees(place, || (!resource.is_empty()).then(|| Text::from(resource)))
        };
        let (pod, deployment) = (("", "Pod", "pods"), ("apps", "Deployment", "deployments"));
        assert!(sees(1, pod, "a") && !sees(1, pod, "b") && sees(1, deployment, "b"));
        assert!(!sees(1, ("", "Node", "nodes"), ""), "in no namespace");
        let namespace = ("", "Namespace", "namespaces");
        assert!(sees(1, namespace, "a") && !sees(1, namespace, "b"));
        assert!(!sees(1, ("example.com", "Widget", ""), "a"), "its resource is not known");
        assert!(!sees(2, pod, "a"), "the cluster decides, and was not asked");
        assert!(!sees(3, pod, "a"), "may create and not list");
        assert!(sees(4, ("example.com", "Widget", ""), ""), "everything");
        assert!(!sees(5, pod, "a"), "not known at all");
        assert_eq!(rights.shown().count(), 3);
        assert!(rights.includes(AgentId(Uuid::from_u128(2))));
    }
}
