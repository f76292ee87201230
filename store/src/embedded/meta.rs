//! `log/meta`: what is fixed when a log is made.

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use world::{Disk, World};

use super::OpenError;
use crate::copy::CopyMark;

/// The format of segments, checkpoints and blobs that this code reads and writes.
const FORMAT: u32 = 1;

/// Written once, as JSON; once more when a copy is finished.
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
    /// Of a copy: what it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) copy: Option<CopyMark>,
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
        copy: Option<CopyMark>,
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
            copy,
        };
        meta.write(world.disk.as_ref(), folder).map_err(OpenError::Disk)?;
        Ok(meta)
    }

    /// Replaces what stands there.
    pub(super) fn write(&self, disk: &dyn Disk, folder: &Path) -> std::io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self)?;
        disk.replace(&folder.join("meta"), &bytes, true)
    }
}
