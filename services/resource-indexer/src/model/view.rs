//! The index as one asker may see it, now or at a moment of the past.

use std::collections::{BTreeMap, BTreeSet};

use events::object::ObjectKey;
use events::requests::index::{AsOf, HealthState, IndexedObject, ObjectEnvironment, ObjectHealth};
use events::{AgentId, EnvironmentId, InstanceId, ProjectId};

use super::directory::{Connection, Directory, Tunnels};
use super::groups::Group;
use super::index::{Index, Slot};
use super::kinds::{is_in_no_namespace, resource_name};
use super::observed::{KindPlace, KindState, Observed};
use super::record::{Kind, Record, Verdict, plain_uid};
use super::relations::Key;
use super::rights::Sight;
use super::text::Text;

/// How the reason begins that an Event gives for pods that could not be made.
const REFUSED: &str = "FailedCreate: ";

/// What an answer is made of.
pub struct View<'a> {
    /// The objects, as they were at the moment that is asked about.
    pub index: &'a Index,
    /// The objects as they are now: what kinds there are is read from them.
    pub now: &'a Index,
    /// What is known of agents beside their objects.
    pub observed: &'a BTreeMap<AgentId, Observed>,
    /// Their names.
    pub directory: &'a Directory,
    /// Their connections.
    pub tunnels: &'a Tunnels,
    /// Which gateways live; absent where the question is about the past.
    pub gateways: Option<&'a BTreeSet<InstanceId>>,
    /// What the asker may see.
    pub sight: Sight<'a>,
    /// Of which state it is.
    pub as_of: AsOf,
}

