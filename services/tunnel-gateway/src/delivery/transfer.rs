//! Sending an agent the pages and objects that it lacks.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use events::desired::DesiredReply;
use events::{OrganizationId, Refusal, Sha256};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use http::{Method, StatusCode};
use tunnel::gateway::{AgentReply, AskError};
use tunnel::wire::{Objects, path};

use super::bundles::ResolveError;
use crate::gateway::Gateway;
use crate::tunnels::session::Session;

/// Contents that are read before they are sent.
const READ_AHEAD: usize = 32;
/// Bytes of contents in one request, if there is more than one: so that slow links make progress that is kept.
const BATCH_BYTES: usize = 256 * 1024;
/// Requests to one agent at once.
const PARALLEL: usize = 4;
/// How often an agent may say that something is missing.
pub(crate) const ROUNDS: u32 = 6;
pub(crate) const MAXIMUM_REPLY_BYTES: usize = 8 * 1024 * 1024;
const OBJECTS_TIME: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    #[error("a bundle cannot be read")]
    Resolve(#[from] ResolveError),
    #[error("the agent does not answer")]
    Tunnel(#[from] AskError),
    #[error("objects cannot be encoded")]
    Encode(#[from] events::EncodeError),
    #[error("the agent answered {status} to objects: {reason}")]
    Refused { status: StatusCode, reason: String },
    #[error("the agent's answer is malformed: {0}")]
    Answer(#[from] events::DecodeError),
    #[error("the agent requests objects that are not its own, or requests them repeatedly")]
    Unsatisfied,
}

/// The session that objects are sent over.
#[derive(Clone, Copy)]
pub(crate) struct ObjectTransfer<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) session: &'a Session,
}

impl ObjectTransfer<'_> {
    const fn organization(&self) -> OrganizationId {
        self.session.organization
    }

    /// Sends these.
    async fn send(&self, digests: BTreeSet<Sha256>) -> Result<(), TransferError> {
        self.send_batches(batches(self.contents(digests))).await
    }

    /// Sends these, and the state that needs them with them if all of it goes into one request: what the agent answered to the
    /// state, if it was sent and the agent is not too old for that.
    pub(crate) async fn send_with(
        &self,
        digests: BTreeSet<Sha256>,
        desired: &Bytes,
    ) -> Result<Option<AgentReply>, TransferError> {
        let mut batches = pin!(batches(self.contents(digests)));
        let Some(first) = batches.try_next().await? else { return Ok(None) };
        let second = batches.try_next().await?;
        let bytes = first.iter().map(Bytes::len).sum::<usize>() + desired.len();
        if second.is_none() && bytes <= BATCH_BYTES {
            let asked = self.send_batch(first, Some(desired.clone())).await?;
            return Ok((asked.status != StatusCode::NO_CONTENT).then_some(asked));
        }
        self.send_batches(stream::iter(std::iter::once(first).chain(second).map(Ok)).chain(batches)).await?;
        Ok(None)
    }

    async fn send_batches(
        &self,
        batches: impl Stream<Item = Result<Vec<Bytes>, TransferError>>,
    ) -> Result<(), TransferError> {
        batches
            .try_for_each_concurrent(PARALLEL, |batch| async { self.send_batch(batch, None).await.map(drop) })
            .await
    }

    fn contents(&self, digests: BTreeSet<Sha256>) -> impl Stream<Item = Result<Bytes, TransferError>> {
        stream::iter(digests)
            .map(|digest| self.gateway.bundles.sendable(self.organization(), digest))
            .buffered(READ_AHEAD)
            .map_err(TransferError::from)
    }

    async fn send_batch(
        &self,
        contents: Vec<Bytes>,
        desired: Option<Bytes>,
    ) -> Result<AgentReply, TransferError> {
        let (count, has_state) = (contents.len() as u64, desired.is_some());
        let body = Bytes::from(events::encode(&Objects { contents, desired })?);
        let asked = self
            .session
            .connection
            .traced(chassis::traces::current_traceparent().as_deref())
            .ask(Method::PUT, path::OBJECTS, body, MAXIMUM_REPLY_BYTES, OBJECTS_TIME)
            .await?;
        let is_about_state = has_state && asked.status == StatusCode::CONFLICT;
        if !asked.status.is_success() && !is_about_state {
            let refusal = events::decode::<Refusal>(&asked.body);
            let reason = refusal.map(|refusal| refusal.message).unwrap_or_default();
            return Err(TransferError::Refused { status: asked.status, reason });
        }
        self.gateway.counts.objects_sent.inc_by(count);
        Ok(asked)
    }

    /// Sends what the agent answered that it lacks, if all of it belongs to these pages; true when it lacks nothing.
    pub(crate) async fn send_missing(
        &self,
        pages: &BTreeSet<Sha256>,
        answer: &[u8],
    ) -> Result<bool, TransferError> {
        let DesiredReply { missing } = events::decode(answer)?;
        if missing.is_empty() {
            return Ok(true);
        }
        let missing: BTreeSet<Sha256> = missing.into_iter().collect();
        if !missing.is_subset(pages) {
            let of_pages =
                self.gateway.bundles.objects_of(self.organization(), pages.iter().copied()).await?;
            let objects: BTreeSet<Sha256> =
                of_pages.iter().flat_map(|(_, objects)| objects.iter().copied()).collect();
            if !missing.iter().all(|digest| pages.contains(digest) || objects.contains(digest)) {
                return Err(TransferError::Unsatisfied);
            }
        }
        self.send(missing).await?;
        Ok(false)
    }
}

/// In order, as many together as one request may have.
fn batches<E>(contents: impl Stream<Item = Result<Bytes, E>>) -> impl Stream<Item = Result<Vec<Bytes>, E>> {
    let contents = Box::pin(contents.fuse());
    stream::try_unfold((contents, None::<Bytes>), |(mut contents, first)| async move {
        let mut bytes = first.as_ref().map_or(0, Bytes::len);
        let mut batch = Vec::from_iter(first);
        while let Some(content) = contents.try_next().await? {
            bytes += content.len();
            if bytes > BATCH_BYTES && !batch.is_empty() {
                return Ok(Some((batch, (contents, Some(content)))));
            }
            batch.push(content);
        }
        Ok((!batch.is_empty()).then_some((batch, (contents, None))))
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[tokio::test]
    async fn small_ones_travel_together_and_a_large_one_alone() {
        let content = |bytes: usize| Ok::<_, Infallible>(Bytes::from(vec![0; bytes]));
        let sizes = [10, BATCH_BYTES - 10, 1, BATCH_BYTES * 3, 7, 8];
        let batches = batches(stream::iter(sizes.map(content)));
        let lengths: Vec<Vec<usize>> =
            batches.map_ok(|batch| batch.iter().map(Bytes::len).collect()).try_collect().await.unwrap();
        assert_eq!(lengths, [vec![10, BATCH_BYTES - 10], vec![1], vec![BATCH_BYTES * 3], vec![7, 8]]);
        let none = super::batches(stream::iter([0; 0].map(content)));
        assert_eq!(none.count().await, 0);
    }
}
