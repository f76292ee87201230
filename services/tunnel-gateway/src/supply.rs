//! Sending an agent the pages and objects that it lacks.

use std::collections::BTreeSet;
use std::time::Duration;

use events::desired::DesiredReply;
use events::{OrganizationId, Refusal, Sha256};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::{Method, StatusCode};
use store::BlobError;
use tunnel::gateway::AskError;
use tunnel::wire::path;

use crate::gateway::Gateway;
use crate::resolve::ResolveError;
use crate::session::Session;

/// Requests to one agent at once.
const PARALLEL: usize = 32;
/// How often an agent may say that something is missing.
pub(crate) const ROUNDS: u32 = 6;
pub(crate) const MAXIMUM_REPLY_BYTES: usize = 8 * 1024 * 1024;
const OBJECT_TIME: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(crate) enum SupplyError {
    #[error("a bundle cannot be read")]
    Resolve(#[from] ResolveError),
    #[error("an object cannot be read")]
    Blob(#[from] BlobError),
    #[error("the agent cannot be asked")]
    Tunnel(#[from] AskError),
    #[error("the agent answered {status} to an object: {reason}")]
    Refused { status: StatusCode, reason: String },
    #[error("the agent's answer is malformed: {0}")]
    Answer(#[from] events::DecodeError),
    #[error("the agent lacks what is not its own, or lacks it for ever")]
    Unsatisfied,
}

/// To whom something is sent.
#[derive(Clone, Copy)]
pub(crate) struct Supply<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) session: &'a Session,
}

impl Supply<'_> {
    const fn organization(&self) -> OrganizationId {
        self.session.organization
    }

    pub(crate) async fn send(&self, digests: BTreeSet<Sha256>) -> Result<(), SupplyError> {
        stream::iter(digests)
            .map(|digest| self.send_one(digest))
            .buffer_unordered(PARALLEL)
            .try_for_each(|()| std::future::ready(Ok(())))
            .await
    }

    async fn send_one(&self, digest: Sha256) -> Result<(), SupplyError> {
        let content = self.gateway.shelf.content(self.organization(), digest).await?;
        let to = format!("{}{digest}", path::OBJECTS);
        let asked =
            self.session.connection.ask(Method::PUT, &to, content, MAXIMUM_REPLY_BYTES, OBJECT_TIME).await?;
        if !asked.status.is_success() {
            let refusal = events::decode::<Refusal>(&asked.body);
            let reason = refusal.map(|refusal| refusal.message).unwrap_or_default();
            return Err(SupplyError::Refused { status: asked.status, reason });
        }
        self.gateway.counts.objects_sent.inc();
        Ok(())
    }

    /// Sends what the agent answered that it lacks, if all of it belongs to these pages; true when it lacks nothing.
    pub(crate) async fn send_missing(
        &self,
        pages: &BTreeSet<Sha256>,
        answer: &[u8],
    ) -> Result<bool, SupplyError> {
        let DesiredReply { missing } = events::decode(answer)?;
        if missing.is_empty() {
            return Ok(true);
        }
        let missing: BTreeSet<Sha256> = missing.into_iter().collect();
        if !missing.is_subset(pages) {
            let of_pages = self.gateway.shelf.objects_of(self.organization(), pages.iter().copied()).await?;
            let objects: BTreeSet<Sha256> =
                of_pages.iter().flat_map(|(_, objects)| objects.iter().copied()).collect();
            if !missing.iter().all(|digest| pages.contains(digest) || objects.contains(digest)) {
                return Err(SupplyError::Unsatisfied);
            }
        }
        self.send(missing).await?;
        Ok(false)
    }
}
