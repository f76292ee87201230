//! The index on disk: records, newest bodies, changes and where the fold stands, all written in one transaction.
//!
//! It is a projection and can be thrown away: another fold version, another log or damage, and it is made anew from the log, as far back
//! as that reaches. Commits are not synced one by one: after a crash the database is as it was at the last [`Store::sync`], and what is
//! missing is folded again.

mod chain;
mod coding;
mod forget;
mod history;
mod keys;
mod load;
mod pass;
mod prune;
mod read;
mod timeline;

use std::panic::AssertUnwindSafe;
use std::path::Path;

use events::{AgentId, Position, Timestamp};
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::model::{Change, Directory, Index, Observed, Record, Text, Tunnels};
pub use chain::StoredChange;
pub use keys::Partitions;
use keys::object_key;
pub use load::Loaded;
pub use pass::{Found, Pass, Told};
pub use prune::Pruned;
pub use read::Reader;
pub use timeline::Entry;

/// Grows when a layout or the fold changes: a database of another one is made anew.
const FOLD_VERSION: u32 = 9;
/// Memory for pages of the database, in bytes.
const CACHE: usize = 64 * 1024 * 1024;

type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;

const META: Table = TableDefinition::new("meta");
const AGENTS: Table = TableDefinition::new("agents");
const OBJECTS: Table = TableDefinition::new("objects");
const STATED: Table = TableDefinition::new("stated");
/// The newest changes of each object, with its newest body.
const RECENT: Table = TableDefinition::new("recent");
/// Changes before those, by object and the number of the newest one of the row.
const CHANGES: Table = TableDefinition::new("changes");
/// Changes by agent and time: for lists, and for what leaves.
const TIMELINE: Table = TableDefinition::new("timeline");

const TABLES: [Table; 7] = [META, AGENTS, OBJECTS, STATED, RECENT, CHANGES, TIMELINE];

const FORMAT_KEY: &[u8] = b"format";
const STANDING_KEY: &[u8] = b"standing";
const DIRECTORY_KEY: &[u8] = b"directory";
const TUNNELS_KEY: &[u8] = b"tunnels";

/// The database does not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody has it open: it is theirs, and is left alone.
    #[error("the index on disk is open in another process")]
    AlreadyOpen,
    /// It cannot be read or written, or holds what cannot be read: it is made anew.
    #[error("the index on disk does not work: {0}")]
    Broken(String),
}

impl StoreError {
    fn of(error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::DatabaseAlreadyOpen => Self::AlreadyOpen,
            error => Self::Broken(error.to_string()),
        }
    }

    fn encoding(error: &dyn std::fmt::Display) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Does work with the database, which panics over some damages.
fn guarded<T>(what: &str, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    std::panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(StoreError::Broken(format!("redb panicked while {what}"))))
}

/// Where the fold stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Standing {
    /// What is folded.
    pub position: Position,
    /// What happened before this is gone; absent while nothing is.
    pub horizon: Option<Timestamp>,
    /// Where the fold began: behind the log's horizon, as it was then. Of what is before it nothing is known.
    pub began: Position,
    /// What is before this has left; a state at a position before it cannot be told.
    pub base: Position,
    /// Agents that were deleted and of which rows are left.
    pub leaving: std::collections::BTreeSet<AgentId>,
}

/// What one transaction writes.
#[derive(Default)]
pub struct Batch {
    /// Changes, in order.
    pub changes: Vec<Change>,
    /// Objects whose record is another one, or is no more.
    pub records: std::collections::BTreeSet<(AgentId, Text)>,
    /// Objects that were stated.
    pub stated: std::collections::BTreeSet<(AgentId, Text)>,
    /// Agents whose state is another one.
    pub agents: std::collections::BTreeSet<AgentId>,
    /// Objects of which nothing is kept that was written before.
    pub erased: std::collections::BTreeSet<(AgentId, Text)>,
    /// Names changed.
    pub directory: bool,
    /// Connections changed.
    pub tunnels: bool,
}

