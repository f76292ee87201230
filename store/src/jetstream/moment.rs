//! Where a shard was at a moment.
//!
//! The servers stamp messages with the clock of the server that leads the stream, so that their times may run backwards a little where the leader
//! changed. Readers take the running maximum: a shard was at a moment where the first message lies that was stamped later.

use std::sync::Arc;

use events::Timestamp;
use events::position::Shard;
use world::World;

use super::pages::SequenceRange;
use super::records::stream_name;
use super::server::{Extent, Server, ServerError};

/// By how much the clocks of a cluster's servers may differ. A place is off by no more than what they differ beyond that.
const SKEW_MILLIS: i64 = 2000;

/// Searches one shard.
pub(super) struct Search<'a> {
    pub(super) server: &'a Arc<dyn Server>,
    pub(super) world: &'a World,
    pub(super) shard: Shard,
}

impl Search<'_> {
    /// The last sequence that was recorded by then, 0 for none. What has left counts as recorded by then.
    pub(super) async fn sequence_at(&self, time: Timestamp) -> Result<u64, ServerError> {
        let Extent { first, last, .. } = self.server.extent(&stream_name(self.shard)).await?;
        let left = first.saturating_sub(1).min(last);
        let surely = self.boundary(left, last, time.plus_millis(-SKEW_MILLIS)).await?;
        let perhaps = self.boundary(surely, last, time).await?;
        let mut pieces = self.stretch(surely + 1, perhaps).pieces();
        while let Some(messages) = pieces.next().await {
            if let Some(later) = messages?.iter().find(|message| message.recorded_at > time) {
                return Ok(later.sequence.saturating_sub(1).max(surely));
            }
        }
        Ok(perhaps)
    }

    /// A sequence from `low` to `high` whose message was stamped by then, unless it is `low`; the next one was not, unless it is `high`.
    async fn boundary(&self, mut low: u64, mut high: u64, time: Timestamp) -> Result<u64, ServerError> {
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let found = self.stretch(middle, high).first().await?;
            match found.filter(|found| found.sequence <= high && found.recorded_at <= time) {
                Some(found) => low = found.sequence,
                None => high = middle - 1,
            }
        }
        Ok(low)
    }

    fn stretch(&self, from: u64, to: u64) -> SequenceRange {
        SequenceRange::of_shard(self.server, self.world, self.shard, from, to)
    }
}
