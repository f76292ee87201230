//! `log/meta`: what is fixed when a log is made.

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use world::{Disk, World};

use super::OpenError;

/// The format of segments, checkpoints and blobs that this code reads and writes.
const FORMAT: u32 = 1;

/// Written once, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) format: u32,
    /// The log's id; index and snapshots name it.
    pub(super) log: Uuid,
    pub(super) partitions: u16,
    /// Part of every checksum.
    pub(super) salt: u64,
    /// Standard base64. The key ring must hold the private half.
    pub(super) root_public_key: String,
    pub(super) created_by: String,
    /// RFC 3339.
    pub(super) created_at: String,
}

impl Meta {
    /// The meta of a folder, if it has one.
    pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>, OpenError> {
        let path = folder.join("meta");
        let bytes = match disk.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::Disk(error)),
        };
        let malformed = |detail: String| OpenError::Meta { path: path.clone(), detail };
        let meta: Self = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        if meta.format != FORMAT {
            return Err(malformed(format!(
                "format {} is not {FORMAT}, the one that this version reads",
                meta.format
            )));
        }
        Ok(Some(meta))
    }

    /// Makes the meta of a new log, durably.
    pub(super) fn create(
        world: &World,
        folder: &Path,
        partitions: u16,
        root_public_key: &str,
        created_by: &str,
    ) -> Result<Self, OpenError> {
        let mut salt = [0_u8; 8];
        world.random.fill(&mut salt);
        let meta = Self {
            format: FORMAT,
            log: world.new_uuid(),
            partitions,
            salt: u64::from_le_bytes(salt),
            root_public_key: root_public_key.to_owned(),
            created_by: created_by.to_owned(),
            created_at: events::Timestamp(world.clock.now_millis()).to_string(),
        };
        let bytes = serde_json::to_vec_pretty(&meta).map_err(|error| OpenError::Disk(error.into()))?;
        world.disk.replace(&folder.join("meta"), &bytes, true).map_err(OpenError::Disk)?;
        Ok(meta)
    }
}
