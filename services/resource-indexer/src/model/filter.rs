//! Which objects a request means.

use std::collections::BTreeSet;

use events::requests::index::{HealthState, ObjectFilter, Ownership};
use events::{AgentId, DeploymentId, EnvironmentId, Refusal, RefusalKind};

use super::environments::Asked;
use super::index::{self, Place, Slot};
use super::kinds::{SeenKind, kinds_of};
use super::record::{Kind, Record};
use super::selector::Selector;
use super::text::Text;
use super::view::View;

/// Longest text of a filter, in bytes.
const LONGEST: usize = 1_000;
/// Agents that a refusal names.
const NAMED: usize = 10;
/// Objects of environments, or with a text, that are put in order for one answer. Where there are more, those beside them are walked
/// over.
const SORTED: usize = 1_000;

/// A filter that was read: agents and kinds are looked up.
#[derive(Debug)]
pub struct Matcher {
    agents: Vec<AgentId>,
    kinds: Option<BTreeSet<Kind>>,
    namespace: Option<Text>,
    name: Option<Text>,
    labels: Selector,
    health: Vec<HealthState>,
    text: Option<String>,
    environments: Option<BTreeSet<EnvironmentId>>,
    ownership: Option<Ownership>,
    deployment: Option<DeploymentId>,
}

/// Behind which object a walk goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    /// In which cluster.
    pub agent: AgentId,
    /// Of which kind.
    pub kind: Kind,
    /// Where among those.
    pub place: Place,
}

impl Matcher {
    /// Reads a filter for an asker.
    ///
    /// # Errors
    /// The field that is wrong, and what to do. Nothing that the asker may not see is named.
    pub fn read(filter: &ObjectFilter, view: &View<'_>) -> Result<Self, Refusal> {
        check_lengths(filter)?;
        let mut agents = match &filter.agent {
            Some(name) => vec![shown_agent(name, view)?],
            None => view.agents().collect(),
        };
        if let Some(deployment) = filter.deployment {
            let where_to = deployed_to(deployment, view)?;
            agents.retain(|agent| *agent == where_to);
        }
        let kinds = filter.kind.as_deref().map(|kinds| kinds_named(kinds, view, &agents));
        let labels = filter.labels.as_deref().map(Selector::parse);
        let (env, tier, project) = (filter.env.as_deref(), filter.tier, filter.project.as_deref());
        let environments = Asked { env, tier, project }.ids(view)?;
        let text = |text: &Option<String>| text.as_deref().map(Text::from);
        Ok(Self {
            agents,
            kinds: kinds.transpose()?,
            namespace: text(&filter.namespace),
            name: text(&filter.name),
            labels: labels.transpose()?.unwrap_or_default(),
            health: filter.health.clone(),
            text: filter.text.as_ref().filter(|text| !text.is_empty()).map(|text| text.to_lowercase()),
            environments,
            ownership: filter.ownership,
            deployment: filter.deployment,
        })
    }

    /// The clusters that are meant.
    #[must_use]
    pub fn agents(&self) -> &[AgentId] {
        &self.agents
    }

    /// The namespace, where one is meant.
    #[must_use]
    pub const fn namespace(&self) -> Option<&Text> {
        self.namespace.as_ref()
    }

    /// The environments, where some are meant.
    #[must_use]
    pub const fn environments(&self) -> Option<&BTreeSet<EnvironmentId>> {
        self.environments.as_ref()
    }

