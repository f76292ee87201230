//! When which source is settled, and when gateways are told.

use std::time::Duration;

use anyhow::Context as _;
use bus::Live;
use events::SourceId;
use events::requests::delivery::DesiredChanged;
use events::subject::partition_of_organization;
use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use store::DecideError;
use tokio::sync::watch;

use super::{Driver, SettleError, chain};
use crate::model::{Changes, DeliveryState};
use crate::queue::{Due, Ended, Queue};

/// Sources of one partition that are settled at once: the log takes many decisions together at the price of one.
const AT_ONCE: usize = 256;
/// Nothing was to be done for so long: time to tidy up.
const QUIET: Duration = Duration::from_secs(60);
/// While there is something to do, bundles that are not in use are forgotten so often at most.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// What was touched since it was asked for last, and which replica looks at it.
struct Lookout<'a> {
    fold: &'a store::Following<DeliveryState>,
    changes: watch::Receiver<events::Position>,
    replicas: watch::Receiver<Live>,
    count: u64,
}

impl<'a> Lookout<'a> {
    fn new(fold: &'a store::Following<DeliveryState>, replicas: watch::Receiver<Live>) -> Self {
        Self { fold, changes: fold.changes(), replicas, count: 0 }
    }

    fn look(&mut self) -> (Changes, Live) {
        let touched = self.fold.read(|state| state.touched_since(self.count));
        self.count = touched.count;
        (touched, self.replicas.borrow_and_update().clone())
    }

    async fn changed(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            // What was another replica's is looked at from the start: that one may have died before it did something.
            changed = self.replicas.changed() => {
                changed.context("the replicas of delivery are no longer known")?;
                self.count = 0;
            }
            changed = self.changes.changed() => changed.context("the fold of delivery ended")?,
        }
        Ok(())
    }
}

impl Driver {
    /// Settles the sources of those agents that belong to this replica, each by itself.
    pub(super) async fn settle_sources(&self, replicas: watch::Receiver<Live>) -> anyhow::Result<()> {
        let (clock, random) = (&self.deps.world.clock, &*self.deps.world.random);
        let mut lookout = Lookout::new(&self.fold, replicas);
        let mut queue = Queue::new(AT_ONCE);
        let mut live = self.queue_touched(&mut lookout, &mut queue);
        let mut settling = FuturesUnordered::new();
        let (mut kept, mut tidied) = (0, clock.monotonic());
        loop {
            let now = clock.monotonic();
            while let Some(Due { source, agent, coming }) = queue.take(now) {
                if live.owns(agent.0.as_bytes()) {
                    settling.push(async move { (source, self.settle(source, &coming).await) }.boxed());
                } else {
                    queue.finished(source, Ended::Settled, now, random);
                }
            }
            // Which bundles are in use is the work of a look at all sources: only where there are more.
            let is_time = settling.is_empty() || now.saturating_sub(tidied) >= TIDY_EVERY;
            if is_time && self.bundles.kept() > kept {
                (kept, tidied) = (self.forget_unused_bundles(), now);
            }
            let pause = queue.until_next(now).unwrap_or(QUIET).min(QUIET);
            tokio::select! {
                biased;
                Some((source, settled)) = settling.next(), if !settling.is_empty() => {
                    let ended = self.ended(source, settled);
                    queue.finished(source, ended, clock.monotonic(), random);
                }
                changed = lookout.changed() => {
                    changed?;
                    live = self.queue_touched(&mut lookout, &mut queue);
                }
                () = clock.sleep(pause) => if queue.is_empty() {
                    kept = self.forget_unused_bundles();
                }
            }
        }
    }

    fn queue_touched(&self, lookout: &mut Lookout<'_>, queue: &mut Queue) -> Live {
        let (touched, live) = lookout.look();
        let (now, partitions) = (self.deps.world.clock.monotonic(), self.deps.log.partitions());
        for source in touched.sources {
            let Some((agent, organization, _)) = self.fold.read(|state| state.source_head(source)) else {
                continue;
            };
            if live.owns(agent.0.as_bytes()) {
                queue.touch(source, agent, partition_of_organization(organization, partitions), now);
            }
        }
        live
    }

    fn ended(&self, source: SourceId, settled: Result<(), SettleError>) -> Ended {
        let Err(error) = settled else { return Ended::Settled };
        match error {
            SettleError::Postponed => return Ended::Postponed,
            SettleError::Outdated | SettleError::Decide(DecideError::Overtaken { .. }) => {}
            _ => {
                self.counts.failures.inc();
                tracing::error!(%source, error = %chain(&error), "source cannot be settled");
            }
        }
        if error.is_transient() { Ended::Failed } else { Ended::Stuck }
    }

    /// Tells the gateways whose desired state changed, of those agents that belong to this replica.
    pub(super) async fn announce_for_ever(&self, replicas: watch::Receiver<Live>) -> anyhow::Result<()> {
        let mut lookout = Lookout::new(&self.fold, replicas);
        loop {
            let (touched, live) = lookout.look();
            let agents = touched.agents.into_iter().filter(|agent| live.owns(agent.0.as_bytes()));
            for agents in agents.collect::<Vec<_>>().chunks(DesiredChanged::MOST) {
                self.announce(agents).await;
            }
            lookout.changed().await?;
        }
    }
}
