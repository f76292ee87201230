//! `ShowEnvironmentTree`, step by step, so that the index can go on between two steps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use events::requests::index::{EnvironmentTree, HealthState, ShowEnvironmentTree, ShowTree};
use events::{AgentId, EnvironmentId, Refusal};

use super::environments::{caused, health_of, is_top};
use super::tree::Growing;
use crate::model::groups::Group;
use crate::model::index::{Place, Slot, counted};
use crate::model::record::{Kind, Record};
use crate::model::view::View;

/// Objects that are looked at in one go.
const LOOKED_AT: usize = 5_000;

/// Where an object at the top stands: the worst first, then by cluster, kind and name.
type Standing = (Reverse<Option<HealthState>>, (AgentId, Kind, Place));

/// The tree of an environment's objects.
///
/// # Errors
/// When there is no such environment, or the asker may not see it.
pub fn environment_tree(request: &ShowEnvironmentTree, view: &View<'_>) -> Result<EnvironmentTree, Refusal> {
    let mut planting = Planting::begin(request, view)?;
    while planting.go_on(view) {}
    planting.finish(view)
}

/// A tree whose top is being looked for.
#[derive(Debug)]
pub struct Planting {
    environment: EnvironmentId,
    behind: Option<(AgentId, Slot)>,
    /// The first ones; of others there is no room in an answer.
    top: BTreeMap<Standing, Slot>,
    /// How many Events there are, which are left out.
    events: u64,
}

impl Planting {
    /// A tree without objects.
    ///
    /// # Errors
    /// When there is no such environment, or the asker may not see it.
    pub fn begin(request: &ShowEnvironmentTree, view: &View<'_>) -> Result<Self, Refusal> {
        let environment = request.environment;
        group(view, environment)?;
        Ok(Self { environment, behind: None, top: BTreeMap::new(), events: 0 })
    }

    /// Looks at some more objects; says whether there may be others.
    pub fn go_on(&mut self, view: &View<'_>) -> bool {
        let (behind, rights) = (self.behind, view.sight.rights());
        let clusters = view.index.clusters_of(self.environment);
        let clusters =
            clusters.filter(|(agent, _)| rights.shows(*agent) && behind.is_none_or(|(of, _)| *agent >= of));
        let slots = clusters.flat_map(|(agent, cluster)| {
            let behind = behind.filter(|(of, _)| *of == agent).map(|(_, slot)| slot);
            cluster.members_behind(behind).map(move |slot| (agent, slot))
        });
        let mut looked_at = 0;
        for (agent, slot) in slots.take(LOOKED_AT) {
            looked_at += 1;
            self.behind = Some((agent, slot));
            let Some(record) = view.there(slot) else { continue };
            if record.kind.is_passing() {
                self.events = self.events.saturating_add(1);
            } else if is_top(view, record, self.environment) {
                self.add(view, record, slot);
            }
        }
        looked_at == LOOKED_AT
    }

    fn add(&mut self, view: &View<'_>, record: &Record, slot: Slot) {
        let state = Reverse(Some(counted(view.verdict(record))).filter(|state| View::is_bad(*state)));
        let is_full = self.top.len() >= ShowTree::NODES;
        let is_behind = |((last, place), _): (&Standing, &Slot)| {
            let (agent, kind, Place { namespace, name, uid }) = place;
            let last = (last, agent, kind, namespace, name, uid);
            (&state, &record.agent, &record.kind, &record.namespace, &record.name, &record.uid) > last
        };
        if is_full && self.top.last_key_value().is_some_and(is_behind) {
            return;
        }
        self.top.insert((state, standing(record)), slot);
        if self.top.len() > ShowTree::NODES {
            self.top.pop_last();
        }
    }

    /// The tree.
    ///
    /// # Errors
    /// When the environment is gone by now, or the asker may not see it any more.
    pub fn finish(self, view: &View<'_>) -> Result<EnvironmentTree, Refusal> {
        let health = health_of(view, group(view, self.environment)?);
        let wanted = BTreeSet::from([self.environment]);
        let mut growing = Growing::within(view, Some(&wanted)).without_count();
        for ((_, place), slot) in self.top {
            // Another object may have its slot by now.
            if view.index.get(slot).is_some_and(|record| standing(record) == place) {
                growing.add(None, slot);
            }
        }
        growing.grow(|view, slot| caused(view, slot, self.environment));
        let nodes = growing.nodes;
        let shown = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
        let left_out = health.objects.saturating_sub(self.events).saturating_sub(shown);
        Ok(EnvironmentTree { health, nodes, left_out, as_of: view.as_of.clone() })
    }
}

fn standing(record: &Record) -> (AgentId, Kind, Place) {
    (record.agent, record.kind.clone(), Place::of(record))
}

fn group<'v>(view: &'v View<'_>, environment: EnvironmentId) -> Result<&'v Group, Refusal> {
    let unknown = || Refusal { field: Some("environment".to_owned()), ..Refusal::not_found("environment") };
    view.environment(environment).ok_or_else(unknown)
}
