//! The index: sled, and in front of it what sled does not hold yet.
//!
//! It answers where an aggregate's commits lie and which commit ids its history has. It can be thrown away at any time: it
//! only ever holds what the segments hold durably, it says up to where, and the rest is read from the segments again.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use events::{ChainHash, CommitId};
use parking_lot::{Condvar, Mutex};

use super::record::{AggregateKey, take};
use super::segments::Cursor;

/// Grows when the layout below changes; an index of another format is made anew.
const FORMAT: u32 = 1;

/// So many entries wait in memory before they go into sled together.
const BATCH: usize = 1024;

/// With so many waiting, whoever adds more waits.
const MOST_WAITING: usize = 64 * 1024;

/// Entries between two flushes of sled. After a crash at most so many (and a batch) are read from the segments again.
const FLUSH_EVERY: usize = 16 * 1024;

/// Heads of aggregates that are kept at hand, in each of two generations.
const HEADS: usize = 2048;

/// How often, and after what pause, a lock of sled's own is tried.
const LOCK_ATTEMPTS: u32 = 200;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// The index could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the index does not work: {0}")]
pub(super) struct IndexError(pub(super) String);

impl From<sled::Error> for IndexError {
    fn from(error: sled::Error) -> Self {
        Self(error.to_string())
    }
}

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
pub(super) struct Head {
    pub(super) version: u64,
    pub(super) hash: ChainHash,
}

impl Head {
    pub(super) const NONE: Self = Self { version: 0, hash: ChainHash([0; 32]) };
}

/// Entries that are not in sled yet.
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
    /// Being written into sled.
    old: Arc<Waiting>,
    heads: HashMap<AggregateKey, Head>,
    older_heads: HashMap<AggregateKey, Head>,
    closing: bool,
    unflushed: usize,
}

impl Recent {
    fn remember(&mut self, key: AggregateKey, head: Head) {
        if self.heads.len() >= HEADS {
            self.older_heads = std::mem::take(&mut self.heads);
        }
        self.heads.insert(key, head);
    }
}

/// The index of the decisions, in a tree of sled.
pub(super) struct Index {
    db: sled::Db,
    tree: sled::Tree,
    recent: Mutex<Recent>,
    wake: Condvar,
}

/// Opens sled in a folder; an index of another log or format, or one that does not open, is deleted first.
pub(super) fn open_sled(folder: &Path, log: &str, cache_bytes: u64) -> Result<sled::Db, IndexError> {
    match try_open(folder, log, cache_bytes) {
        Ok(Some(db)) => return Ok(db),
        Ok(None) => {
            tracing::warn!(folder = %folder.display(), "index is another log's or format's and is made anew")
        }
        Err(error) => tracing::warn!(folder = %folder.display(), %error, "index is damaged and is made anew"),
    }
    std::fs::remove_dir_all(folder).map_err(|error| IndexError(error.to_string()))?;
    try_open(folder, log, cache_bytes)?.ok_or_else(|| IndexError("a new index is not empty".to_owned()))
}

fn try_open(folder: &Path, log: &str, cache_bytes: u64) -> Result<Option<sled::Db>, IndexError> {
    let db = open_unlocked(folder, cache_bytes)?;
    let tag = format!("{FORMAT} {log}");
    match db.get(b"format")? {
        Some(found) if found == tag.as_bytes() => Ok(Some(db)),
        None if db.is_empty() && db.tree_names().len() == 1 => {
            db.insert(b"format", tag.as_bytes())?;
            Ok(Some(db))
        }
        _ => Ok(None),
    }
}

/// The folder is ours, but sled of a process that was just ended may hold its own lock for a moment more.
fn open_unlocked(folder: &Path, cache_bytes: u64) -> Result<sled::Db, IndexError> {
    let mut attempts = 0;
    loop {
        let config = sled::Config::new().path(folder).cache_capacity(cache_bytes).flush_every_ms(None);
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| config.open()));
        let opened = opened.map_err(|_| IndexError("sled panicked while opening".to_owned()))?;
        match opened {
            Err(error)
                if attempts < LOCK_ATTEMPTS && error.to_string().contains("could not acquire lock") =>
            {
                attempts += 1;
                std::thread::sleep(LOCK_PAUSE);
            }
            other => return Ok(other?),
        }
    }
}

impl Index {
    pub(super) fn open(db: sled::Db) -> Result<Self, IndexError> {
        let tree = db.open_tree(b"decisions")?;
        Ok(Self { db, tree, recent: Mutex::default(), wake: Condvar::new() })
    }

    /// Everything before this place is in sled.
    pub(super) fn covered(&self) -> Result<Option<Cursor>, IndexError> {
        Ok(self.tree.get(b"m")?.as_deref().and_then(read_cursor))
    }

    /// Forgets everything, to be filled from the segments.
    pub(super) fn clear(&self) -> Result<(), IndexError> {
        Ok(self.tree.clear()?)
    }

