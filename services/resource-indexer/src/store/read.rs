//! Reading the database, as it was when the reader was made.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use events::{AgentId, Timestamp};
use parking_lot::Mutex;
use redb::{AccessGuard, ReadOnlyTable, ReadTransaction, ReadableTable};

use super::chain::{Chain, InRow, StoredChange};
use super::keys::{Partitions, change_key, object_key};
use super::timeline::{self, Entry};
use super::{AGENTS, CHANGES, META, RECENT, STANDING_KEY, Standing, StoreError, TIMELINE, Table, decode};
use crate::model::Observed;

/// One consistent state of the database.
pub struct Reader {
    reading: ReadTransaction,
    partitions: Partitions,
    /// The tables of changes, opened once: to open one is to look it up.
    changes: OnceLock<Opened>,
    recent: OnceLock<Opened>,
    /// The row that was read last, and its key: what is asked next of an object is mostly in the same one.
    last: Mutex<Option<(Vec<u8>, Arc<Row>)>>,
}

/// A table that was opened for reading.
pub(super) type Opened = ReadOnlyTable<&'static [u8], &'static [u8]>;

pub(super) type Pair<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

/// Changes that follow each other, the oldest first, and the body after the newest.
pub(super) struct Row {
    chain: Chain,
    changes: Vec<InRow>,
}

impl Row {
    pub(super) fn read(row: &[u8]) -> Result<Self, StoreError> {
        let chain = Chain::read(row)?;
        let changes = chain.in_row().map_err(|error| StoreError::encoding(&error))?;
        Ok(Self { chain, changes })
    }

    /// The newest change up to a number that is such a one.
    pub(super) fn newest(&self, until: u64, is_such: impl Fn(&InRow) -> bool) -> Option<StoredChange> {
        let found = self.changes.iter().rev().find(|change| change.number <= until && is_such(change));
        found.map(|change| self.chain.stored(change))
    }

    /// Changes up to a number, the newest first.
    fn back(self: Arc<Self>, until: u64) -> impl Iterator<Item = StoredChange> {
        (0..self.changes.len()).rev().filter_map(move |place| {
            let change = self.changes.get(place).filter(|change| change.number <= until)?;
            Some(self.chain.stored(change))
        })
    }

    /// The number before the oldest change, where changes up to `until` may be in another row.
    pub(super) fn before(&self, until: u64) -> Option<u64> {
        // What is before the oldest one has left.
        let first = self.changes.first().map(|first| first.number).filter(|first| *first <= until);
        first.and_then(|first| first.checked_sub(1))
    }

    /// The body after a change.
    pub(super) fn body_after(&self, number: u64) -> Result<Option<Bytes>, StoreError> {
        let mut body = self.chain.body.clone();
        for change in self.changes.iter().rev().take_while(|change| change.number > number) {
            body = change.before.body(body.as_ref()).map_err(|error| StoreError::encoding(&error))?;
        }
        Ok(body)
    }
}

/// The full row that has a change of an object, or the next one behind it; `None` where the newest row has it.
pub(super) fn full_row_with<'a>(
    changes: &'a impl ReadableTable<&'static [u8], &'static [u8]>,
    object: &[u8],
    number: u64,
) -> Result<Option<Pair<'a>>, StoreError> {
    let (first, last) = (change_key(object, number), change_key(object, u64::MAX));
    let mut rows = changes.range(first.as_slice()..=last.as_slice()).map_err(StoreError::of)?;
    rows.next().transpose().map_err(StoreError::of)
}

impl Reader {
    pub(super) fn new(reading: ReadTransaction, partitions: Partitions) -> Self {
        let (changes, recent) = (OnceLock::new(), OnceLock::new());
        Self { reading, partitions, changes, recent, last: Mutex::new(None) }
    }

    /// How the log's streams are cut.
    #[must_use]
    pub const fn partitions(&self) -> Partitions {
        self.partitions
    }

    pub(super) fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.reading.open_table(META) {
            Ok(table) => Ok(table.get(key).map_err(StoreError::of)?.map(|value| value.value().to_vec())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(StoreError::of(error)),
        }
    }