impl View<'_> {
    /// Whether the asker may see an object.
    #[must_use]
    pub fn sees(&self, record: &Record) -> bool {
        let is_namespace = record.kind.is("", "Namespace");
        let namespace = if is_namespace { &record.name } else { &record.namespace };
        self.sees_kind(record.agent, &record.kind, namespace)
    }

    /// Whether the asker may see objects of a kind in a namespace.
    #[must_use]
    pub fn sees_kind(&self, agent: AgentId, kind: &Kind, namespace: &Text) -> bool {
        self.sight.sees((agent, kind, namespace), || resource_name(kind, self.resource(agent, kind)))
    }

    /// Whether the asker may see what an agent lists of a kind in one namespace; in all of them, if in any.
    #[must_use]
    pub fn sees_place(&self, agent: AgentId, place: &KindPlace, state: &KindState) -> bool {
        let kind = Kind::new(&place.group, &place.kind);
        if !place.namespace.is_empty() || !state.namespaced {
            return self.sees_kind(agent, &kind, &Text::from(place.namespace.as_str()));
        }
        let resource = resource_name(&kind, self.resource(agent, &kind));
        let rights = self.sight.rights();
        rights.shows_all(agent)
            || resource.is_some_and(|resource| rights.lists_somewhere(agent, &kind.group, &resource))
    }

    /// Whether an object of this name would be shown, were it there: its kind is listed, and the asker may see it. Of the past that is not
    /// known, as not all of it is looked at.
    #[must_use]
    pub fn would_show(&self, agent: AgentId, key: &Key) -> bool {
        if self.gateways.is_none() {
            return false;
        }
        let (kind, namespace, name) = (&key.kind, &key.namespace, &key.name);
        let seen_in = if kind.is("", "Namespace") { name } else { namespace };
        let observed = self.observed.get(&agent);
        let mut states =
            observed.into_iter().flat_map(|of| of.kind_states(&kind.group, &kind.kind, namespace));
        // The narrowest place counts, as for what is blind.
        states.next().is_some_and(|state| state.listed_at.is_some() && state.blind.is_none())
            && self.sees_kind(agent, kind, seen_in)
    }

    /// Whether objects of a kind are in no namespace.
    #[must_use]
    pub fn is_in_no_namespace(&self, agent: AgentId, kind: &Kind) -> bool {
        let listed = self.kind_state(agent, kind).map(|state| !state.namespaced);
        listed.unwrap_or_else(|| is_in_no_namespace(kind))
    }

    /// The resource of a kind, as an agent names it.
    #[must_use]
    pub fn resource(&self, agent: AgentId, kind: &Kind) -> Option<&str> {
        self.kind_state(agent, kind).map(|state| state.plural.as_str())
    }

    fn kind_state(&self, agent: AgentId, kind: &Kind) -> Option<&KindState> {
        let states = &self.observed.get(&agent)?.kinds;
        let from = KindPlace {
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            namespace: String::new(),
        };
        let (place, state) = states.range(from..).next()?;
        kind.is(&place.group, &place.kind).then_some(state)
    }

    /// The object in a slot, where it is there and the asker may see it.
    #[must_use]
    pub fn there(&self, slot: Slot) -> Option<&Record> {
        self.index.get(slot).filter(|record| record.is_there() && self.sees(record))
    }

    /// The verdict that the asker may see: a workload's may name a pod, or repeat an Event.
    #[must_use]
    pub fn verdict<'r>(&self, record: &'r Record) -> &'r Verdict {
        let Some(with_pods) = record.with_pods() else { return &record.own };
        let sees = |kind: &str| self.sees_kind(record.agent, &Kind::new("", kind), &record.namespace);
        let repeats_event = with_pods.message.starts_with(REFUSED);
        if sees("Pod") && (!repeats_event || sees("Event")) { with_pods } else { &record.own }
    }

    /// An object in a line.
    #[must_use]
    pub fn line(&self, record: &Record) -> IndexedObject {
        self.line_in(record, None)
    }

    /// The same of an object that was looked for in some environments.
    #[must_use]
    pub fn line_in(&self, record: &Record, environments: Option<&BTreeSet<EnvironmentId>>) -> IndexedObject {
        let verdict = self.verdict(record);
        let rule_set = self.index.rule_set(record.agent, verdict);
        IndexedObject {
            agent: record.agent,
            agent_name: self.directory.name_of(record.agent),
            identity: record.identity(),
            uid: plain_uid(&record.uid).to_owned(),
            health: ObjectHealth { rule_set, ..verdict.answer() },
            created_at: record.facts.created_at.time(),
            changed_at: record.changed_at,
            gone_at: record.gone_at(),
            stale: self.stale(record),
            environment: self.environment_of(record, environments),
            owners: self.owners_of(record),
            deployment: self.deployment_of(record),
        }
    }

    /// The environments that the asker may see, with their rules.
    pub fn environments(&self) -> impl Iterator<Item = &Group> {
        self.now.groups().iter().filter(|group| self.sees_environment(group))
    }

    /// One environment, where the asker may see it.
    #[must_use]
    pub fn environment(&self, id: EnvironmentId) -> Option<&Group> {
        self.now.groups().get(id).filter(|group| self.sees_environment(group))
    }

    fn sees_environment(&self, group: &Group) -> bool {
        self.sight.rights().see_environments_of(group.resource.project)
    }

    /// `group/name` of a project; its id where it is not known here.
    #[must_use]
    pub fn path_of(&self, project: ProjectId) -> String {
        self.directory.path_of(project).unwrap_or_else(|| project.to_string())
    }

    /// The environments of an object that the asker may see, in no order.
    pub fn groups_of(&self, record: &Record) -> impl Iterator<Item = &Group> {
        record.groups.iter().filter_map(|membership| self.environment(membership.environment))
    }

    /// All environments of an object that the asker may see, by project and name.
    #[must_use]
    pub fn environments_of(&self, record: &Record) -> Vec<ObjectEnvironment> {
        let mut found: Vec<ObjectEnvironment> =
            self.groups_of(record).map(|group| self.named(group)).collect();
        found.sort_by(by_project_and_name);
        found
    }

    fn environment_of(
        &self,
        record: &Record,
        wanted: Option<&BTreeSet<EnvironmentId>>,
    ) -> Option<ObjectEnvironment> {
        let is_wanted =
            |group: &&Group| wanted.is_none_or(|wanted| wanted.contains(&group.resource.environment));
        self.groups_of(record).filter(is_wanted).map(|group| self.named(group)).min_by(by_project_and_name)
    }

    fn named(&self, group: &Group) -> ObjectEnvironment {
        let resource = &group.resource;
        ObjectEnvironment {
            id: resource.environment,
            name: resource.name.clone(),
            project: resource.project,
            project_path: self.path_of(resource.project),
            tier: resource.tier,
        }
    }

    /// Why an object may be another by now.
    fn stale(&self, record: &Record) -> Option<String> {
        self.gateways?;
        if !record.is_there() {
            return None;
        }
        let observed = self.observed.get(&record.agent);
        let Kind { group, kind } = &record.kind;
        let blind = observed.and_then(|of| of.blind(group, kind, &record.namespace));
        let of_kind = blind.map(|blind| format!("its agent does not see this kind: {}", blind.reason));
        let former = || {
            let is_former = observed.is_some_and(|of| record.stated.0 < of.seen.0);
            is_former.then(|| "its agent has begun anew and has not listed this kind yet".to_owned())
        };
        let awaits =
            || record.awaits_body.then(|| "its agent has not sent its newest state in full yet".to_owned());
        self.agent_stale(record.agent).or(of_kind).or_else(former).or_else(awaits)
    }

    /// How an agent is connected; nothing where the question is about the past.
    #[must_use]
    pub fn connection(&self, agent: AgentId) -> Option<Connection> {
        let gateways = self.gateways?;
        Some(self.tunnels.of(agent, |gateway| gateways.contains(&gateway)))
    }

    /// Why an agent's word may be out of date.
    #[must_use]
    pub fn agent_stale(&self, agent: AgentId) -> Option<String> {
        match self.connection(agent)? {
            Connection::Open => None,
            Connection::Closed { since: Some(since) } => {
                Some(format!("its agent is not connected since {since}"))
            }
            Connection::Closed { since: None } => Some("its agent is not connected".to_owned()),
            Connection::Unknown => Some("whether its agent is connected is not known".to_owned()),
        }
    }

    /// The agents of which the asker may be shown objects.
    pub fn agents(&self) -> impl Iterator<Item = AgentId> + '_ {
        self.sight.rights().shown().filter(|agent| !self.directory.is_deleted(*agent))
    }

    /// Whether somebody is to look at it.
    #[must_use]
    pub const fn is_bad(state: HealthState) -> bool {
        !matches!(state, HealthState::None | HealthState::Healthy | HealthState::Suspended)
    }
}

/// The name of an object, as it is answered.
#[must_use]
pub fn key_of(record: &Record) -> ObjectKey {
    record.identity().key()
}

/// For messages: `Deployment.apps shop/web in group/project:agent`.
#[must_use]
pub fn described(view: &View<'_>, record: &Record) -> String {
    format!("{} in {}", key_of(record), view.directory.name_of(record.agent))
}

fn by_project_and_name(left: &ObjectEnvironment, right: &ObjectEnvironment) -> std::cmp::Ordering {
    (&left.project_path, &left.name).cmp(&(&right.project_path, &right.name))
}
