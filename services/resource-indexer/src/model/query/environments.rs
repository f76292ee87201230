//! How environments are doing, by their objects, and the trees of these.

use std::collections::BTreeMap;

use bus::PageBuilder;
use events::environment::Tier;
use events::requests::environments::EnvironmentState;
use events::requests::index::{
    EnvironmentHealth, HealthCount, HealthState, ListEnvironmentHealth, ShowTiers, TierHealth, Tiers,
};
use events::requests::page::{Page, Paged as _};
use events::{AgentId, EnvironmentId, ProjectId, Refusal};

use super::tree::in_order;
use crate::model::environments::Asked;
use crate::model::groups::Group;
use crate::model::index::{InCluster, Slot, counted};
use crate::model::record::{Kind, Record};
use crate::model::relations::Relation;
use crate::model::rights::Rights;
use crate::model::text::Text;
use crate::model::view::View;

/// Objects in the worst state among which the one is looked for that is named.
const WORST: usize = 200;
/// Why objects may be missing.
const HIDDEN: &str = "objects are in a cluster that you may not use; its administrator can let you in by user_access of its agent's configuration";

/// A page of environments with how they are doing.
///
/// # Errors
/// What names no environment, or a cursor that cannot be read.
pub fn list_health(
    request: &ListEnvironmentHealth,
    view: &View<'_>,
) -> Result<Page<EnvironmentHealth>, Refusal> {
    let after = request.after()?;
    let (env, tier, project) = (request.env.as_deref(), request.tier, request.project.as_deref());
    let mut meant =
        Asked { env, tier, project }.meant(view)?.unwrap_or_else(|| view.environments().collect());
    let key =
        |group: &Group| -> (ProjectId, String) { (group.resource.project, group.resource.name.clone()) };
    meant.retain(|group| after.as_ref().is_none_or(|after| key(group) > *after));
    meant.sort_by_key(|group| key(group));
    let mut page = PageBuilder::of(request);
    for group in meant {
        if !page.push(key(group), health_of(view, group))? {
            break;
        }
    }
    page.finish()
}

/// Each tier with how its environments are doing.
///
/// # Errors
/// A project that the asker may not see.
pub fn tiers(request: &ShowTiers, view: &View<'_>) -> Result<Tiers, Refusal> {
    let asked = Asked { project: request.project.as_deref(), ..Asked::default() };
    let meant = asked.meant(view)?.unwrap_or_else(|| view.environments().collect());
    let mut of_tier: BTreeMap<Tier, Vec<EnvironmentHealth>> = BTreeMap::new();
    for group in meant.into_iter().filter(|group| group.resource.state == EnvironmentState::Available) {
        of_tier.entry(group.resource.tier).or_default().push(health_of(view, group));
    }
    let tiers = of_tier.into_iter().map(|(tier, environments)| tier_of(tier, environments)).collect();
    Ok(Tiers { tiers, as_of: view.as_of.clone() })
}

fn tier_of(tier: Tier, environments: Vec<EnvironmentHealth>) -> TierHealth {
    let mut counts: BTreeMap<HealthState, u64> = BTreeMap::new();
    for one in &environments {
        let count = counts.entry(one.health).or_default();
        *count = count.saturating_add(1);
    }
    let number = |is: &dyn Fn(&&EnvironmentHealth) -> bool| {
        u64::try_from(environments.iter().filter(is).count()).unwrap_or(u64::MAX)
    };
    let (count, empty) = (number(&|_| true), number(&|one| one.objects == 0));
    let stale = number(&|one| one.stale.is_some());
    let health = counts.keys().next_back().copied().unwrap_or(HealthState::None);
    let name = |one: &EnvironmentHealth| (one.project_path.clone(), one.name.clone());
    let worst = environments.into_iter().filter(|one| one.health == health && View::is_bad(health));
    TierHealth {
        tier,
        environments: count,
        health,
        counts: counted_states(counts),
        empty,
        stale,
        worst: worst.min_by_key(name),
    }
}

fn counted_states(counts: BTreeMap<HealthState, u64>) -> Vec<HealthCount> {
    let some = counts.into_iter().filter(|(_, count)| *count > 0);
    some.map(|(state, count)| HealthCount { state, count }).collect()
}

/// Why not everything of a cluster is shown.
fn why_hidden(rights: &Rights, agent: AgentId) -> Option<String> {
    let unknown = rights.unknown(agent).map(|reason| format!("rights unknown: {reason}"));
    unknown.or_else(|| (!rights.shows(agent)).then(|| HIDDEN.to_owned()))
}

