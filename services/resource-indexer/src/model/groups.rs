//! Which objects belong to which environments: the rules, and what they say of one object.
//!
//! A rule names objects directly. What these have caused belongs to the environment, too: the index follows owners for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::environment::{Association, Grouping};
use events::requests::environments::ResourceGroup;
use events::{AgentId, EnvironmentId, OrganizationId, ProjectId, SourceId};

use super::deployed::AllDeployed;
use super::list::List;
use super::record::Record;
use super::text::Text;

/// One environment, as far as it groups objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The organization of its project.
    pub organization: OrganizationId,
    /// What delivery says of it.
    pub resource: ResourceGroup,
    /// What the label of its project may say: id, path, external id.
    pub project_labels: Vec<String>,
}

impl Group {
    /// Whether the same objects belong to it.
    fn has_rule_of(&self, other: &Self) -> bool {
        let (own, others) = (&self.resource, &other.resource);
        (&own.slug, &own.grouping, &self.project_labels)
            == (&others.slug, &others.grouping, &other.project_labels)
            && self.places() == other.places()
    }

    /// Where its objects are, and whose inventories they are in.
    fn places(&self) -> BTreeSet<(&Association, Option<SourceId>)> {
        let places = self.resource.places.iter();
        places.map(|place| (&place.association, place.sync.map(|sync| sync.source))).collect()
    }

    /// The agents in whose clusters its objects are.
    #[must_use]
    pub fn agents(&self) -> BTreeSet<AgentId> {
        self.resource.places.iter().map(|place| place.association.agent).collect()
    }
}

/// Objects of a namespace that belong to an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InNamespace {
    environment: EnvironmentId,
    /// Only those with these labels.
    labels: Option<Labels>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Labels {
    project: (String, Vec<String>),
    environment: (String, String),
}

impl Labels {
    fn are_of(&self, record: &Record) -> bool {
        let (key, values) = &self.project;
        let project = record.facts.label(key);
        let (environment, slug) = &self.environment;
        project.is_some_and(|project| values.iter().any(|value| value == project))
            && record.facts.label(environment) == Some(slug)
    }
}

/// Objects that a rule may name directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidates {
    /// Those that a source put there.
    OfSource(AgentId, SourceId),
    /// Those of a namespace.
    InNamespace(AgentId, Text),
    /// Those with a label.
    Labelled(AgentId, (Text, Text)),
}

/// All environments that group objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    all: BTreeMap<EnvironmentId, Arc<Group>>,
    of_source: BTreeMap<AgentId, BTreeMap<SourceId, Vec<EnvironmentId>>>,
    in_namespace: BTreeMap<AgentId, BTreeMap<Text, Vec<InNamespace>>>,
    deployed: AllDeployed,
}

impl Groups {
    /// The deployments into all of them that are kept.
    #[must_use]
    pub const fn deployed(&self) -> &AllDeployed {
        &self.deployed
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, environment: EnvironmentId) -> Option<&Group> {
        self.all.get(&environment).map(|group| &**group)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.all.values().map(|group| &**group)
    }

    /// The same with these as all of one organization's, and the environments to which other objects belong now.
    #[must_use]
    pub fn with(&self, organization: OrganizationId, groups: Vec<Group>) -> (Self, BTreeSet<EnvironmentId>) {
        let others = self.all.iter().filter(|(_, group)| group.organization != organization);
        let mut all: BTreeMap<EnvironmentId, Arc<Group>> =
            others.map(|(id, group)| (*id, Arc::clone(group))).collect();
        all.extend(groups.into_iter().map(|group| (group.resource.environment, Arc::new(group))));
        let is_other = |id: &EnvironmentId| match (self.all.get(id), all.get(id)) {
            (Some(before), Some(after)) => !before.has_rule_of(after),
            (before, after) => before.is_some() != after.is_some(),
        };
        let changed = self.all.keys().chain(all.keys()).copied().filter(is_other).collect();
        (Self::of(all), changed)
    }

    fn of(all: BTreeMap<EnvironmentId, Arc<Group>>) -> Self {
        let mut groups = Self::default();
        for group in all.values() {
            groups.add_rules(group);
            groups.deployed.add(&group.resource);
        }
        Self { all, ..groups }
    }

