//! What is removed before its time: objects of which nothing is kept, and agents that were deleted.

use std::collections::{BTreeMap, BTreeSet};

use events::{AgentId, Timestamp};
use redb::{ReadableTable as _, WriteTransaction};

use super::chain::Chain;
use super::keys::object_key;
use super::{
    CHANGES, OBJECTS, RECENT, STATED, Store, StoreError, TIMELINE, Table, guarded, remove, timeline,
};
use crate::model::Text;

/// Rows that are removed in one transaction.
const AT_ONCE: usize = 5_000;

impl Store {
    /// Removes some of what is kept of an agent; says whether there is more.
    ///
    /// # Errors
    /// When the database does not work; then nothing is removed.
    pub fn forget_some(&self, agent: AgentId) -> Result<bool, StoreError> {
        guarded("removing", || {
            let writing = self.begin()?;
            let mut left = AT_ONCE;
            for table in [TIMELINE, CHANGES, OBJECTS, RECENT, STATED] {
                for key in keys_with_prefix(&writing, table, agent.0.as_bytes(), left)? {
                    remove(&writing, table, &key)?;
                    left = left.saturating_sub(1);
                }
            }
            writing.commit().map_err(StoreError::of)?;
            Ok(left == 0)
        })
    }
}

/// UIDs, and when changes of them were recorded.
type Erased = (BTreeSet<Text>, BTreeSet<(Timestamp, u64)>);

/// Removes all that is kept of some objects.
pub(super) fn erase(
    writing: &WriteTransaction,
    objects: &BTreeSet<(AgentId, Text)>,
) -> Result<(), StoreError> {
    let mut of_agents: BTreeMap<AgentId, Erased> = BTreeMap::new();
    for (agent, uid) in objects {
        let object = object_key(*agent, uid);
        let (uids, moments) = of_agents.entry(*agent).or_default();
        uids.insert(uid.clone());
        for table in [CHANGES, RECENT] {
            for (key, row) in rows_of(writing, table, &object)? {
                let changes = Chain::read(&row)?.changes().map_err(|error| StoreError::encoding(&error))?;
                moments.extend(changes.iter().map(|change| (change.recorded_at, change.sequence)));
                remove(writing, table, &key)?;
            }
        }
        for table in [OBJECTS, STATED] {
            remove(writing, table, &object)?;
        }
    }
    let mut of_agents = of_agents.into_iter();
    of_agents.try_for_each(|(agent, (uids, moments))| timeline::take_away(writing, agent, &uids, moments))
}

type Row = (Vec<u8>, Vec<u8>);

fn rows_of(writing: &WriteTransaction, table: Table, object: &[u8]) -> Result<Vec<Row>, StoreError> {
    let table = writing.open_table(table).map_err(StoreError::of)?;
    let mut rows = Vec::new();
    for row in table.range(object..).map_err(StoreError::of)? {
        let (key, value) = row.map_err(StoreError::of)?;
        if !key.value().starts_with(object) {
            break;
        }
        rows.push((key.value().to_vec(), value.value().to_vec()));
    }
    Ok(rows)
}

fn keys_with_prefix(
    writing: &WriteTransaction,
    table: Table,
    prefix: &[u8],
    most: usize,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let table = writing.open_table(table).map_err(StoreError::of)?;
    let mut keys = Vec::new();
    for row in table.range(prefix..).map_err(StoreError::of)?.take(most) {
        let (key, _) = row.map_err(StoreError::of)?;
        if !key.value().starts_with(prefix) {
            break;
        }
        keys.push(key.value().to_vec());
    }
    Ok(keys)
}