/// What is in memory, as far as it is written.
pub struct Memory<'a> {
    /// The objects.
    pub index: &'a Index,
    /// The agents.
    pub observed: &'a std::collections::BTreeMap<AgentId, Observed>,
    /// Names.
    pub directory: &'a Directory,
    /// Connections.
    pub tunnels: &'a Tunnels,
    /// Where the fold stands.
    pub standing: &'a Standing,
}

/// The database.
pub struct Store {
    db: Database,
    partitions: Partitions,
}

impl Store {
    /// Opens the file in a folder for a log; one of another log or fold, or a damaged one, is deleted first.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub fn open(folder: &Path, log: uuid::Uuid, partitions: u16) -> Result<Self, StoreError> {
        std::fs::create_dir_all(folder).map_err(|error| StoreError::encoding(&error))?;
        let path = path_in(folder);
        match Self::try_open(&path, &format_of(log), partitions) {
            Ok(Some(store)) => return Ok(store),
            Ok(None) => {
                tracing::warn!(file = %path.display(), "index is of another fold or log and is rebuilt")
            }
            Err(StoreError::AlreadyOpen) => return Err(StoreError::AlreadyOpen),
            Err(error) => tracing::warn!(file = %path.display(), %error, "index is damaged and is rebuilt"),
        }
        Self::make(folder, log, partitions)
    }

    /// Makes an empty database in the place of what is in the folder. Whoever reads the former one goes on with it.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub fn make(folder: &Path, log: uuid::Uuid, partitions: u16) -> Result<Self, StoreError> {
        let path = path_in(folder);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::encoding(&error));
            }
            _ => {}
        }
        let made = Self::try_open(&path, &format_of(log), partitions)?;
        made.ok_or_else(|| StoreError::Broken("a new database is not empty".to_owned()))
    }

    /// A database in memory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn in_memory(partitions: u16) -> Result<Self, StoreError> {
        let backend = redb::backends::InMemoryBackend::new();
        let db = redb::Builder::new().set_cache_size(CACHE).create_with_backend(backend);
        let store = Self { db: db.map_err(StoreError::of)?, partitions: Partitions(partitions) };
        store.make_tables("")?;
        Ok(store)
    }

    fn try_open(path: &Path, format: &str, partitions: u16) -> Result<Option<Self>, StoreError> {
        let new = !path.exists();
        let open = || redb::Builder::new().set_cache_size(CACHE).create(path).map_err(StoreError::of);
        let store = Self { db: guarded("opening", open)?, partitions: Partitions(partitions) };
        if new {
            store.make_tables(format)?;
            return Ok(Some(store));
        }
        let found = store.reader()?.meta(FORMAT_KEY)?;
        Ok((found.as_deref() == Some(format.as_bytes())).then_some(store))
    }

    fn make_tables(&self, format: &str) -> Result<(), StoreError> {
        let writing = self.db.begin_write().map_err(StoreError::of)?;
        for table in TABLES {
            writing.open_table(table).map_err(StoreError::of)?;
        }
        put(&writing, META, FORMAT_KEY, format.as_bytes())?;
        writing.commit().map_err(StoreError::of)
    }

    /// Makes it empty.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn clear(&self) -> Result<(), StoreError> {
        let format = self.reader()?.meta(FORMAT_KEY)?.unwrap_or_default();
        let writing = self.db.begin_write().map_err(StoreError::of)?;
        for table in TABLES {
            writing.delete_table(table).map_err(StoreError::of)?;
            writing.open_table(table).map_err(StoreError::of)?;
        }
        put(&writing, META, FORMAT_KEY, &format)?;
        writing.commit().map_err(StoreError::of)
    }

    /// What was committed last.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        Ok(Reader::new(self.db.begin_read().map_err(StoreError::of)?, self.partitions))
    }

    /// Makes everything that was written durable.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn sync(&self) -> Result<(), StoreError> {
        guarded("syncing", || self.db.begin_write().map_err(StoreError::of)?.commit().map_err(StoreError::of))
    }

    /// Writes what came of folding, in one transaction. It is durable with the next [`Store::sync`].
    ///
    /// # Errors
    /// When the database does not work; then nothing is written.
    pub fn write(&self, batch: &Batch, memory: &Memory<'_>) -> Result<(), StoreError> {
        guarded("writing", || self.write_batch(batch, memory))
    }

    fn write_batch(&self, batch: &Batch, memory: &Memory<'_>) -> Result<(), StoreError> {
        let writing = self.begin()?;
        forget::erase(&writing, &batch.erased)?;
        history::write_changes(&writing, &batch.changes)?;
        for (agent, uid) in &batch.records {
            write_record(&writing, memory.index, (*agent, uid))?;
        }
        for (agent, uid) in &batch.stated {
            write_stated(&writing, memory.index, (*agent, uid))?;
        }
        for agent in &batch.agents {
            match memory.observed.get(agent) {
                Some(observed) => put(&writing, AGENTS, agent.0.as_bytes(), &encode(observed)?)?,
                None => remove(&writing, AGENTS, agent.0.as_bytes())?,
            }
        }
        if batch.directory {
            put(&writing, META, DIRECTORY_KEY, &encode(memory.directory)?)?;
        }
        if batch.tunnels {
            put(&writing, META, TUNNELS_KEY, &encode(memory.tunnels)?)?;
        }
        put(&writing, META, STANDING_KEY, &encode(memory.standing)?)?;
        writing.commit().map_err(StoreError::of)
    }

    fn begin(&self) -> Result<WriteTransaction, StoreError> {
        let mut writing = self.db.begin_write().map_err(StoreError::of)?;
        writing.set_durability(redb::Durability::None).map_err(StoreError::of)?;
        Ok(writing)
    }
}

