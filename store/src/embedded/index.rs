//! The index: a database, and in front of it what the database does not hold yet.
//!
//! It answers where an aggregate's commits lie and which commit ids its history has. It can be thrown away at any time: it
//! only ever holds what the segments hold durably, it says up to where, and the rest is read from the segments again.

use std::collections::HashMap;
use std::sync::Arc;

use events::{ChainHash, CommitId};
use parking_lot::{Condvar, Mutex};
use redb::{ReadOnlyTable, TableDefinition};

use super::database::{Database, Durability, IndexError, StoredCursor, cursor_bytes, read_cursor};
use super::record::AggregateKey;
use super::segments::Cursor;

/// Where each version of each aggregate lies: aggregate and version to place.
const PLACES: TableDefinition<'_, &[u8; 24], &StoredCursor> = TableDefinition::new("places");
/// Which version a commit is: aggregate and commit id to version.
const COMMITS: TableDefinition<'_, &[u8; 32], u64> = TableDefinition::new("commits");

/// So many entries wait in memory before they go into the database together.
const BATCH: usize = 8192;

/// With so many waiting, whoever adds more waits.
const MOST_WAITING: usize = 64 * 1024;

/// Entries between two syncs of the database. After a crash at most so many (and a batch) are read from the segments again.
const FLUSH_EVERY: usize = 16 * 1024;

/// Heads of aggregates that are kept at hand, in each of two generations.
const HEADS: usize = 2048;

/// A commit that became durable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: AggregateKey,
    pub(super) version: u64,
    pub(super) commit: CommitId,
    pub(super) at: Cursor,
}

/// The newest commit of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AggregateHead {
    pub(super) version: u64,
    pub(super) hash: ChainHash,
}

impl AggregateHead {
    pub(super) const NONE: Self = Self { version: 0, hash: ChainHash([0; 32]) };
}

/// Entries that are not in the database yet.
#[derive(Default)]
struct Waiting {
    entries: Vec<Entry>,
    commits: HashMap<(AggregateKey, CommitId), u64>,
    places: HashMap<AggregateKey, Vec<(u64, Cursor)>>,
    covered: Option<Cursor>,
}

impl Waiting {
    fn add(&mut self, entry: Entry) {
        self.commits.insert((entry.key, entry.commit), entry.version);
        self.places.entry(entry.key).or_default().push((entry.version, entry.at));
        self.entries.push(entry);
    }
}

#[derive(Default)]
struct Recent {
    /// Taken by the next batch.
    young: Waiting,
    /// Being written into the database.
    old: Arc<Waiting>,
    heads: HashMap<AggregateKey, AggregateHead>,
    older_heads: HashMap<AggregateKey, AggregateHead>,
    closing: bool,
    unflushed: usize,
}

impl Recent {
    fn remember(&mut self, key: AggregateKey, head: AggregateHead) {
        if self.heads.len() >= HEADS {
            self.older_heads = std::mem::take(&mut self.heads);
        }
        self.heads.insert(key, head);
    }
}

/// The tables as of the last write.
struct Tables {
    places: ReadOnlyTable<&'static [u8; 24], &'static StoredCursor>,
    commits: ReadOnlyTable<&'static [u8; 32], u64>,
}

impl Tables {
    fn of(database: &Database) -> Result<Arc<Self>, IndexError> {
        let reading = database.read()?;
        Ok(Arc::new(Self {
            places: reading.open_table(PLACES).map_err(IndexError::of)?,
            commits: reading.open_table(COMMITS).map_err(IndexError::of)?,
        }))
    }
}

/// The index of the decisions.
pub(super) struct Index {
    database: Database,
    /// Kept open: each append looks into them.
    tables: Mutex<Arc<Tables>>,
    recent: Mutex<Recent>,
    wake: Condvar,
}

impl Index {
    pub(super) fn open(database: Database) -> Result<Self, IndexError> {
        database.write(Durability::Deferred, |writing| {
            writing.open_table(PLACES).map_err(IndexError::of)?;
            writing.open_table(COMMITS).map_err(IndexError::of)?;
            Ok(())
        })?;
        let tables = Mutex::new(Tables::of(&database)?);
        Ok(Self { database, tables, recent: Mutex::default(), wake: Condvar::new() })
    }

