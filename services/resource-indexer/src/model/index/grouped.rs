//! Objects by environment, kept as objects and rules change: nothing walks over all objects to find those of an environment.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use events::requests::index::HealthState;
use events::{AgentId, EnvironmentId};

use super::slots::{Slots, change};
use super::{Index, OfKind, Place, Slot, record_in};
use crate::model::groups::{Candidates, Groups, Membership, Memberships};
use crate::model::list::{List, Lists};
use crate::model::record::{Kind, Record, Verdict};
use crate::model::relations::Target;
use crate::model::text::Text;

/// Owners above an object that are followed.
const LEVELS: usize = 32;

/// The environments that have objects in a place, with how many each has.
type Cell = BTreeMap<EnvironmentId, usize>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Grouped {
    pub(super) groups: Arc<Groups>,
    clusters: BTreeMap<EnvironmentId, BTreeMap<AgentId, InCluster>>,
    /// By cluster, kind and namespace: the order in which objects are listed.
    cells: BTreeMap<AgentId, BTreeMap<Kind, BTreeMap<Text, Cell>>>,
    lists: Lists<Membership>,
}

/// The objects of one environment in one cluster.
#[derive(Debug, Default)]
pub struct InCluster {
    members: BTreeSet<Slot>,
    there: u64,
    top: BTreeMap<HealthState, Slots>,
}

