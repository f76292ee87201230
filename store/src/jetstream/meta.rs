//! What is fixed when a log is made, in a stream of its own that takes one message, and one more when a copy is finished.

use std::sync::Arc;

use events::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use world::World;

use super::OpenError;
use super::server::{Publish, PublishError, Server};
use crate::copy::CopyMark;

/// The stream's name.
pub(super) const STREAM: &str = "kasbah-meta";
/// Its subject.
pub(super) const SUBJECT: &str = "kasbah.meta";

/// The format of subjects, headers, blobs and snapshots that this code reads and writes.
const FORMAT: u32 = 1;

/// Written once, as JSON; once more when a copy is finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) format: u32,
    /// The log's id; snapshots name it.
    pub(super) log: Uuid,
    pub(super) partitions: u16,
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
    /// What a new log is to have.
    pub(super) fn new(
        world: &World,
        partitions: u16,
        root_public_key: String,
        created_by: String,
        copy: Option<CopyMark>,
    ) -> Self {
        Self {
            format: FORMAT,
            log: world.new_uuid(),
            partitions,
            root_public_key,
            created_by,
            created_at: Timestamp(world.clock.now_millis()).to_string(),
            copy,
        }
    }

    /// The one that is there.
    pub(super) async fn read(server: &Arc<dyn Server>) -> Result<Option<Self>, OpenError> {
        let Some(message) = server.newest(STREAM, SUBJECT).await? else { return Ok(None) };
        let meta: Self = serde_json::from_slice(&message.payload)
            .map_err(|error| OpenError::Meta { detail: error.to_string() })?;
        if meta.format != FORMAT {
            let detail = format!("format {} is not {FORMAT}, the one that this version reads", meta.format);
            return Err(OpenError::Meta { detail });
        }
        Ok(Some(meta))
    }

    /// Says that the copy is finished.
    pub(super) async fn finish(server: &Arc<dyn Server>) -> Result<(), OpenError> {
        let away = |error: &dyn std::fmt::Display| OpenError::Away { detail: error.to_string() };
        let Some(newest) = server.newest(STREAM, SUBJECT).await? else {
            return Err(away(&"there is no log"));
        };
        let mut meta: Self = serde_json::from_slice(&newest.payload)
            .map_err(|error| OpenError::Meta { detail: error.to_string() })?;
        meta.copy = meta.copy.map(CopyMark::finished);
        let payload = serde_json::to_vec(&meta).map_err(|error| away(&error))?;
        let message = Publish::plain(STREAM, SUBJECT.to_owned(), Some(newest.sequence), payload.into());
        server.publish(&message).await.map(|_| ()).map_err(|error| away(&error))
    }

    /// Makes this the log's, unless another process was faster; the one that is the log's now.
    pub(super) async fn fix(self, server: &Arc<dyn Server>) -> Result<Self, OpenError> {
        let payload =
            serde_json::to_vec(&self).map_err(|error| OpenError::Meta { detail: error.to_string() })?;
        let message = Publish::plain(STREAM, SUBJECT.to_owned(), Some(0), payload.into());
        match server.publish(&message).await {
            Ok(_) | Err(PublishError::Expectation) => {}
            Err(error) => return Err(OpenError::Away { detail: error.to_string() }),
        }
        let fixed = Self::read(server).await?;
        fixed.ok_or_else(|| OpenError::Away { detail: "what was just fixed cannot be read".to_owned() })
    }
}
