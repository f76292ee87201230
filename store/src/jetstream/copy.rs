//! What is on the servers, and a way in for records of another log.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use events::observation::BatchHead;
use events::position::{Shard, Stream};
use events::recording::RecordingBatch;
use events::subject::Subject;
use events::{BlobDigest, CloudEvent, OrganizationId};
use futures::{StreamExt as _, TryStreamExt as _};

use super::log::{headers, message_id};
use super::meta::Meta;
use super::records::{fits_a_subject, stream_name};
use super::server::{Copied, Page, Publish, PublishError, ServerError, Stored};
use super::{JetStreamStore, blobs, keyring};
use crate::Parts;
use crate::copy::{Copies, CopyError};
use crate::keyring::KeyName;
use crate::log::Record;
use crate::seal::parse_name;

/// How long a record is tried while nobody leads its stream, and how long a replica may lag.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);
/// Messages of one request.
const MESSAGES: usize = 512;
/// Partitions that are written at once.
const PARTITIONS_AT_ONCE: usize = 16;
/// Stands for a writer whose name cannot be read.
const UNREADABLE_WRITER: &str = "copied";

impl From<ServerError> for CopyError {
    fn from(error: ServerError) -> Self {
        Self::Failed { detail: error.0 }
    }
}

#[async_trait]
impl Copies for JetStreamStore {
    fn parts(&self) -> Parts {
        self.parts.clone()
    }

    async fn key_names(&self) -> Result<Vec<KeyName>, CopyError> {
        let before = format!("kasbah.{}.", keyring::TOKEN);
        let mut names = Vec::new();
        self.each(keyring::STREAM, |message| {
            // One that was destroyed is empty.
            let name = message.subject.strip_prefix(&before).filter(|_| !message.payload.is_empty());
            names.extend(name.and_then(|name| parse_name(&name.replace('.', "/"))));
        })
        .await?;
        Ok(names)
    }

    async fn blob_names(&self) -> Result<Vec<(OrganizationId, BlobDigest)>, CopyError> {
        let mut names = Vec::new();
        self.each(blobs::STREAM, |message| {
            let tokens: Vec<&str> = message.subject.split('.').skip(2).collect();
            // Parts of a blob have more.
            if let [organization, digest] = tokens[..] {
                names.extend(organization.parse().ok().zip(digest.parse().ok()));
            }
        })
        .await?;
        Ok(names)
    }

    async fn take(&self, records: Vec<Record>) -> Result<(), CopyError> {
        let mut shards: BTreeMap<Shard, Vec<Record>> = BTreeMap::new();
        for record in records {
            shards.entry(record.shard).or_default().push(record);
        }
        let written = shards.into_values().map(|records| async move {
            for record in records {
                self.store(&record).await?;
            }
            Ok(())
        });
        let written: Vec<_> = written.collect();
        futures::stream::iter(written).buffer_unordered(PARTITIONS_AT_ONCE).try_collect().await
    }

    async fn finish(&self) -> Result<(), CopyError> {
        self.checkpoints.round().await?;
        Meta::finish(&self.server).await.map_err(|error| CopyError::Failed { detail: error.to_string() })
    }
}

impl JetStreamStore {
    /// Looks at every message of a stream.
    async fn each(&self, stream: &str, mut look: impl FnMut(&Stored)) -> Result<(), ServerError> {
        let end = self.server.end(stream).await?;
        let mut from = 1;
        let mut lagging = Duration::ZERO;
        while from <= end {
            let page = Page { stream: stream.to_owned(), from, most: MESSAGES, subject: None };
            let messages = self.server.page(&page).await?;
            messages.iter().for_each(&mut look);
            match messages.last() {
                Some(last) => from = last.sequence + 1,
                None if lagging >= PATIENCE => {
                    return Err(ServerError(format!("{stream} has nothing at {from} and behind it")));
                }
                None => {
                    self.world.clock.sleep(PAUSE).await;
                    lagging += PAUSE;
                }
            }
        }
        Ok(())
    }