    /// Whether an object is one of those, by what never changes of it.
    #[must_use]
    pub fn names(&self, record: &Record) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&record.kind))
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == record.namespace)
            && self.name.as_ref().is_none_or(|name| *name == record.name)
    }

    /// Whether an object that the asker may see is meant.
    #[must_use]
    pub fn means(&self, view: &View<'_>, record: &Record) -> bool {
        self.names(record)
            && self.environments.as_ref().is_none_or(|environments| record.groups.include_any(environments))
            && self.labels.selects(&record.facts)
            && (self.health.is_empty() || self.health.contains(&view.verdict(record).state))
            && self.text.as_ref().is_none_or(|text| contains(view, record, text))
            && self.ownership.is_none_or(|ownership| view.has_ownership(record, ownership))
            && self.deployment.is_none_or(|id| view.deployed(record).is_some_and(|found| found.id == id))
    }

    /// The objects that are there, that the asker may see and that are meant, in the order of cluster, kind, namespace and name.
    pub fn walk<'v>(
        &'v self,
        view: &'v View<'_>,
        behind: Option<Behind>,
    ) -> impl Iterator<Item = &'v Record> + 'v {
        self.slots(view, behind, true)
            .filter_map(move |slot| view.there(slot).filter(|record| self.means(view, record)))
    }

    /// The objects among which all are that [`Matcher::walk`] gives, in the same order.
    pub fn candidates<'v>(
        &'v self,
        view: &'v View<'_>,
        behind: Option<Behind>,
    ) -> impl Iterator<Item = &'v Record> + 'v {
        self.slots(view, behind, true).filter_map(|slot| view.index.get(slot))
    }

    /// As [`Matcher::walk`], with those that are gone.
    pub fn walk_all<'v>(&'v self, view: &'v View<'_>) -> impl Iterator<Item = &'v Record> + 'v {
        self.slots(view, None, false).filter_map(move |slot| {
            let record = view.index.get(slot)?;
            (view.sees(record) && self.means(view, record)).then_some(record)
        })
    }

    fn slots<'v>(
        &'v self,
        view: &'v View<'_>,
        behind: Option<Behind>,
        are_there: bool,
    ) -> impl Iterator<Item = Slot> + 'v {
        let from = behind.as_ref().map(|behind| behind.agent);
        let agents = self.agents.iter().copied().filter(move |agent| from.is_none_or(|from| *agent >= from));
        agents.flat_map(move |agent| {
            let behind = behind.clone().filter(|behind| behind.agent == agent);
            match self.few(view, agent, are_there) {
                Some(found) => self.sorted(view, found, behind),
                None => self.ordered(view, agent, behind),
            }
        })
    }

    /// Few objects of a cluster among which all are that are meant: those of environments, with a label, those that are
    /// not well, or those with a text.
    fn few(&self, view: &View<'_>, agent: AgentId, are_there: bool) -> Option<Vec<Slot>> {
        let of_environments = self
            .environments
            .as_ref()
            .and_then(|environments| view.index.few_of(environments, agent, SORTED));
        if let Some(found) = of_environments {
            return Some(found.into_iter().collect());
        }
        if let Some((key, value)) = self.labels.exact() {
            return Some(view.index.labelled(agent, &(key.clone(), value.clone())).collect());
        }
        let all_are_unwell = !self.health.is_empty()
            && !self.health.iter().any(|state| matches!(state, HealthState::None | HealthState::Healthy));
        // Who may not see pods sees workloads by their own verdict, which may be another one.
        // Those that are gone are not kept by how they were.
        let shows_all = view.sight.rights().shows_all(agent);
        let by_verdict = are_there && all_are_unwell && shows_all;
        if by_verdict {
            return Some(view.index.unwell(agent, &self.health).collect());
        }
        let text = self.text.as_deref().filter(|_| are_there && shows_all)?;
        Some(view.index.with_text(agent, text, SORTED)?.into_iter().collect())
    }

    fn sorted<'v>(
        &'v self,
        view: &'v View<'_>,
        found: Vec<Slot>,
        behind: Option<Behind>,
    ) -> Box<dyn Iterator<Item = Slot> + 'v> {
        let records = found.into_iter().filter_map(|slot| Some((slot, view.index.get(slot)?)));
        let mut placed: Vec<(&Kind, Place, Slot)> = records
            .filter(|(_, record)| self.names(record))
            .map(|(slot, record)| (&record.kind, Place::of(record), slot))
            .filter(|(kind, place, _)| {
                behind.as_ref().is_none_or(|behind| (*kind, place) > (&behind.kind, &behind.place))
            })
            .collect();
        placed.sort();
        Box::new(placed.into_iter().map(|(_, _, slot)| slot))
    }

    fn ordered<'v>(
        &'v self,
        view: &'v View<'_>,
        agent: AgentId,
        behind: Option<Behind>,
    ) -> Box<dyn Iterator<Item = Slot> + 'v> {
        let kinds = view.index.kinds(agent).into_iter().flatten();
        let from = behind.clone();
        let kinds = kinds.filter(move |(kind, _)| {
            self.kinds.as_ref().is_none_or(|meant| meant.contains(*kind))
                && from.as_ref().is_none_or(|behind| **kind >= behind.kind)
        });
        Box::new(kinds.flat_map(move |(kind, of_kind)| {
            let behind = behind.as_ref().filter(|behind| behind.kind == *kind);
            let behind = behind.map(|behind| behind.place.clone());
            let from = self.first().max(behind.clone()).unwrap_or_default();
            let range: Box<dyn Iterator<Item = Slot>> = match (&self.environments, &self.namespace) {
                (Some(environments), _) => {
                    Box::new(view.index.beside((agent, kind, of_kind), environments, from))
                }
                (None, Some(_)) => Box::new(of_kind.beginning_at(view.index, &from)),
                (None, None) => Box::new(of_kind.from(view.index, &from)),
            };
            let range = range.filter_map(move |slot| Some((slot, view.index.get(slot)?)));
            let range =
                range.filter(move |(_, record)| behind.as_ref().is_none_or(|behind| !behind.is_of(record)));
            let meant = range.take_while(move |(_, record)| {
                self.namespace.as_ref().is_none_or(|namespace| *namespace == record.namespace)
            });
            meant.map(|(slot, _)| slot)
        }))
    }

    /// Where the objects of a kind begin that may be meant.
    fn first(&self) -> Option<Place> {
        self.namespace.as_ref().map(|namespace| Place {
            namespace: namespace.clone(),
            name: self.name.clone().unwrap_or_default(),
            uid: Text::default(),
        })
    }
}