    /// Everything before this place is in the database.
    pub(super) fn covered(&self) -> Result<Option<Cursor>, IndexError> {
        self.database.covered()
    }

    /// Forgets everything, to be filled from the segments.
    pub(super) fn clear(&self) -> Result<(), IndexError> {
        self.database.write(Durability::Immediate, |writing| {
            writing.delete_table(PLACES).map_err(IndexError::of)?;
            writing.delete_table(COMMITS).map_err(IndexError::of)?;
            writing.open_table(PLACES).map_err(IndexError::of)?;
            writing.open_table(COMMITS).map_err(IndexError::of)?;
            Database::clear_covered(writing)
        })?;
        self.see_what_was_written()
    }

    fn see_what_was_written(&self) -> Result<(), IndexError> {
        *self.tables.lock() = Tables::of(&self.database)?;
        Ok(())
    }

    fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.tables.lock())
    }

    /// Lets the next start make the index anew.
    pub(super) fn distrust(&self) {
        self.database.distrust();
    }

    /// Takes durable entries; `covered` is the place behind them. Waits while very many wait already.
    pub(super) fn add(&self, entries: &[Entry], covered: Cursor) {
        let mut recent = self.recent.lock();
        while recent.young.entries.len() >= MOST_WAITING && !recent.closing {
            self.wake.wait(&mut recent);
        }
        for entry in entries {
            recent.young.add(*entry);
        }
        recent.young.covered = Some(covered);
        if recent.young.entries.len() >= BATCH {
            self.wake.notify_all();
        }
    }

    /// Keeps an aggregate's newest commit at hand.
    pub(super) fn remember(&self, heads: impl Iterator<Item = (AggregateKey, AggregateHead)>) {
        let mut recent = self.recent.lock();
        for (key, head) in heads {
            recent.remember(key, head);
        }
    }

    /// An aggregate's newest commit, if it is at hand.
    pub(super) fn head_at_hand(&self, key: AggregateKey) -> Option<AggregateHead> {
        let recent = self.recent.lock();
        recent.heads.get(&key).or_else(|| recent.older_heads.get(&key)).copied()
    }

    /// Version and place of an aggregate's newest commit.
    pub(super) fn newest(&self, key: AggregateKey) -> Result<Option<(u64, Cursor)>, IndexError> {
        {
            let recent = self.recent.lock();
            let waiting = [&recent.young, recent.old.as_ref()];
            if let Some(newest) = waiting.iter().find_map(|waiting| waiting.places.get(&key)?.last()) {
                return Ok(Some(*newest));
            }
        }
        let (first, last) = (place_key(key, 0), place_key(key, u64::MAX));
        let mut found = self.tables().places.range::<&[u8; 24]>(&first..=&last).map_err(IndexError::of)?;
        found.next_back().transpose().map_err(IndexError::of)?.map(|entry| read_place(&entry)).transpose()
    }

    /// The version that a commit id has in an aggregate's history.
    pub(super) fn version_of(&self, key: AggregateKey, commit: CommitId) -> Result<Option<u64>, IndexError> {
        {
            let recent = self.recent.lock();
            let waiting = [&recent.young, recent.old.as_ref()];
            if let Some(version) = waiting.iter().find_map(|waiting| waiting.commits.get(&(key, commit))) {
                return Ok(Some(*version));
            }
        }
        let version = self.tables().commits.get(&commit_key(key, commit)).map_err(IndexError::of)?;
        Ok(version.map(|version| version.value()))
    }

    /// Where one version of an aggregate lies.
    pub(super) fn place_of(&self, key: AggregateKey, version: u64) -> Result<Option<Cursor>, IndexError> {
        let places = self.places(key, version, Some(version))?;
        Ok(places.first().map(|(_, at)| *at))
    }

    /// Versions from `first` on and where they lie, in order.
    pub(super) fn places(
        &self,
        key: AggregateKey,
        first: u64,
        last: Option<u64>,
    ) -> Result<Vec<(u64, Cursor)>, IndexError> {
        // Entries only ever move from memory to the database: read memory first, so that none is missed between the two.
        let wanted = |version: u64| version >= first && last.is_none_or(|last| version <= last);
        let mut found: Vec<(u64, Cursor)> = {
            let recent = self.recent.lock();
            let waiting = [recent.old.as_ref(), &recent.young];
            let places = waiting.iter().filter_map(|waiting| waiting.places.get(&key)).flatten();
            places.filter(|(version, _)| wanted(*version)).copied().collect()
        };
        let tables = self.tables();
        let (first, last) = (place_key(key, first), place_key(key, last.unwrap_or(u64::MAX)));
        for entry in tables.places.range::<&[u8; 24]>(&first..=&last).map_err(IndexError::of)? {
            found.push(read_place(&entry.map_err(IndexError::of)?)?);
        }
        found.sort_unstable_by_key(|(version, _)| *version);
        found.dedup_by_key(|(version, _)| *version);
        Ok(found)
    }

    /// Moves entries into the database until [`Index::close`]; runs on a thread of its own.
    pub(super) fn run(&self) {
        while let Some((batch, closing)) = self.next_batch() {
            if let Err(error) = self.write(&batch) {
                // What is not in the database is read from the segments at the next start; until then memory answers.
                tracing::error!(%error, "index is not written");
                self.recent.lock().closing = true;
                self.wake.notify_all();
                return;
            }
            self.recent.lock().old = Arc::default();
            if closing {
                return;
            }
        }
    }

    /// Lets [`Index::run`] write what waits, and end.
    pub(super) fn close(&self) {
        self.recent.lock().closing = true;
        self.wake.notify_all();
    }

    fn next_batch(&self) -> Option<(Arc<Waiting>, bool)> {
        let mut recent = self.recent.lock();
        while recent.young.entries.len() < BATCH && !recent.closing {
            self.wake.wait(&mut recent);
        }
        let batch = Arc::new(std::mem::take(&mut recent.young));
        recent.old = Arc::clone(&batch);
        self.wake.notify_all();
        Some((batch, recent.closing))
    }

    fn write(&self, waiting: &Waiting) -> Result<(), IndexError> {
        let (unflushed, closing) = {
            let mut recent = self.recent.lock();
            recent.unflushed += waiting.entries.len();
            (recent.unflushed, recent.closing)
        };
        let sync = unflushed >= FLUSH_EVERY || (closing && unflushed > 0);
        let mut places: Vec<_> =
            waiting.entries.iter().map(|entry| (place_key(entry.key, entry.version), entry.at)).collect();
        let mut commits: Vec<_> = waiting
            .entries
            .iter()
            .map(|entry| (commit_key(entry.key, entry.commit), entry.version))
            .collect();
        // Neighbours go into the same page.
        places.sort_unstable_by_key(|(key, _)| *key);
        commits.sort_unstable_by_key(|(key, _)| *key);
        self.database.write(if sync { Durability::Immediate } else { Durability::Deferred }, |writing| {
            let mut table = writing.open_table(PLACES).map_err(IndexError::of)?;
            for (key, at) in &places {
                table.insert(key, &cursor_bytes(*at)).map_err(IndexError::of)?;
            }
            let mut table = writing.open_table(COMMITS).map_err(IndexError::of)?;
            for (key, version) in &commits {
                table.insert(key, version).map_err(IndexError::of)?;
            }
            waiting.covered.map_or(Ok(()), |covered| Database::set_covered(writing, covered))
        })?;
        if sync {
            self.recent.lock().unflushed = 0;
        }
        self.see_what_was_written()
    }
}

fn place_key(key: AggregateKey, version: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    for (to, from) in bytes.iter_mut().zip(key.0.into_iter().chain(version.to_be_bytes())) {
        *to = from;
    }
    bytes
}

fn commit_key(key: AggregateKey, commit: CommitId) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (to, from) in bytes.iter_mut().zip(key.0.into_iter().chain(commit.0.into_bytes())) {
        *to = from;
    }
    bytes
}

type StoredPlace<'a> =
    (redb::AccessGuard<'a, &'static [u8; 24]>, redb::AccessGuard<'a, &'static StoredCursor>);

fn read_place((key, at): &StoredPlace<'_>) -> Result<(u64, Cursor), IndexError> {
    let version = key.value().last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    version.zip(read_cursor(*at.value())).ok_or_else(|| IndexError("an entry is malformed".to_owned()))
}
