//! Snapshots in a stream: parts, and a head that names them.
//!
//! Who saves looks at the head, stores parts, and replaces the head only if it is still the one that was looked at. Then older
//! parts of that name are removed, also those of a process that died while it saved, and those of one whose head will
//! be refused: it stores its parts again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use world::World;

use super::pages::SequenceRange;
use super::server::{Publish, PublishError, Server, ServerError, Stored};
use crate::projection::Snapshot;
use crate::snapshots::{SnapshotError, Snapshots, check_name};

/// The stream's name.
pub(super) const STREAM: &str = "kasbah-snapshots";
/// All subjects of snapshots.
pub(super) const SUBJECTS: &str = "kasbah.snapshot.>";

const PART: usize = 512 * 1024;
const WRITES: usize = 8;
/// How often a save or load is tried while others save under the same name.
const ATTEMPTS: u32 = 30;
const PAUSE_MILLIS: u64 = 50;
/// How long parts that a head names may be missing on a replica.
const LAG_TIME: Duration = Duration::from_millis(500);

/// Snapshots of one log.
pub(super) struct SnapshotStream {
    pub(super) server: Arc<dyn Server>,
    pub(super) world: World,
    /// The log's id: a snapshot of another log reads as none.
    pub(super) log: Uuid,
}

/// What names a snapshot's parts.
#[derive(Serialize, Deserialize)]
struct SnapshotHead {
    log: Uuid,
    generation: Uuid,
    first: u64,
    last: u64,
    checksum: u32,
}

fn failed(error: impl std::fmt::Display) -> SnapshotError {
    SnapshotError::Failed { detail: error.to_string() }
}

pub(super) fn head_subject(name: &str) -> String {
    format!("kasbah.snapshot.head.{name}")
}

/// The subjects of all parts of a projection's snapshots.
pub(super) fn part_subjects(name: &str) -> String {
    format!("kasbah.snapshot.part.{name}.>")
}

/// The subjects of a generation's parts without their numbers.
fn part_subject(name: &str, generation: Uuid) -> String {
    format!("kasbah.snapshot.part.{name}.{generation}")
}

impl SnapshotStream {
    async fn head(&self, name: &str) -> Result<Option<Stored>, SnapshotError> {
        self.server.newest(STREAM, &head_subject(name)).await.map_err(failed)
    }

    async fn publish(
        &self,
        subject: String,
        expected: Option<u64>,
        payload: Bytes,
    ) -> Result<u64, PublishError> {
        let message = Publish::plain(STREAM, subject, expected, payload);
        self.server.publish(&message).await.map(|ack| ack.sequence)
    }

    /// Stores parts; the sequences of the first and the last one.
    async fn store(&self, subject: &str, body: &Bytes) -> Result<(u64, u64), PublishError> {
        let first = self.publish(format!("{subject}.0"), None, body.slice(..body.len().min(PART))).await?;
        let starts = (PART..body.len()).step_by(PART);
        let rest = futures::stream::iter(starts.enumerate())
            .map(|(index, start)| {
                let part = body.slice(start..body.len().min(start + PART));
                self.publish(format!("{subject}.{}", index + 1), None, part)
            })
            .buffered(WRITES)
            .try_collect::<Vec<u64>>()
            .await?;
        Ok((first, rest.last().copied().unwrap_or(first)))
    }

    /// One attempt; `None` when somebody else was faster.
    async fn try_save(&self, name: &str, body: &Bytes) -> Result<Option<()>, PublishError> {
        let before = self.server.newest(STREAM, &head_subject(name)).await;
        let before = before.map_err(|error| PublishError::Away(error.0))?.map_or(0, |head| head.sequence);
        let generation = self.world.new_uuid();
        let (first, last) = self.store(&part_subject(name, generation), body).await?;
        let head = SnapshotHead { log: self.log, generation, first, last, checksum: crc32fast::hash(body) };
        let head = events::encode(&head).map_err(|error| PublishError::Refused(error.to_string()))?;
        match self.publish(head_subject(name), Some(before), head.into()).await {
            Ok(_) => {}
            Err(PublishError::Expectation) => return Ok(None),
            Err(error) => return Err(error),
        }
        let older = part_subjects(name);
        if let Err(error) = self.server.purge(STREAM, &older, first).await {
            tracing::debug!(name, %error, "older snapshots are removed with the next one");
        }
        Ok(Some(()))
    }

    /// What a head names; `None` when it is not whole.
    async fn body(&self, name: &str, head: &SnapshotHead) -> Result<Option<Vec<u8>>, ServerError> {
        let stretch = SequenceRange {
            server: Arc::clone(&self.server),
            world: self.world.clone(),
            stream: STREAM.to_owned(),
            subject: Some(format!("{}.>", part_subject(name, head.generation))),
            from: head.first,
            to: head.last,
            patience: LAG_TIME,
        };
        let parts = stretch.whole().await?;
        let body: Vec<u8> = parts.iter().flat_map(|part| part.payload.iter().copied()).collect();
        Ok((crc32fast::hash(&body) == head.checksum).then_some(body))
    }

    async fn pause(&self) {
        let millis = 1 + self.world.random.below(PAUSE_MILLIS);
        self.world.clock.sleep(Duration::from_millis(millis)).await;
    }
}

#[async_trait]
impl Snapshots for SnapshotStream {
    async fn load(&self, name: &str) -> Result<Option<Snapshot>, SnapshotError> {
        check_name(name)?;
        let mut seen = None;
        for _ in 0..ATTEMPTS {
            let Some(stored) = self.head(name).await? else { return Ok(None) };
            let readable =
                events::decode::<SnapshotHead>(&stored.payload).ok().filter(|head| head.log == self.log);
            let body = match &readable {
                Some(head) => self.body(name, head).await.unwrap_or_else(|error| {
                    tracing::debug!(name, %error, "snapshot is not whole");
                    None
                }),
                None => None,
            };
            let snapshot = body.and_then(|body| events::decode::<Snapshot>(&body).ok());
            if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.name == name) {
                return Ok(Some(snapshot));
            }
            // One that was replaced while it was read is no damage.
            if seen == Some(stored.sequence) {
                tracing::warn!(name, "snapshot is damaged or of another log and is not used");
                return Ok(None);
            }
            seen = Some(stored.sequence);
        }
        Err(failed("other processes keep replacing the snapshot"))
    }

    async fn save(&self, snapshot: Snapshot) -> Result<(), SnapshotError> {
        check_name(&snapshot.name)?;
        let body = Bytes::from(events::encode(&snapshot).map_err(failed)?);
        let mut last = failed("other processes keep saving the same snapshot");
        for _ in 0..ATTEMPTS {
            match self.try_save(&snapshot.name, &body).await {
                Ok(Some(())) => return Ok(()),
                Ok(None) => {}
                Err(error @ (PublishError::Away(_) | PublishError::Refused(_))) => return Err(failed(error)),
                Err(error) => last = failed(error),
            }
            self.pause().await;
        }
        Err(last)
    }
}