    /// Lets the next start make the index anew.
    pub(super) fn distrust(&self) {
        if let Err(error) = self.db.remove(b"format").and_then(|_| self.db.flush()) {
            tracing::error!(%error, "index cannot be marked as damaged");
        }
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
    pub(super) fn remember(&self, heads: impl Iterator<Item = (AggregateKey, Head)>) {
        let mut recent = self.recent.lock();
        for (key, head) in heads {
            recent.remember(key, head);
        }
    }

    /// An aggregate's newest commit, if it is at hand.
    pub(super) fn head_at_hand(&self, key: AggregateKey) -> Option<Head> {
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
        match self.tree.scan_prefix(place_prefix(key)).next_back() {
            Some(found) => read_place(&found?).map(Some),
            None => Ok(None),
        }
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
        let Some(found) = self.tree.get(commit_key(key, commit))? else { return Ok(None) };
        found.first_chunk().map(|bytes| Some(u64::from_be_bytes(*bytes))).ok_or_else(malformed)
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
        // Entries only ever move from memory to sled: read memory first, so that none is missed between the two.
        let wanted = |version: u64| version >= first && last.is_none_or(|last| version <= last);
        let mut found: Vec<(u64, Cursor)> = {
            let recent = self.recent.lock();
            let waiting = [recent.old.as_ref(), &recent.young];
            let places = waiting.iter().filter_map(|waiting| waiting.places.get(&key)).flatten();
            places.filter(|(version, _)| wanted(*version)).copied().collect()
        };
        let range = place_key(key, first)..=place_key(key, last.unwrap_or(u64::MAX));
        for entry in self.tree.range(range) {
            found.push(read_place(&entry?)?);
        }
        found.sort_unstable_by_key(|(version, _)| *version);
        found.dedup_by_key(|(version, _)| *version);
        Ok(found)
    }

    /// Moves entries into sled until [`Index::close`]; runs on a thread of its own.
    pub(super) fn run(&self) {
        while let Some((batch, closing)) = self.next_batch() {
            if let Err(error) = self.write(&batch) {
                // What is not in sled is read from the segments at the next start; until then memory answers.
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
        let mut batch = sled::Batch::default();
        for entry in &waiting.entries {
            batch.insert(&place_key(entry.key, entry.version), &cursor_bytes(entry.at));
            batch.insert(commit_key(entry.key, entry.commit).as_slice(), &entry.version.to_be_bytes());
        }
        if let Some(covered) = waiting.covered {
            batch.insert(b"m", &cursor_bytes(covered));
        }
        self.tree.apply_batch(batch)?;
        let (unflushed, closing) = {
            let mut recent = self.recent.lock();
            recent.unflushed += waiting.entries.len();
            (recent.unflushed, recent.closing)
        };
        if unflushed >= FLUSH_EVERY || (closing && unflushed > 0) {
            self.db.flush()?;
            self.recent.lock().unflushed = 0;
        }
        Ok(())
    }
}

fn malformed() -> IndexError {
    IndexError("an entry is malformed".to_owned())
}

fn place_prefix(key: AggregateKey) -> [u8; 17] {
    let mut bytes = [b'p'; 17];
    for (to, from) in bytes.iter_mut().skip(1).zip(key.0) {
        *to = from;
    }
    bytes
}

fn place_key(key: AggregateKey, version: u64) -> [u8; 25] {
    let mut bytes = [0; 25];
    for (to, from) in bytes.iter_mut().zip(place_prefix(key).into_iter().chain(version.to_be_bytes())) {
        *to = from;
    }
    bytes
}

fn commit_key(key: AggregateKey, commit: CommitId) -> [u8; 33] {
    let mut bytes = [b'c'; 33];
    for (to, from) in bytes.iter_mut().skip(1).zip(key.0.into_iter().chain(commit.0.into_bytes())) {
        *to = from;
    }
    bytes
}

/// A place as it stands in sled.
pub(super) fn cursor_bytes(at: Cursor) -> [u8; 12] {
    let mut bytes = [0; 12];
    let from = at.segment.to_be_bytes().into_iter().chain(at.offset.to_be_bytes());
    for (to, from) in bytes.iter_mut().zip(from) {
        *to = from;
    }
    bytes
}

/// A place from sled.
pub(super) fn read_cursor(bytes: &[u8]) -> Option<Cursor> {
    let mut rest = bytes;
    let at = Cursor {
        segment: u32::from_be_bytes(take(&mut rest)?),
        offset: u64::from_be_bytes(take(&mut rest)?),
    };
    rest.is_empty().then_some(at)
}

fn read_place((key, value): &(sled::IVec, sled::IVec)) -> Result<(u64, Cursor), IndexError> {
    let version = key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    version.zip(read_cursor(value)).ok_or_else(malformed)
}