    fn add_rules(&mut self, group: &Group) {
        let environment = group.resource.environment;
        for place in &group.resource.places {
            let (agent, namespace) = (place.association.agent, &place.association.namespace);
            if group.resource.grouping == Grouping::Inventory {
                let Some(sync) = place.sync else { continue };
                let of_agent = self.of_source.entry(agent).or_default();
                let named = of_agent.entry(sync.source).or_default();
                if !named.contains(&environment) {
                    named.push(environment);
                }
            } else if !namespace.is_empty() {
                let rule = InNamespace { environment, labels: labels_of(group) };
                let of_agent = self.in_namespace.entry(agent).or_default();
                of_agent.entry(Text::from(namespace.as_str())).or_default().push(rule);
            }
        }
    }

    /// The environments whose rules name an object.
    pub fn naming<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = EnvironmentId> + 'a {
        let of_source = record.source.and_then(|source| self.of_source.get(&record.agent)?.get(&source));
        let in_namespace =
            self.in_namespace.get(&record.agent).and_then(|of_agent| of_agent.get(&record.namespace));
        let named = in_namespace.into_iter().flatten().filter(|rule| {
            // An object in no namespace is in none that a rule names.
            rule.labels.as_ref().is_none_or(|labels| labels.are_of(record))
        });
        of_source.into_iter().flatten().copied().chain(named.map(|rule| rule.environment))
    }

    /// The namespaces of environments in a cluster.
    #[must_use]
    pub fn namespaces(&self, environments: &BTreeSet<EnvironmentId>, agent: AgentId) -> BTreeSet<Text> {
        let places =
            environments.iter().filter_map(|id| self.get(*id)).flat_map(|group| &group.resource.places);
        let own = places
            .map(|place| &place.association)
            .filter(|association| association.agent == agent && !association.namespace.is_empty());
        own.map(|association| Text::from(association.namespace.as_str())).collect()
    }

    /// Where the objects are that the rule of an environment may name.
    pub fn candidates(&self, environment: EnvironmentId) -> Vec<Candidates> {
        let Some(group) = self.get(environment) else { return Vec::new() };
        let place = |place: &events::requests::environments::ResourcePlace| {
            let (agent, namespace) =
                (place.association.agent, Text::from(place.association.namespace.as_str()));
            match &group.resource.grouping {
                Grouping::Inventory => Some(Candidates::OfSource(agent, place.sync?.source)),
                Grouping::Namespace => Some(Candidates::InNamespace(agent, namespace)),
                Grouping::Labels { environment, .. } => {
                    let label = (Text::from(environment.as_str()), Text::from(group.resource.slug.as_str()));
                    Some(Candidates::Labelled(agent, label))
                }
            }
        };
        group.resource.places.iter().filter_map(place).collect()
    }
}

fn labels_of(group: &Group) -> Option<Labels> {
    let Grouping::Labels { project, environment } = &group.resource.grouping else { return None };
    Some(Labels {
        project: (project.clone(), group.project_labels.clone()),
        environment: (environment.clone(), group.resource.slug.clone()),
    })
}

/// One environment that an object belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// Which.
    pub environment: EnvironmentId,
    /// No other object of it that is there has caused this one.
    pub is_top: bool,
}

/// The environments that an object belongs to, in the order of their ids. Many objects share one list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memberships(pub(super) List<Membership>);

impl Memberships {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Membership> + '_ {
        self.0.iter().copied()
    }

    /// Whether the object belongs to one of these.
    #[must_use]
    pub fn include_any(&self, environments: &BTreeSet<EnvironmentId>) -> bool {
        self.iter().any(|membership| environments.contains(&membership.environment))
    }

    /// How the object belongs to one.
    #[must_use]
    pub fn of(&self, environment: EnvironmentId) -> Option<Membership> {
        self.iter().find(|membership| membership.environment == environment)
    }
}

/// What the label of a project may say, where it is meant by more than its path.
#[must_use]
pub fn project_labels(project: ProjectId, path: Option<String>, external: Option<u64>) -> Vec<String> {
    let external = external.map(|id| id.to_string());
    std::iter::once(project.to_string()).chain(path).chain(external).collect()
}

#[cfg(test)]
mod tests;