/// In whose cluster a deployment set objects, where the asker may see its environment.
fn deployed_to(id: DeploymentId, view: &View<'_>) -> Result<AgentId, Refusal> {
    let found = view.now.groups().deployed().get(id);
    let seen = found.filter(|found| view.environment(found.environment).is_some());
    seen.map(|found| found.agent).ok_or_else(|| {
        let what = format!("deployment {id} among the last ones of an environment");
        Refusal { field: Some("deployment".to_owned()), ..Refusal::not_found(what) }
    })
}

fn contains(view: &View<'_>, record: &Record, text: &str) -> bool {
    let has = |part: &str| index::contains(part, text);
    has(&record.name)
        || has(&record.namespace)
        || has(&record.kind.kind)
        || record.facts.labels.iter().any(|(key, value)| has(key) || has(value))
        || has(&view.verdict(record).message)
}

fn check_lengths(filter: &ObjectFilter) -> Result<(), Refusal> {
    let fields = [
        ("agent", &filter.agent),
        ("kind", &filter.kind),
        ("namespace", &filter.namespace),
        ("name", &filter.name),
        ("labels", &filter.labels),
        ("text", &filter.text),
        ("env", &filter.env),
        ("project", &filter.project),
    ];
    for (field, value) in fields {
        if value.as_ref().is_some_and(|value| value.len() > LONGEST) {
            return Err(Refusal::invalid(field, format!("longer than {LONGEST} bytes")));
        }
    }
    Ok(())
}

/// The kinds that a list with commas between them means.
fn kinds_named(text: &str, view: &View<'_>, agents: &[AgentId]) -> Result<BTreeSet<Kind>, Refusal> {
    let seen = seen_kinds(view, agents);
    let mut kinds = BTreeSet::new();
    for name in text.split(',').map(str::trim) {
        kinds.extend(kinds_of(name, &seen)?);
    }
    Ok(kinds)
}

/// The kinds of some clusters with their resources and short names.
fn seen_kinds<'v>(view: &'v View<'_>, agents: &[AgentId]) -> Vec<SeenKind<'v>> {
    let mut seen = Vec::new();
    for agent in agents {
        let kinds = view.now.kinds(*agent).into_iter().flat_map(|kinds| kinds.keys());
        seen.extend(kinds.map(|kind| SeenKind {
            kind,
            resource: view.resource(*agent, kind),
            short: view.now.short_names(*agent, kind),
        }));
    }
    seen
}

/// The agent that a text means, among those of which objects can be shown.
fn shown_agent(text: &str, view: &View<'_>) -> Result<AgentId, Refusal> {
    let agent = agent_named(text, view)?;
    let rights = view.sight.rights();
    if rights.shows(agent) { Ok(agent) } else { Err(not_shown(text, rights.unknown(agent))) }
}

/// The agent that a text means, among those that the asker may use.
///
/// # Errors
/// When it means none, or several.
pub fn agent_named(text: &str, view: &View<'_>) -> Result<AgentId, Refusal> {
    let rights = view.sight.rights();
    let usable = || rights.agents().filter(|agent| !view.directory.is_deleted(*agent));
    let missing =
        || Refusal { field: Some("agent".to_owned()), ..Refusal::not_found(format!("agent {text:?}")) };
    if let Ok(agent) = text.parse::<AgentId>() {
        return usable().find(|usable| *usable == agent).ok_or_else(missing);
    }
    let is_named = |agent: &AgentId| {
        if text.contains(':') {
            view.directory.name_of(*agent) == text
        } else {
            view.directory.short_name_of(*agent) == Some(text)
        }
    };
    let found: Vec<AgentId> = usable().filter(is_named).collect();
    match found.as_slice() {
        [] => Err(missing()),
        [agent] => Ok(*agent),
        several => {
            let names: Vec<String> =
                several.iter().take(NAMED).map(|agent| view.directory.name_of(*agent)).collect();
            let message = format!("several agents are called {text:?}: use one of {}", names.join(", "));
            let conflict = Refusal::new(RefusalKind::Conflict, message);
            Err(Refusal { field: Some("agent".to_owned()), ..conflict })
        }
    }
}

fn not_shown(text: &str, reason: Option<String>) -> Refusal {
    let reason = reason.unwrap_or_default();
    let message = format!("nothing of agent {text:?} is shown; rights unknown: {reason}");
    Refusal { field: Some("agent".to_owned()), ..Refusal::new(RefusalKind::Denied, message) }
}

#[cfg(test)]
mod tests;