/// How one environment is doing.
#[must_use]
pub fn health_of(view: &View<'_>, group: &Group) -> EnvironmentHealth {
    let resource = &group.resource;
    let clusters: Vec<(AgentId, &InCluster)> = view.index.clusters_of(resource.environment).collect();
    let rights = view.sight.rights();
    let mut agents = group.agents();
    agents.extend(clusters.iter().map(|(agent, _)| *agent));
    let mut there = agents.iter().filter(|agent| !view.directory.is_deleted(**agent));
    let hidden = there.find_map(|agent| why_hidden(rights, *agent));
    let stale =
        agents.iter().filter(|agent| rights.shows(**agent)).find_map(|agent| view.agent_stale(*agent));
    let mut seen = Seen::default();
    for (agent, cluster) in clusters {
        if rights.shows_all(agent) {
            seen.add_all(view, cluster);
        } else if rights.shows(agent) {
            seen.add_some(view, (resource.environment, cluster));
        }
    }
    let health = seen.counts.keys().next_back().copied().unwrap_or(HealthState::None);
    EnvironmentHealth {
        environment: resource.environment,
        name: resource.name.clone(),
        project: resource.project,
        project_path: view.path_of(resource.project),
        tier: resource.tier,
        state: resource.state,
        objects: seen.objects,
        health,
        counts: counted_states(seen.counts),
        worst: seen
            .worst
            .map(|(_, record)| Box::new(view.line_in(record, Some(&[resource.environment].into())))),
        stale,
        hidden,
    }
}

/// What an asker sees of an environment's objects.
#[derive(Default)]
struct Seen<'v> {
    objects: u64,
    counts: BTreeMap<HealthState, u64>,
    worst: Option<(HealthState, &'v Record)>,
}

impl<'v> Seen<'v> {
    /// All objects of a cluster, as they are counted already.
    fn add_all(&mut self, view: &'v View<'_>, cluster: &InCluster) {
        self.objects = self.objects.saturating_add(cluster.there());
        for (state, slots) in cluster.top() {
            let count = self.counts.entry(*state).or_default();
            *count = count.saturating_add(u64::try_from(slots.len()).unwrap_or(u64::MAX));
        }
        if let Some((state, slots)) = cluster.top().last_key_value() {
            slots
                .iter()
                .take(WORST)
                .filter_map(|slot| view.there(*slot))
                .for_each(|record| self.note(*state, record));
        }
    }

    /// Those that the asker may see.
    fn add_some(&mut self, view: &'v View<'_>, (environment, cluster): (EnvironmentId, &InCluster)) {
        for slot in cluster.members() {
            let Some(record) = view.there(slot) else { continue };
            self.objects = self.objects.saturating_add(1);
            if is_top(view, record, environment) {
                let state = counted(view.verdict(record));
                let count = self.counts.entry(state).or_default();
                *count = count.saturating_add(1);
                self.note(state, record);
            }
        }
    }

    /// Of those in the worst state the first by cluster, kind and name counts.
    fn note(&mut self, state: HealthState, record: &'v Record) {
        let is_worse = self
            .worst
            .as_ref()
            .is_none_or(|(worst, known)| state > *worst || (state == *worst && place(record) < place(known)));
        if View::is_bad(state) && is_worse {
            self.worst = Some((state, record));
        }
    }
}

/// Where an object stands in a list.
fn place(record: &Record) -> (AgentId, &Kind, [&Text; 3]) {
    (record.agent, &record.kind, [&record.namespace, &record.name, &record.uid])
}

/// Whether no other object of the environment that the asker may see has caused this one.
pub(super) fn is_top(view: &View<'_>, record: &Record, environment: EnvironmentId) -> bool {
    if view.sight.rights().shows_all(record.agent) {
        // The index knows.
        return record.groups.of(environment).is_some_and(|membership| membership.is_top);
    }
    let is_of_it = |slot: Slot| view.there(slot).is_some_and(|cause| cause.groups.of(environment).is_some());
    !view.index.causes(record).any(is_of_it)
}

/// What an object of an environment has caused of it, but for Events.
pub(super) fn caused(view: &View<'_>, slot: Slot, environment: EnvironmentId) -> Vec<(Relation, Slot)> {
    let Some(record) = view.index.get(slot) else { return Vec::new() };
    let is_of_it = |other: &Record| !other.kind.is_passing() && other.groups.of(environment).is_some();
    let caused = view.index.caused_how(record).into_iter();
    in_order(view, caused.filter(|(_, other)| view.there(*other).is_some_and(is_of_it)))
}
