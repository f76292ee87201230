//! One pass over the rows of many objects. Each look-up goes down a tree of pages; who asks for objects in the order of their keys mostly
//! finds the next one beside the one before.

use std::sync::Arc;

use bytes::Bytes;
use events::{AgentId, Timestamp};
use redb::Range;

use super::StoreError;
use super::chain::StoredChange;
use super::keys::{change_key, object_key};
use super::read::{Opened, Pair, Reader, Row};

/// Rows of other objects that are stepped over before the next one is looked up.
const STEPS: usize = 8;

/// What decides whether a change counts for a moment.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// In which record of the log.
    pub sequence: u64,
}

/// What a pass found of an object.
pub struct Found {
    /// The change.
    pub change: StoredChange,
    row: Arc<Row>,
}

impl Found {
    /// The body after the change, where it is known.
    ///
    /// # Errors
    /// When what is kept is damaged.
    pub fn body(&self) -> Result<Option<Bytes>, StoreError> {
        self.row.body_after(self.change.number)
    }
}

/// See the module.
pub struct Pass<'a> {
    reader: &'a Reader,
    full: Ahead<'a>,
    recent: Ahead<'a>,
}

impl Reader {
    /// Begins a pass.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn pass(&self) -> Result<Pass<'_>, StoreError> {
        let (full, recent) = (Ahead::of(self.full_rows()?), Ahead::of(self.recent()?));
        Ok(Pass { reader: self, full, recent })
    }

    /// By what a pass goes from object to object.
    #[must_use]
    pub fn place_in_pass(agent: AgentId, uid: &str) -> Vec<u8> {
        object_key(agent, uid)
    }
}

impl Pass<'_> {
    /// The newest change of an object up to a number that counts.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn newest(
        &mut self,
        object: &[u8],
        mut until: u64,
        counts: impl Fn(Told) -> bool,
    ) -> Result<Option<Found>, StoreError> {
        let mut found = self.row_with(object, until)?;
        while let Some(row) = found {
            let counts = |recorded_at, sequence| counts(Told { recorded_at, sequence });
            if let Some(change) = row.newest(until, |change| counts(change.recorded_at, change.sequence)) {
                return Ok(Some(Found { change, row }));
            }
            let Some(before) = row.before(until) else { break };
            until = before;
            found = self.reader.row_with(object, until)?;
        }
        Ok(None)
    }

    /// The row that has a change, or the next one behind it.
    fn row_with(&mut self, object: &[u8], number: u64) -> Result<Option<Arc<Row>>, StoreError> {
        let full = self.full.seek(&change_key(object, number))?.filter(|(key, _)| {
            key.value().strip_prefix(object).is_some_and(|number| number.len() == size_of::<u64>())
        });
        let row = match full {
            Some(row) => Some(row),
            None => self.recent.seek(object)?.filter(|(key, _)| key.value() == object),
        };
        row.map(|(_, row)| Row::read(row.value()).map(Arc::new)).transpose()
    }
}

/// Rows of a table from a place on.
struct Ahead<'a> {
    table: &'a Opened,
    rows: Option<Range<'static, &'static [u8], &'static [u8]>>,
    next: Option<Pair<'static>>,
    /// What was looked for last.
    at: Vec<u8>,
}

impl<'a> Ahead<'a> {
    const fn of(table: &'a Opened) -> Self {
        Self { table, rows: None, next: None, at: Vec::new() }
    }

    /// The first row from a key on.
    fn seek(&mut self, key: &[u8]) -> Result<Option<&Pair<'static>>, StoreError> {
        let goes_on = self.at.as_slice() <= key;
        key.clone_into(&mut self.at);
        for _ in 0..STEPS {
            let Some(rows) = self.rows.as_mut().filter(|_| goes_on) else { break };
            if self.next.as_ref().is_none_or(|(next, _)| next.value() >= key) {
                return Ok(self.next.as_ref());
            }
            self.next = rows.next().transpose().map_err(StoreError::of)?;
        }
        let mut rows = self.table.range(key..).map_err(StoreError::of)?;
        self.next = rows.next().transpose().map_err(StoreError::of)?;
        self.rows = Some(rows);
        Ok(self.next.as_ref())
    }
}
