//! `ShowTree`: what hangs below objects, by controllers first and then by the relations of workloads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use events::requests::index::{ObjectTree, ShowTree, TreeNode};
use events::{EnvironmentId, Refusal};

use super::roots;
use crate::model::filter::Matcher;
use crate::model::index::{Place, Slot};
use crate::model::record::Record;
use crate::model::relations::Relation;
use crate::model::view::View;

/// The tree below the objects that match. Each object stands in it once, at the place that is nearest to a root; what hangs on itself
/// ends there.
///
/// # Errors
/// A filter that cannot be read, or matches too many.
pub fn tree(request: &ShowTree, view: &View<'_>) -> Result<ObjectTree, Refusal> {
    let matcher = Matcher::read(&request.filter, view)?;
    let roots = roots(&matcher, view)?;
    let roots = top_level(view, &roots);
    let mut growing = Growing::within(view, matcher.environments());
    for slot in roots {
        growing.add(None, slot);
    }
    growing.grow(below);
    Ok(ObjectTree { nodes: growing.nodes, left_out: growing.left_out, as_of: view.as_of.clone() })
}

/// Objects beyond the nodes of an answer that are counted. Folding waits while they are.
const COUNTED: u64 = 20_000;

/// A tree that grows, the nearest to its roots first.
pub(super) struct Growing<'v, 'a> {
    pub(super) nodes: Vec<TreeNode>,
    left_out: u64,
    is_counting: bool,
    view: &'v View<'a>,
    environments: Option<&'v BTreeSet<EnvironmentId>>,
    known: BTreeSet<Slot>,
    /// Nodes whose children are still to come; those that were left out have none.
    waiting: VecDeque<(Slot, Option<u32>)>,
}

impl<'v, 'a> Growing<'v, 'a> {
    /// Of objects that were looked for in these environments.
    pub(super) fn within(view: &'v View<'a>, environments: Option<&'v BTreeSet<EnvironmentId>>) -> Self {
        let (nodes, known, waiting) = (Vec::new(), BTreeSet::new(), VecDeque::new());
        Self { nodes, left_out: 0, is_counting: true, view, environments, known, waiting }
    }

    /// One that ends once it has enough nodes, as somebody else knows how many there are.
    pub(super) fn without_count(mut self) -> Self {
        self.is_counting = false;
        self
    }

    /// Adds what is below, as `below` names it.
    pub(super) fn grow(&mut self, below: impl Fn(&View<'_>, Slot) -> Vec<(Relation, Slot)>) {
        while let Some((slot, place)) = self.waiting.pop_front() {
            let is_full = self.nodes.len() >= ShowTree::NODES;
            if is_full && (!self.is_counting || self.left_out >= COUNTED) {
                return;
            }
            for (relation, child) in below(self.view, slot) {
                self.add(Some((place, relation)), child);
            }
        }
    }

    /// Adds a node.
    pub(super) fn add(&mut self, parent: Option<(Option<u32>, Relation)>, slot: Slot) {
        let Some(record) = self.view.there(slot).filter(|_| !self.known.contains(&slot)) else { return };
        self.known.insert(slot);
        if self.nodes.len() >= ShowTree::NODES {
            self.left_out = self.left_out.saturating_add(1);
            self.waiting.push_back((slot, None));
            return;
        }
        let place = u32::try_from(self.nodes.len()).ok();
        self.nodes.push(TreeNode {
            parent: parent.and_then(|(place, _)| place),
            relation: parent
                .map(|(_, relation)| self.view.index.relation_name(record.agent, relation).to_owned()),
            object: self.view.line_in(record, self.environments),
        });
        self.waiting.push_back((slot, place));
    }
}

/// Those of the objects that are below none of the others by their controllers.
fn top_level(view: &View<'_>, found: &[&Record]) -> Vec<Slot> {
    let slots: Vec<Slot> =
        found.iter().filter_map(|record| view.index.by_uid(record.agent, &record.uid)).collect();
    let all: BTreeSet<Slot> = slots.iter().copied().collect();
    let is_below = |slot: &Slot| {
        let (mut at, mut passed, mut is_below) = (*slot, BTreeSet::from([*slot]), false);
        while let Some(above) =
            view.index.get(at).and_then(|record| crate::model::judge::controller_of(view.index, record))
        {
            if !passed.insert(above) {
                // A ring of owners is below nothing: each object of it is shown.
                return false;
            }
            is_below |= all.contains(&above) && view.there(above).is_some();
            at = above;
        }
        is_below
    };
    slots.into_iter().filter(|slot| !is_below(slot)).collect()
}

/// What is below an object and can be seen: what it controls first, then by relation, kind and name.
pub(super) fn below(view: &View<'_>, slot: Slot) -> Vec<(Relation, Slot)> {
    let Some(record) = view.index.get(slot) else { return Vec::new() };
    let named = view.index.targets(record).filter(|(how, _)| how.is_of_trees() && !how.names_upper());
    let naming = view.index.sources(record);
    let naming = naming.into_iter().filter(|(how, _)| how.is_of_trees() && how.names_upper());
    in_order(view, named.chain(naming).filter(|(_, other)| view.there(*other).is_some()))
}

/// Each object once, by relation, kind and place. Of several relations to one object the first counts.
pub(super) fn in_order(
    view: &View<'_>,
    related: impl Iterator<Item = (Relation, Slot)>,
) -> Vec<(Relation, Slot)> {
    let mut nearest: BTreeMap<Slot, Relation> = BTreeMap::new();
    for (relation, other) in related {
        let known = nearest.entry(other).or_insert(relation);
        *known = relation.min(*known);
    }
    let mut found: Vec<(Relation, Slot)> = nearest.into_iter().map(|(other, how)| (how, other)).collect();
    found.sort_by_cached_key(|(relation, other)| {
        (*relation, view.index.get(*other).map(|record| (record.kind.clone(), Place::of(record))))
    });
    found
}
