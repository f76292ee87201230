//! A log around another one.

use std::collections::BTreeMap;

use async_trait::async_trait;
use events::position::Stream;
use events::{AggregateRef, CommitId, OrganizationId, Position, Timestamp};

use crate::checkpoint::Checkpoint;
use crate::log::{
    AppendError, Appended, EventLog, FollowReader, ForgetError, NewBatch, NewCommit, ReadError, ReadFilter,
    Record, RecordReader, Retained,
};
use crate::verify::VerifyReport;

/// An [`EventLog`] around another one, which does something of its own with what it overrides. Everything else goes to the inner log.
#[async_trait]
pub trait LogLayer: Send + Sync {
    /// The log that this one stands around.
    fn inner(&self) -> &dyn EventLog;

    /// See [`EventLog::append`].
    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        self.inner().append(commit).await
    }

    /// See [`EventLog::append_batch`].
    async fn append_batch(&self, record: NewBatch) -> Result<Position, AppendError> {
        self.inner().append_batch(record).await
    }

    /// See [`EventLog::folded`].
    fn folded(&self, projection: &'static str, streams: &[Stream], position: &Position) {
        self.inner().folded(projection, streams, position);
    }
}

#[async_trait]
impl<L: LogLayer> EventLog for L {
    fn id(&self) -> uuid::Uuid {
        self.inner().id()
    }

    fn partitions(&self) -> u16 {
        self.inner().partitions()
    }

    async fn append(&self, commit: NewCommit) -> Result<Appended, AppendError> {
        LogLayer::append(self, commit).await
    }

    async fn append_batch(&self, record: NewBatch) -> Result<Position, AppendError> {
        LogLayer::append_batch(self, record).await
    }

    async fn history(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
    ) -> Result<Vec<Record>, ReadError> {
        self.inner().history(organization, aggregate).await
    }

    async fn find(
        &self,
        organization: OrganizationId,
        aggregate: &AggregateRef,
        commit: CommitId,
    ) -> Result<Option<Record>, ReadError> {
        self.inner().find(organization, aggregate, commit).await
    }

    async fn read(&self, from: &Position, filter: &ReadFilter) -> Result<RecordReader, ReadError> {
        self.inner().read(from, filter).await
    }

    async fn follow(&self, from: &Position, filter: &ReadFilter) -> Result<FollowReader, ReadError> {
        self.inner().follow(from, filter).await
    }

    async fn position(&self, streams: &[Stream]) -> Result<Position, ReadError> {
        self.inner().position(streams).await
    }

    async fn position_at(&self, streams: &[Stream], time: Timestamp) -> Result<Position, ReadError> {
        self.inner().position_at(streams, time).await
    }

    async fn retained(&self, stream: Stream) -> Result<Retained, ReadError> {
        self.inner().retained(stream).await
    }

    async fn forget(&self, until: &Position) -> Result<(), ForgetError> {
        self.inner().forget(until).await
    }

    fn folded(&self, projection: &'static str, streams: &[Stream], position: &Position) {
        LogLayer::folded(self, projection, streams, position);
    }

    async fn checkpoints(&self, stream: Stream) -> Result<BTreeMap<u16, Checkpoint>, ReadError> {
        self.inner().checkpoints(stream).await
    }

    async fn verify(&self) -> Result<VerifyReport, ReadError> {
        self.inner().verify().await
    }
}
