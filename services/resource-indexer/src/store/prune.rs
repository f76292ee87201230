//! What leaves: changes from before the log's horizon, but for each object's newest state.

use std::collections::BTreeMap;

use events::position::Stream;
use events::{AgentId, Position, Timestamp};
use redb::WriteTransaction;

use super::chain::Chain;
use super::keys::{change_key, object_key};
use super::read::full_row_with;
use super::{CHANGES, OBJECTS, RECENT, STATED, Store, StoreError, get, guarded, put, remove, timeline};
use crate::model::{Index, Text};

/// Changes that leave in one transaction, or a few more.
const AT_ONCE: usize = 5_000;
/// Agents that are looked at in one transaction.
const AGENTS: usize = 500;

/// What left in one transaction.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many changes.
    pub changes: usize,
    /// Objects that were gone, and of which nothing is kept any more.
    pub objects: Vec<(AgentId, Text)>,
    /// When the newest of those changes was recorded.
    pub until: Option<Timestamp>,
    /// There may be more.
    pub has_more: bool,
    /// The last agent of which nothing more leaves.
    pub done: Option<AgentId>,
}

impl Store {
    /// Removes changes up to the horizon of the objects' stream, of agents behind one.
    ///
    /// # Errors
    /// When the database does not work; then nothing is removed.
    pub fn prune(
        &self,
        horizon: &Position,
        index: &Index,
        behind: Option<AgentId>,
    ) -> Result<Pruned, StoreError> {
        guarded("pruning", || self.prune_some(horizon, index, behind))
    }

    fn prune_some(
        &self,
        horizon: &Position,
        index: &Index,
        behind: Option<AgentId>,
    ) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned { done: behind, ..Pruned::default() };
        // The newest change before the horizon of each object: it is kept as the state from which the others go on.
        let mut bases: BTreeMap<(AgentId, Text), u64> = BTreeMap::new();
        let writing = self.begin()?;
        let agents = timeline::agents_behind(&writing, behind, AGENTS)?;
        pruned.has_more = agents.len() >= AGENTS;
        for agent in agents {
            let until = horizon.sequence((Stream::Objects, self.partitions.of(agent)));
            let left = AT_ONCE.saturating_sub(pruned.changes);
            for change in timeline::take_oldest(&writing, agent, until, left)? {
                pruned.changes = pruned.changes.saturating_add(1);
                pruned.until = pruned.until.max(Some(change.recorded_at));
                bases.insert((change.agent, change.uid), change.number);
            }
            if pruned.changes >= AT_ONCE {
                pruned.has_more = true;
                break;
            }
            pruned.done = Some(agent);
        }
        for ((agent, uid), number) in bases {
            let record = index.by_uid(agent, &uid).and_then(|slot| index.get(slot));
            let is_over = record.is_none_or(|record| !record.is_there() && record.changes() <= number);
            let object = object_key(agent, &uid);
            if is_over {
                remove_before(&writing, &object, u64::MAX)?;
                for table in [OBJECTS, RECENT, STATED] {
                    remove(&writing, table, &object)?;
                }
                pruned.objects.push((agent, uid));
            } else {
                remove_before(&writing, &object, number)?;
                cut(&writing, &object, number)?;
            }
        }
        writing.commit().map_err(StoreError::of)?;
        Ok(pruned)
    }
}

/// Removes an object's rows of which all changes are before one.
fn remove_before(writing: &WriteTransaction, object: &[u8], before: u64) -> Result<(), StoreError> {
    let mut table = writing.open_table(CHANGES).map_err(StoreError::of)?;
    let (first, last) = (change_key(object, 0), change_key(object, before));
    table.retain_in(first.as_slice()..last.as_slice(), |_, _| false).map_err(StoreError::of)
}

/// Removes what is before a change from an object's oldest row, and makes the change the base of what follows.
fn cut(writing: &WriteTransaction, object: &[u8], number: u64) -> Result<(), StoreError> {
    let full = {
        let table = writing.open_table(CHANGES).map_err(StoreError::of)?;
        let row = full_row_with(&table, object, number)?;
        row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec()))
    };
    let (table, key, row) = match full {
        Some((key, row)) => (CHANGES, key, row),
        None => match get(writing, RECENT, object)? {
            Some(row) => (RECENT, object.to_vec(), row),
            None => return Ok(()),
        },
    };
    let chain = Chain::read(&row)?;
    let mut changes = chain.changes().map_err(|error| StoreError::encoding(&error))?;
    changes.retain(|change| change.number >= number);
    if let Some(base) = changes.first_mut().filter(|base| base.number == number) {
        base.is_listed = false;
    }
    put(writing, table, &key, &Chain::of(&changes, chain.body).row())
}