    fn opened<'a>(&self, table: Table, known: &'a OnceLock<Opened>) -> Result<&'a Opened, StoreError> {
        if let Some(table) = known.get() {
            return Ok(table);
        }
        let table = self.reading.open_table(table).map_err(StoreError::of)?;
        Ok(known.get_or_init(|| table))
    }

    pub(super) fn recent(&self) -> Result<&Opened, StoreError> {
        self.opened(RECENT, &self.recent)
    }

    pub(super) fn full_rows(&self) -> Result<&Opened, StoreError> {
        self.opened(CHANGES, &self.changes)
    }

    /// Where the fold stands.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn standing(&self) -> Result<Standing, StoreError> {
        Ok(self.meta(STANDING_KEY)?.map(|bytes| decode(&bytes)).transpose()?.unwrap_or_default())
    }

    pub(super) fn table(&self, table: Table) -> Result<Opened, StoreError> {
        self.reading.open_table(table).map_err(StoreError::of)
    }

    pub(super) fn agents(&self) -> Result<BTreeMap<AgentId, Observed>, StoreError> {
        let table = self.reading.open_table(AGENTS).map_err(StoreError::of)?;
        let mut found = BTreeMap::new();
        for row in table.iter().map_err(StoreError::of)? {
            let (key, value) = row.map_err(StoreError::of)?;
            if let Ok(id) = uuid::Uuid::from_slice(key.value()) {
                found.insert(AgentId(id), decode(value.value())?);
            }
        }
        Ok(found)
    }

    /// The newest body of an object, where it is known.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn body(&self, agent: AgentId, uid: &str) -> Result<Option<Bytes>, StoreError> {
        let key = object_key(agent, uid);
        let row = self.recent()?.get(key.as_slice()).map_err(StoreError::of)?;
        Ok(row.map(|row| Chain::read(row.value())).transpose()?.and_then(|chain| chain.body))
    }

    /// One change of an object; `None` when it has left.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn change(&self, agent: AgentId, uid: &str, number: u64) -> Result<Option<StoredChange>, StoreError> {
        let row = self.row_with(&object_key(agent, uid), number)?;
        Ok(row.and_then(|row| row.newest(number, |change| change.number == number)))
    }

    /// The row that has a change, or the next one behind it.
    pub(super) fn row_with(&self, object: &[u8], number: u64) -> Result<Option<Arc<Row>>, StoreError> {
        let full = full_row_with(self.full_rows()?, object, number)?;
        let key = full.as_ref().map_or(object, |(key, _)| key.value());
        let mut last = self.last.lock();
        if let Some((_, row)) = last.as_ref().filter(|(known, _)| known == key) {
            return Ok(Some(Arc::clone(row)));
        }
        let row = match &full {
            Some((_, row)) => Row::read(row.value())?,
            None => match self.recent()?.get(object).map_err(StoreError::of)? {
                Some(row) => Row::read(row.value())?,
                None => return Ok(None),
            },
        };
        let row = Arc::new(row);
        *last = Some((key.to_vec(), Arc::clone(&row)));
        Ok(Some(row))
    }

    /// Changes of an object from one on backwards, the newest first.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn changes_back(
        &self,
        agent: AgentId,
        uid: &str,
        from: u64,
    ) -> Result<impl Iterator<Item = Result<StoredChange, StoreError>> + use<'_>, StoreError> {
        let object = object_key(agent, uid);
        let mut next = Some(from);
        let rows = std::iter::from_fn(move || {
            let from = next.take()?;
            let row = match self.row_with(&object, from) {
                Ok(row) => row?,
                Err(error) => {
                    return Some(Box::new(std::iter::once(Err(error))) as Box<dyn Iterator<Item = _>>);
                }
            };
            next = row.before(from);
            Some(Box::new(row.back(from).map(Ok)))
        });
        Ok(rows.flatten())
    }

    /// The body after a change, where it is known.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn body_after(&self, agent: AgentId, uid: &str, number: u64) -> Result<Option<Bytes>, StoreError> {
        let row = self.row_with(&object_key(agent, uid), number)?;
        row.map_or(Ok(None), |row| row.body_after(number))
    }

    /// Changes of an agent that were recorded until a moment, the newest first.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn timeline_back(
        &self,
        agent: AgentId,
        until: Option<Timestamp>,
    ) -> Result<impl Iterator<Item = Result<Entry, StoreError>> + use<>, StoreError> {
        let table = self.reading.open_table(TIMELINE).map_err(StoreError::of)?;
        timeline::back_from(&table, agent, until)
    }
}