fn write_record(
    writing: &WriteTransaction,
    index: &Index,
    (agent, uid): (AgentId, &Text),
) -> Result<(), StoreError> {
    let object = object_key(agent, uid);
    match index.by_uid(agent, uid).and_then(|slot| index.get(slot)) {
        Some(record) => put(writing, OBJECTS, &object, &encode_record(record)?),
        None => {
            remove(writing, OBJECTS, &object)?;
            remove(writing, STATED, &object)?;
            remove(writing, RECENT, &object)
        }
    }
}

fn write_stated(
    writing: &WriteTransaction,
    index: &Index,
    (agent, uid): (AgentId, &Text),
) -> Result<(), StoreError> {
    let Some(record) = index.by_uid(agent, uid).and_then(|slot| index.get(slot)) else { return Ok(()) };
    put(writing, STATED, &object_key(agent, uid), &encode(&record.stated)?)
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    events::encode(value).map_err(|error| StoreError::encoding(&error))
}

/// Records are many: the names of their fields are left out, and a field can be added or taken away only with another [`FOLD_VERSION`].
fn encode_record(record: &Record) -> Result<Vec<u8>, StoreError> {
    rmp_serde::to_vec(record).map_err(|error| StoreError::encoding(&error))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    events::decode(bytes).map_err(|error| StoreError::encoding(&error))
}

fn put(writing: &WriteTransaction, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    let mut table = writing.open_table(table).map_err(StoreError::of)?;
    table.insert(key, value).map_err(StoreError::of)?;
    Ok(())
}

fn remove(writing: &WriteTransaction, table: Table, key: &[u8]) -> Result<(), StoreError> {
    let mut table = writing.open_table(table).map_err(StoreError::of)?;
    table.remove(key).map_err(StoreError::of)?;
    Ok(())
}

fn get(writing: &WriteTransaction, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let table = writing.open_table(table).map_err(StoreError::of)?;
    let found = table.get(key).map_err(StoreError::of)?;
    Ok(found.map(|value| value.value().to_vec()))
}

fn path_in(folder: &Path) -> std::path::PathBuf {
    folder.join("objects.redb")
}

fn format_of(log: uuid::Uuid) -> String {
    format!("{FOLD_VERSION} {log}")
}

#[cfg(test)]
mod tests;
