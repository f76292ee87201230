//! What is in a folder, and a way in for records of another log.

use async_trait::async_trait;
use events::position::Stream;
use events::{BlobDigest, ChainHash, OrganizationId};
use tokio::sync::oneshot;

use super::EmbeddedStore;
use super::index::AggregateHead;
use super::record::{AggregateKey, ChainedHead, RecordHead, kind_tag};
use super::writer::Request;
use crate::Parts;
use crate::copy::{Copies, CopyError, CopyMark};
use crate::keyring::KeyName;
use crate::log::{AppendError, Record};

fn failed(error: impl std::fmt::Display) -> CopyError {
    CopyError::Failed { detail: error.to_string() }
}

#[async_trait]
impl Copies for EmbeddedStore {
    fn parts(&self) -> Parts {
        Self::parts(self)
    }

    async fn key_names(&self) -> Result<Vec<KeyName>, CopyError> {
        Ok(self.key_file.names())
    }

    async fn blob_names(&self) -> Result<Vec<(OrganizationId, BlobDigest)>, CopyError> {
        let blobs = std::sync::Arc::clone(&self.blob_files);
        Ok(tokio::task::spawn_blocking(move || blobs.names()).await.map_err(failed)??)
    }

    async fn take(&self, records: Vec<Record>) -> Result<(), CopyError> {
        let mut answers = Vec::with_capacity(records.len());
        // All of them wait before the first is answered, so that the writers sync once for many.
        for record in records {
            let (shard, sequence) = (record.shard, record.sequence);
            let (reply, answer) = oneshot::channel();
            let request = self.request(record, reply)?;
            let core = self.log_files.core(shard.0).filter(|_| self.log_files.read_only.get().is_none());
            if !core.is_some_and(|core| core.push(request)) {
                return Err(failed("the log accepts no writes"));
            }
            answers.push((shard, sequence, answer));
        }
        for (shard, sequence, answer) in answers {
            match answer.await {
                Ok(Ok(appended)) if !appended.duplicate => {}
                Ok(Ok(_)) => {
                    return Err(CopyError::Differs { shard, sequence, what: "the commit is there already" });
                }
                Ok(Err(AppendError::Conflict { .. })) => {
                    return Err(CopyError::Differs {
                        shard,
                        sequence,
                        what: "the commit does not follow on what its aggregate has there",
                    });
                }
                Ok(Err(error)) => return Err(failed(error)),
                Err(_) => return Err(failed("the log ended")),
            }
        }
        Ok(())
    }

    async fn finish(&self) -> Result<(), CopyError> {
        let mut meta = self.meta.clone();
        meta.copy = meta.copy.map(CopyMark::finished);
        let (disk, folder) = (std::sync::Arc::clone(&self.disk), self.log_folder.clone());
        let written = tokio::task::spawn_blocking(move || meta.write(disk.as_ref(), &folder));
        written.await.map_err(failed)?.map_err(failed)
    }
}

impl EmbeddedStore {
    fn request(&self, record: Record, reply: super::answers::Reply) -> Result<Request, CopyError> {
        let (stream, partition) = record.shard;
        let mut request = Request {
            head: RecordHead {
                partition,
                sequence: record.sequence,
                recorded_at: record.recorded_at,
                organization: record.organization,
                chained: None,
            },
            link: ChainHash::of(&record.bytes),
            made_on: AggregateHead::NONE,
            aggregate: None,
            payload: record.bytes.to_vec(),
            reply,
        };
        if stream == Stream::Decisions {
            let commit = record
                .commit()
                .ok_or(CopyError::Unreadable { shard: record.shard, sequence: record.sequence })?;
            request.head.chained = Some(ChainedHead {
                kind: kind_tag(commit.aggregate.kind),
                aggregate: AggregateKey::of(commit.organization, &commit.aggregate),
                version: commit.version,
                commit: commit.id,
            });
            request.made_on =
                AggregateHead { version: commit.version.saturating_sub(1), hash: commit.previous };
            request.aggregate = Some(commit.aggregate.clone());
        }
        Ok(request)
    }
}
