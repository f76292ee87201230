//! How far the exports are, of each organization: what is compared with where its subscribers are.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use events::export::ExportLane;
use events::{CloudEvent, OrganizationId, Stream};
use parking_lot::Mutex;
use store::{Followed, ReadFilter};

use crate::driver::Deps;
use crate::exporter::read_by_now;

/// Pause when the exports cannot be read.
const PAUSE: Duration = Duration::from_secs(1);

/// The ends of the organizations' exports. Each replica follows the exports once for all that are asked, from the exporter's checkpoint on.
#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    lanes: BTreeMap<OrganizationId, ExportLane>,
    /// Everything was read that was there.
    is_complete: bool,
}

impl Ends {
    /// The number of an organization's last exported event; 0 before the first, and `None` while it is not known yet.
    pub(crate) fn of(&self, organization: OrganizationId) -> Option<u64> {
        let known = self.0.lock();
        let end = known.lanes.get(&organization).map_or(0, |lane| lane.sequence);
        known.is_complete.then_some(end)
    }

    pub(crate) async fn follow_for_ever(&self, deps: &Deps) -> anyhow::Result<()> {
        loop {
            if let Err(error) = self.follow(deps).await {
                tracing::warn!(error = format!("{error:#}"), "how far the exports are is not known now");
            }
            deps.world.clock.sleep(PAUSE).await;
        }
    }

    /// Follows the exports until they cannot be read.
    async fn follow(&self, deps: &Deps) -> anyhow::Result<()> {
        let (position, lanes) = read_by_now(&*deps.snapshots).await?;
        *self.0.lock() = Known { lanes, is_complete: false };
        let mut records = deps.log.follow(&position, &ReadFilter::streams(&[Stream::Exports])).await?;
        loop {
            match records.recv().await.context("the log ended")?? {
                Followed::Record(record) => {
                    if let Ok(event) = CloudEvent::from_json(&record.bytes) {
                        self.0.lock().lanes.entry(record.organization).or_default().take(&event);
                    }
                }
                Followed::CaughtUp(_) => self.0.lock().is_complete = true,
                Followed::Passed(_) => {}
            }
        }
    }
}
