//! Snapshots as files: `snapshots/<name>`.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use world::Disk;
use world::disk::FolderLock;

use crate::projection::Snapshot;
use crate::snapshots::{SnapshotError, Snapshots, check_name};

/// Snapshots of one log in one folder.
pub(super) struct SnapshotFiles {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folder: PathBuf,
    /// The log's id: a snapshot of another log reads as none.
    pub(super) log: uuid::Uuid,
    pub(super) _lock: Arc<dyn FolderLock>,
}

/// Log id, checksum.
const HEADER: usize = 16 + 4;

impl SnapshotFiles {
    fn path(&self, name: &str) -> Result<PathBuf, SnapshotError> {
        check_name(name)?;
        Ok(self.folder.join(name))
    }

    fn open(&self, name: &str, bytes: &[u8]) -> Option<Snapshot> {
        let (header, body) = bytes.split_at_checked(HEADER)?;
        if header != self.header(body) {
            return None;
        }
        events::decode::<Snapshot>(body).ok().filter(|snapshot| snapshot.name == name)
    }

    fn header(&self, body: &[u8]) -> Vec<u8> {
        let mut header = self.log.as_bytes().to_vec();
        header.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
        header
    }
}

#[async_trait]
impl Snapshots for SnapshotFiles {
    async fn load(&self, name: &str) -> Result<Option<Snapshot>, SnapshotError> {
        let path = self.path(name)?;
        let disk = Arc::clone(&self.disk);
        let read = tokio::task::spawn_blocking(move || disk.read(&path)).await.map_err(failed)?;
        match read {
            Ok(bytes) => {
                let snapshot = self.open(name, &bytes);
                if snapshot.is_none() {
                    tracing::warn!(name, "snapshot is damaged or of another log and is not used");
                }
                Ok(snapshot)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn save(&self, snapshot: Snapshot) -> Result<(), SnapshotError> {
        let path = self.path(&snapshot.name)?;
        let body = events::encode(&snapshot).map_err(failed)?;
        let mut bytes = self.header(&body);
        bytes.extend_from_slice(&body);
        let disk = Arc::clone(&self.disk);
        let saved =
            tokio::task::spawn_blocking(move || disk.replace(&path, &bytes, true)).await.map_err(failed)?;
        saved.map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> SnapshotError {
    SnapshotError::Failed { detail: error.to_string() }
}
