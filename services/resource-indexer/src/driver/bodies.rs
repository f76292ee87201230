//! Bodies that are too large for a record, fetched before it is folded.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use events::observation::ObservationBatch;
use events::{AgentId, BlobDigest, OrganizationId};

use ::store::BlobError;

use super::Driver;
use crate::model::{Bodies, LONGEST_BODY};

/// The pause behind the first failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Driver {
    /// What a batch needs, as far as it is in the store. Waits for a store that does not answer: a body that is left out is unknown until
    /// its object changes or is stated again.
    pub(super) async fn bodies_of(
        &self,
        organization: OrganizationId,
        agent: AgentId,
        batch: &ObservationBatch,
    ) -> Bodies {
        let wanted = self.state.read().fold.wanted(agent, batch);
        let mut fetched = BTreeMap::new();
        for blob in wanted.blobs {
            fetched.insert(blob, self.body_of(organization, blob).await);
        }
        Bodies::of(fetched)
    }

    async fn body_of(&self, organization: OrganizationId, blob: BlobDigest) -> Option<Bytes> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.deps.blobs.get(organization, blob).await {
                Ok(body) => {
                    let is_short = u64::try_from(body.len()).is_ok_and(|bytes| bytes <= LONGEST_BODY);
                    return Some(body).filter(|_| is_short);
                }
                Err(error @ BlobError::Failed { .. }) => {
                    tracing::warn!(%error, "body of an object cannot be read, and is asked for again");
                }
                // Asking again would not bring it about.
                Err(error) => {
                    tracing::warn!(%error, "body of an object is not there");
                    return None;
                }
            }
            self.deps.world.clock.sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }
}
