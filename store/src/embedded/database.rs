//! A file of redb: what makes look-ups quick, and can be thrown away because the segments have it all.

use std::panic::AssertUnwindSafe;
use std::path::Path;

use redb::{ReadTransaction, ReadableDatabase, TableDefinition, WriteTransaction};

use super::record::take;
use super::segments::Cursor;

/// Grows when a layout changes; a file of another format is made anew.
const FORMAT: u32 = 2;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const FORMAT_KEY: &str = "format";
const COVERED_KEY: &str = "covered";

/// The index could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the index does not work: {0}")]
pub(super) struct IndexError(pub(super) String);

impl IndexError {
    /// Of any of redb's errors.
    pub(super) fn of(error: impl Into<redb::Error>) -> Self {
        Self(error.into().to_string())
    }
}

/// A place as it is stored.
pub(super) type StoredCursor = [u8; 12];

/// One file.
pub(super) struct Database {
    db: redb::Database,
}

/// Whether what is written outlives the process at once, or with a later write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Synced.
    Immediate,
    /// After a crash it may be gone, together with all that was written behind it.
    Deferred,
}

impl Database {
    /// Opens a file that belongs to this log; one of another log or format, or a damaged one, is deleted first.
    pub(super) fn open(path: &Path, log: &str, cache_bytes: usize) -> Result<Self, IndexError> {
        let tag = format!("{FORMAT} {log}");
        match Self::try_open(path, &tag, cache_bytes) {
            Ok(Some(database)) => return Ok(database),
            Ok(None) => {
                tracing::warn!(file = %path.display(), "index is of another log or format and is rebuilt")
            }
            Err(error) => tracing::warn!(file = %path.display(), %error, "index is damaged and is rebuilt"),
        }
        std::fs::remove_file(path).map_err(|error| IndexError(error.to_string()))?;
        Self::try_open(path, &tag, cache_bytes)?
            .ok_or_else(|| IndexError("a new index is not empty".to_owned()))
    }

    fn try_open(path: &Path, tag: &str, cache_bytes: usize) -> Result<Option<Self>, IndexError> {
        let new = !path.exists();
        // Bits that rotted are found here, and not when an aggregate is said not to exist.
        let open = || {
            redb::Builder::new().set_cache_size(cache_bytes).set_check_integrity_on_open(true).create(path)
        };
        let opened = std::panic::catch_unwind(AssertUnwindSafe(open));
        let opened = opened.map_err(|_| IndexError("redb panicked while opening".to_owned()))?;
        let database = Self { db: opened.map_err(IndexError::of)? };
        if new {
            database.write(Durability::Immediate, |writing| {
                let mut meta = writing.open_table(META).map_err(IndexError::of)?;
                meta.insert(FORMAT_KEY, tag.as_bytes()).map_err(IndexError::of)?;
                Ok(())
            })?;
            return Ok(Some(database));
        }
        let found = database.meta(FORMAT_KEY)?;
        Ok((found.as_deref() == Some(tag.as_bytes())).then_some(database))
    }

    /// What was committed last.
    pub(super) fn read(&self) -> Result<ReadTransaction, IndexError> {
        self.db.begin_read().map_err(IndexError::of)
    }

    /// Everything that `body` writes, or nothing.
    pub(super) fn write(
        &self,
        durability: Durability,
        body: impl FnOnce(&WriteTransaction) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut writing = self.db.begin_write().map_err(IndexError::of)?;
        if durability == Durability::Deferred {
            writing.set_durability(redb::Durability::None).map_err(IndexError::of)?;
        }
        body(&writing)?;
        writing.commit().map_err(IndexError::of)
    }

    /// Everything before this place is in here.
    pub(super) fn covered(&self) -> Result<Option<Cursor>, IndexError> {
        Ok(self.meta(COVERED_KEY)?.as_deref().and_then(|bytes| bytes.try_into().ok()).and_then(read_cursor))
    }

    /// Says that everything before a place is in here.
    pub(super) fn set_covered(writing: &WriteTransaction, covered: Cursor) -> Result<(), IndexError> {
        let mut meta = writing.open_table(META).map_err(IndexError::of)?;
        meta.insert(COVERED_KEY, cursor_bytes(covered).as_slice()).map_err(IndexError::of)?;
        Ok(())
    }

    /// Says that nothing is in here.
    pub(super) fn clear_covered(writing: &WriteTransaction) -> Result<(), IndexError> {
        let mut meta = writing.open_table(META).map_err(IndexError::of)?;
        meta.remove(COVERED_KEY).map_err(IndexError::of)?;
        Ok(())
    }

    /// Lets the next start make the file anew.
    pub(super) fn distrust(&self) {
        let marked = self.write(Durability::Immediate, |writing| {
            let mut meta = writing.open_table(META).map_err(IndexError::of)?;
            meta.remove(FORMAT_KEY).map_err(IndexError::of)?;
            Ok(())
        });
        if let Err(error) = marked {
            tracing::error!(%error, "index cannot be marked as damaged");
        }
    }

    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>, IndexError> {
        let meta = match self.read()?.open_table(META) {
            Ok(meta) => meta,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(IndexError::of(error)),
        };
        let found = meta.get(key).map_err(IndexError::of)?;
        Ok(found.map(|value| value.value().to_vec()))
    }
}

/// A place as it is stored.
pub(super) fn cursor_bytes(at: Cursor) -> StoredCursor {
    let mut bytes = StoredCursor::default();
    let from = at.segment.to_be_bytes().into_iter().chain(at.offset.to_be_bytes());
    for (to, from) in bytes.iter_mut().zip(from) {
        *to = from;
    }
    bytes
}

/// A place that was stored.
pub(super) fn read_cursor(bytes: StoredCursor) -> Option<Cursor> {
    let mut rest = bytes.as_slice();
    Some(Cursor {
        segment: u32::from_be_bytes(take(&mut rest)?),
        offset: u64::from_be_bytes(take(&mut rest)?),
    })
}
