//! A log that commits may reach late.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use events::{AggregateKind, AggregateRef, OrganizationId, Position, Stream};
use parking_lot::Mutex;
use store::{
    AppendError, Appended, Checkpoint, EventLog, FollowReader, ForgetError, NewBatch, NewCommit, ReadError,
    ReadFilter, Record, RecordReader, Retained,
};

/// What happens instead of the next commit of a configuration reaching the log, if anything; and the commits that did not.
#[derive(Default)]
pub struct Late {
    pub meanwhile: Option<Box<dyn FnOnce() + Send>>,
    pub commits: Vec<NewCommit>,
}

/// What is said of configurations does not reach it, and nobody knows, when the test wants it so.
pub struct LateLog {
    pub log: Arc<dyn EventLog>,
    pub late: Arc<Mutex<Late>>,
}

#[async_trait]
impl EventLog for LateLog {
    fn id(&self) -> uuid::Uuid {
        self.log.id()
    }

    fn partitions(&self) -> u16 {
        self.log.partitions()
    }

    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        if commit.aggregate.kind == AggregateKind::Configuration {
            let mut late = self.late.lock();
            if let Some(meanwhile) = late.meanwhile.take() {
                meanwhile();
                late.commits.push(commit);
                return Err(AppendError::Unknown { detail: "by the test".to_owned() });
            }
        }
        self.log.append(commit).await
    }

    async fn append_batch(&self, record: NewBatch) -> Result<Position, AppendError> {
        self.log.append_batch(record).await
    }

    async fn history(&self, of: OrganizationId, aggregate: &AggregateRef) -> Result<Vec<Record>, ReadError> {
        self.log.history(of, aggregate).await
    }

    async fn read(&self, from: &Position, filter: &ReadFilter) -> Result<RecordReader, ReadError> {
        self.log.read(from, filter).await
    }

    async fn follow(&self, from: &Position, filter: &ReadFilter) -> Result<FollowReader, ReadError> {
        self.log.follow(from, filter).await
    }

    async fn position(&self, streams: &[Stream]) -> Result<Position, ReadError> {
        self.log.position(streams).await
    }

    async fn retained(&self, stream: Stream) -> Result<Retained, ReadError> {
        self.log.retained(stream).await
    }

    async fn forget(&self, until: &Position) -> Result<(), ForgetError> {
        self.log.forget(until).await
    }

    async fn checkpoints(&self, stream: Stream) -> Result<BTreeMap<u16, Checkpoint>, ReadError> {
        self.log.checkpoints(stream).await
    }
}