impl InCluster {
    /// All of them, those that are gone included.
    pub fn members(&self) -> impl Iterator<Item = Slot> + '_ {
        self.members.iter().copied()
    }

    /// Those behind one, in the order of [`Self::members`].
    pub fn members_behind(&self, behind: Option<Slot>) -> impl Iterator<Item = Slot> + '_ {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.members.range((from, Bound::Unbounded)).copied()
    }

    /// How many are there.
    #[must_use]
    pub const fn there(&self) -> u64 {
        self.there
    }

    /// Those that are there and that no other one has caused, by the state in which they count.
    #[must_use]
    pub const fn top(&self) -> &BTreeMap<HealthState, Slots> {
        &self.top
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// The state in which an object counts for its environment.
#[must_use]
pub fn counted(verdict: &Verdict) -> HealthState {
    if verdict.optional { HealthState::None } else { verdict.state }
}

impl Grouped {
    fn share(&mut self, memberships: Vec<Membership>) -> Memberships {
        let mut list = List::from(memberships);
        self.lists.share(&mut list, |_| {});
        Memberships(list)
    }

    /// Lets go of lists that no object has.
    pub(super) fn sweep(&mut self) {
        self.lists.sweep();
    }

    pub(super) fn forget_agent(&mut self, agent: AgentId) {
        self.cells.remove(&agent);
        self.clusters.retain(|_, clusters| {
            clusters.remove(&agent);
            !clusters.is_empty()
        });
    }

    fn note(&mut self, slot: Slot, record: &Record, adds: bool) {
        for Membership { environment, .. } in record.groups.iter() {
            let clusters = self.clusters.entry(environment).or_default();
            let cluster = clusters.entry(record.agent).or_default();
            if adds {
                cluster.members.insert(slot);
                cluster.there = cluster.there.saturating_add(u64::from(record.is_there()));
            } else {
                cluster.members.remove(&slot);
                cluster.there = cluster.there.saturating_sub(u64::from(record.is_there()));
                if cluster.is_empty() {
                    clusters.remove(&record.agent);
                }
                if clusters.is_empty() {
                    self.clusters.remove(&environment);
                }
            }
            self.note_cell(record, environment, adds);
        }
    }

    fn note_cell(&mut self, record: &Record, environment: EnvironmentId, adds: bool) {
        let known = self.cells.get_mut(&record.agent).and_then(|kinds| kinds.get_mut(&record.kind));
        let known = known.and_then(|namespaces| namespaces.get_mut(&record.namespace));
        if let Some(count) = known.filter(|_| adds).and_then(|cell| cell.get_mut(&environment)) {
            *count = count.saturating_add(1);
            return;
        }
        let kinds = self.cells.entry(record.agent).or_default();
        let namespaces = kinds.entry(record.kind.clone()).or_default();
        let cell = namespaces.entry(record.namespace.clone()).or_default();
        let count = cell.entry(environment).or_default();
        *count = if adds { count.saturating_add(1) } else { count.saturating_sub(1) };
        if *count > 0 {
            return;
        }
        cell.remove(&environment);
        if cell.is_empty() {
            namespaces.remove(&record.namespace);
        }
        if namespaces.is_empty() {
            kinds.remove(&record.kind);
        }
        if kinds.is_empty() {
            self.cells.remove(&record.agent);
        }
    }

    /// Notes an object that is there among those at the top.
    pub(super) fn note_top(&mut self, slot: Slot, record: &Record, adds: bool) {
        let state = counted(record.verdict());
        for membership in record.groups.iter().filter(|membership| membership.is_top) {
            let clusters = self.clusters.entry(membership.environment).or_default();
            let top = &mut clusters.entry(record.agent).or_default().top;
            change(top, state, slot, adds);
        }
    }
}

impl Index {
    /// The environments, with their rules.
    #[must_use]
    pub fn groups(&self) -> &Arc<Groups> {
        &self.grouped.groups
    }

    /// The same with other rules. Objects stay where they are until [`Index::regroup`] was called for each environment that changed.
    pub fn set_groups(&mut self, groups: Arc<Groups>) {
        self.grouped.groups = groups;
    }

    /// Finds the objects of an environment whose rule changed.
    pub fn regroup(&mut self, environment: EnvironmentId) {
        let mut slots: BTreeSet<Slot> =
            self.clusters_of(environment).flat_map(|(_, cluster)| cluster.members()).collect();
        for candidates in self.grouped.groups.candidates(environment) {
            match candidates {
                Candidates::OfSource(agent, source) => {
                    let of_agent = self.by_source.get(&agent);
                    slots.extend(of_agent.and_then(|sources| sources.get(&source)).into_iter().flatten());
                }
                Candidates::InNamespace(agent, namespace) => {
                    let kinds = self.places.get(&agent).into_iter().flat_map(BTreeMap::keys);
                    slots.extend(kinds.flat_map(|kind| self.in_namespace(agent, kind, &namespace)));
                }
                Candidates::Labelled(agent, label) => slots.extend(self.labelled(agent, &label)),
            }
        }
        self.settle(slots);
    }

    /// The clusters in which an environment has objects.
    pub fn clusters_of(&self, environment: EnvironmentId) -> impl Iterator<Item = (AgentId, &InCluster)> {
        let clusters = self.grouped.clusters.get(&environment).into_iter().flatten();
        clusters.map(|(agent, cluster)| (*agent, cluster))
    }

    /// The objects of environments in a cluster, those that are gone included; `None` where they are more than `most`.
    #[must_use]
    pub fn few_of(
        &self,
        environments: &BTreeSet<EnvironmentId>,
        agent: AgentId,
        most: usize,
    ) -> Option<BTreeSet<Slot>> {
        let clusters = &self.grouped.clusters;
        let found = environments.iter().filter_map(|environment| clusters.get(environment)?.get(&agent));
        let mut left = most;
        for cluster in found.clone() {
            left = left.checked_sub(cluster.members.len())?;
        }
        Some(found.flat_map(InCluster::members).collect())
    }

    /// The objects of a kind in the namespaces in which one of the environments has some: from a place on, in the order of places.
    pub fn beside<'a>(
        &'a self,
        (agent, kind, of_kind): (AgentId, &Kind, &'a OfKind),
        environments: &'a BTreeSet<EnvironmentId>,
        from: Place,
    ) -> impl Iterator<Item = Slot> + use<'a> {
        let cells = self.grouped.cells.get(&agent).and_then(|kinds| kinds.get(kind));
        let cells = cells.map(|cells| cells.range(from.namespace.clone()..)).into_iter().flatten();
        let with_some =
            cells.filter(|(_, cell)| cell.keys().any(|environment| environments.contains(environment)));
        with_some.flat_map(move |(namespace, _)| {
            let first = Place { namespace: namespace.clone(), ..Place::default() };
            of_kind.beginning_at(self, &first.max(from.clone()))
        })
    }

    /// The objects that may have belonged to environments at another time: those that do, those in their namespaces, and what has caused
    /// them, with the classes of storage that claims are judged with. At least `most` where there are more.
    #[must_use]
    pub fn around(
        &self,
        environments: &BTreeSet<EnvironmentId>,
        agent: AgentId,
        most: usize,
    ) -> BTreeSet<Slot> {
        let clusters =
            environments.iter().filter_map(|environment| self.grouped.clusters.get(environment)?.get(&agent));
        let mut found: BTreeSet<Slot> = clusters.flat_map(InCluster::members).take(most).collect();
        for namespace in self.grouped.groups.namespaces(environments, agent) {
            let kinds = self.places.get(&agent).into_iter().flat_map(BTreeMap::keys);
            let inside = kinds.flat_map(|kind| self.in_namespace(agent, kind, &namespace));
            found.extend(inside.take(most));
        }
        if found.is_empty() {
            return found;
        }
        found.extend(self.of_kind(agent, &Kind::new("storage.k8s.io", "StorageClass")));
        let mut waiting: Vec<Slot> = found.iter().copied().collect();
        while let Some(slot) = waiting.pop() {
            let causes = self.get(slot).into_iter().flat_map(|record| self.causes(record));
            waiting.extend(causes.filter(|cause| found.insert(*cause)));
        }
        found
    }

    /// What an object was caused by: its owners, and the Service of endpoints.
    pub fn causes<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = Slot> + 'a {
        let links = record.facts.links.iter().filter(|link| link.relation.is_cause());
        links.filter_map(|link| match &link.target {
            Target::Uid(uid, key) => self.owner(record.agent, uid, &key.kind),
            Target::Key(key) => self.there(record.agent, key),
            Target::Labels(..) | Target::Claims(..) => None,
        })
    }

    /// What an object has caused, those that are gone included.
    #[must_use]
    pub fn caused(&self, record: &Record) -> BTreeSet<Slot> {
        self.caused_how(record).into_iter().map(|(_, slot)| slot).collect()
    }

    /// Notes an object in what finds the objects of its environments, or takes it out.
    pub(super) fn note_groups(&mut self, slot: Slot, adds: bool) {
        let Self { slots, grouped, .. } = self;
        if let Some(record) = record_in(slots, slot) {
            grouped.note(slot, record, adds);
        }
    }

    /// See [`Grouped::note_top`].
    pub(super) fn note_top(&mut self, slot: Slot, adds: bool) {
        let Self { slots, grouped, .. } = self;
        if let Some(record) = record_in(slots, slot).filter(|record| record.is_there()) {
            grouped.note_top(slot, record, adds);
        }
    }

    /// Finds the environments of an object that was put in, and of what it has caused, where that matters.
    pub(super) fn settle_one(&mut self, slot: Slot, was_there: bool) {
        let is_there = self.get(slot).is_some_and(Record::is_there);
        if self.group(slot) || (was_there != is_there && self.has_groups(slot)) {
            let below = self.get(slot).map(|record| self.caused(record)).unwrap_or_default();
            self.settle(below);
        }
    }

    fn has_groups(&self, slot: Slot) -> bool {
        self.get(slot).is_some_and(|record| !record.groups.0.is_empty())
    }

    /// Finds the environments of objects, and of all that they have caused.
    pub(super) fn settle(&mut self, slots: BTreeSet<Slot>) {
        // Each comes to rest: the environments of an object follow from what stands above it alone, also in a ring of owners.
        let mut waiting: Vec<Slot> = slots.into_iter().collect();
        while let Some(slot) = waiting.pop() {
            if self.group(slot) {
                waiting.extend(self.get(slot).map(|record| self.caused(record)).unwrap_or_default());
            }
        }
    }

    /// Finds the environments of one object; says whether they are others now.
    fn group(&mut self, slot: Slot) -> bool {
        let Some(record) = self.get(slot) else { return false };
        if self.grouped.groups.is_empty() && record.groups.0.is_empty() {
            return false;
        }
        let found = self.memberships(slot, record);
        if record.groups.iter().eq(found.iter().copied()) {
            return false;
        }
        self.note_top(slot, false);
        self.note_groups(slot, false);
        let groups = self.grouped.share(found);
        if let Some(record) = self.get_mut(slot) {
            record.groups = groups;
        }
        self.note_groups(slot, true);
        self.note_top(slot, true);
        true
    }

    fn memberships(&self, slot: Slot, record: &Record) -> Vec<Membership> {
        // There are few of each: lists are quicker than sets.
        let direct: Vec<Slot> = self.causes(record).collect();
        let mut named: Vec<EnvironmentId> = self.grouped.groups.naming(record).collect();
        let mut passed = vec![slot];
        let mut waiting = Vec::new();
        let mut pass = |causes: &mut dyn Iterator<Item = Slot>, waiting: &mut Vec<Slot>| {
            for cause in causes {
                if !passed.contains(&cause) {
                    passed.push(cause);
                    waiting.push(cause);
                }
            }
            passed.len() <= LEVELS
        };
        let mut goes_on = pass(&mut direct.iter().copied(), &mut waiting);
        while let Some(found) = waiting.pop() {
            let Some(found) = self.get(found) else { continue };
            named.extend(self.grouped.groups.naming(found));
            if goes_on {
                goes_on = pass(&mut self.causes(found), &mut waiting);
            }
        }
        if named.is_empty() {
            return Vec::new();
        }
        named.sort_unstable();
        named.dedup();
        let causes = direct.iter().filter_map(|cause| self.get(*cause)).filter(|cause| cause.is_there());
        let causes: Vec<&Record> = causes.collect();
        let is_top = |environment| causes.iter().all(|cause| cause.groups.of(environment).is_none());
        let member = |environment| Membership { environment, is_top: is_top(environment) };
        named.into_iter().map(member).collect()
    }
}