    /// Stores a record where it must lie, until it is there.
    async fn store(&self, record: &Record) -> Result<(), CopyError> {
        let message = self.message(record)?;
        let differs = |what| CopyError::Differs { shard: record.shard, sequence: record.sequence, what };
        let mut tried = Duration::ZERO;
        loop {
            let detail = match self.server.publish(&message).await {
                Ok(ack) if ack.sequence == record.sequence => return Ok(()),
                Ok(_) => return Err(differs("the commit lies elsewhere")),
                Err(PublishError::Refused(detail)) => return Err(CopyError::Failed { detail }),
                Err(error) => error.to_string(),
            };
            // What was not answered may be there.
            match self.at(record).await {
                Ok(Some(there)) if there == message.payload => return Ok(()),
                Ok(Some(_)) => return Err(differs("another record lies there")),
                Ok(None) | Err(_) if tried < PATIENCE => {}
                Ok(None) | Err(_) => return Err(CopyError::Failed { detail }),
            }
            self.world.clock.sleep(PAUSE).await;
            tried += PAUSE;
        }
    }

    /// What lies where a record must lie.
    async fn at(&self, record: &Record) -> Result<Option<Bytes>, ServerError> {
        let stream = stream_name(record.shard);
        if self.server.end(&stream).await? < record.sequence {
            return Ok(None);
        }
        let page = Page { stream, from: record.sequence, most: 1, subject: None };
        let there = self.server.page(&page).await?.into_iter().next();
        Ok(there.filter(|there| there.sequence == record.sequence).map(|there| there.payload))
    }

    fn message(&self, record: &Record) -> Result<Publish, CopyError> {
        let ((stream, partition), organization) = (record.shard, record.organization);
        let subject = match stream {
            Stream::Decisions => {
                let unreadable = CopyError::Unreadable { shard: record.shard, sequence: record.sequence };
                let commit = record.commit().ok_or(unreadable)?;
                Subject::log(partition, organization, &commit.aggregate).to_string()
            }
            Stream::Observations | Stream::Objects => {
                let head = BatchHead::read(&record.bytes).ok();
                let writer = head.map(|head| head.writer).filter(|writer| fits_a_subject(writer));
                let writer = writer.as_deref().unwrap_or(UNREADABLE_WRITER);
                let subject = if stream == Stream::Objects { Subject::objects } else { Subject::observed };
                subject(partition, organization, writer).to_string()
            }
            Stream::Audit => Subject::audit(partition, organization).to_string(),
            Stream::Refusals => Subject::refused(partition, organization).to_string(),
            Stream::Exports => {
                let event = CloudEvent::from_json(&record.bytes).ok();
                let event_type = event.map(|event| event.event_type);
                let event_type = event_type.filter(|given| given.split('.').all(fits_a_subject));
                let event_type = event_type.as_deref().unwrap_or(UNREADABLE_WRITER);
                Subject::exported(partition, organization, event_type).to_string()
            }
            Stream::Recordings => {
                let batch: Option<RecordingBatch> = events::decode(&record.bytes).ok();
                let session = batch.map(|batch| batch.session.to_string());
                let session = session.as_deref().unwrap_or(UNREADABLE_WRITER);
                Subject::recorded(partition, organization, session).to_string()
            }
        };
        let commit = record.commit();
        Ok(Publish {
            stream: stream_name(record.shard),
            id: commit.map(|commit| message_id(commit.id, &subject)),
            subject,
            expected: None,
            copied: Some(Copied {
                behind: record.sequence.saturating_sub(1),
                recorded_at: record.recorded_at,
            }),
            headers: commit
                .map(|commit| headers(&commit.events, commit.traceparent.as_deref()))
                .unwrap_or_default(),
            payload: record.bytes.clone(),
        })
    }
}
