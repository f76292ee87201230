//! Consumers on NATS, from which programs outside fetch: one for each subscription that wants it, and no others.
//!
//! The servers keep how far a consumer is. One that is lost, as in a copy of the log, is replaced by one that begins where the subscription
//! began: it repeats events, and never skips any.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::Live;
use events::export::EventFilter;
use events::requests::subscriptions::ConsumerView;
use events::subscription::SendFrom;
use events::{ConsumerName, Position, Refusal, RefusalKind, Stream, SubscriptionId, Timestamp};
use parking_lot::Mutex;
use store::{Consumer, ConsumerError, ExportConsumers, Following, NewConsumer};
use tokio::sync::watch;

use crate::driver::Deps;
use crate::model::{State, Subscription};

/// The key by which the replicas choose the one that makes consumers.
const CONSUMERS: &[u8] = b"consumers";
/// How often what the servers have is compared when nothing changes: somebody else may have deleted a consumer.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a request waits for the consumer that it caused to be made or deleted.
const MADE_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Consumers that are asked in one comparison for their oldest events: those with most events to give.
const MOST_ASKED: usize = 100;

/// Makes, pauses and deletes consumers.
pub(crate) struct Consumers {
    pub(crate) deps: Deps,
    pub(crate) fold: Following<State>,
    /// How the consumers stand, as was seen in the last comparison, if that is this replica's.
    standing: Mutex<Vec<ConsumerStanding>>,
}

/// How a consumer stands, for metrics.
#[derive(Debug, Clone)]
pub(crate) struct ConsumerStanding {
    pub(crate) subscription: SubscriptionId,
    pub(crate) paused: bool,
    pub(crate) behind: u64,
    pub(crate) oldest: Option<Timestamp>,
}

/// Consumers that are to be there.
type Wanted = BTreeMap<ConsumerName, (SubscriptionId, Subscription)>;

/// What a subscription's consumer was made for. Another one is made once events are to be sent from elsewhere on.
fn purpose(id: SubscriptionId, known: &Subscription) -> String {
    format!("{id}/{}", known.placed)
}

impl Consumers {
    pub(crate) fn new(deps: Deps, fold: Following<State>) -> Self {
        Self { deps, fold, standing: Mutex::default() }
    }

    /// How the consumers stand that this replica keeps.
    pub(crate) fn standing(&self) -> Vec<ConsumerStanding> {
        self.standing.lock().clone()
    }

    fn servers(&self) -> Result<&Arc<dyn ExportConsumers>, Refusal> {
        let message = "this installation runs without NATS: use a webhook, or read /api/events";
        self.deps.consumers.as_ref().ok_or_else(|| Refusal::new(RefusalKind::Conflict, message))
    }

    /// Refuses what a consumer cannot do.
    pub(crate) fn check(&self, filter: &EventFilter) -> Result<(), Refusal> {
        self.servers()?;
        // The servers know an event's organization and type, which are in its subject, and nothing else of it.
        for (field, is_given) in
            [("project", filter.project.is_some()), ("environment", filter.environment.is_some())]
        {
            if is_given {
                return Err(Refusal::invalid(
                    field,
                    "cannot be combined with nats, which filters by type only",
                ));
            }
        }
        Ok(())
    }

    /// Keeps the servers' consumers as the subscriptions want them, while that is this replica's.
    pub(crate) async fn keep_for_ever(&self, mut live: watch::Receiver<Live>) -> anyhow::Result<()> {
        let Some(servers) = &self.deps.consumers else { return std::future::pending().await };
        let mut changes = self.fold.changes();
        loop {
            let mut wait = COMPARE_EVERY;
            // What changes while the servers are asked is compared again at once.
            let revision = self.fold.read(State::revision);
            let is_own = live.borrow_and_update().owns(CONSUMERS);
            if !is_own {
                self.standing.lock().clear();
            } else if let Err(error) = self.keep(&**servers).await {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "consumers on NATS are not as they should be yet"
                );
                wait = PAUSE;
            }
            let changed = async {
                while self.fold.read(State::revision) == revision {
                    changes.changed().await.context("the fold of event-relay ended")?;
                }
                anyhow::Ok(())
            };
            tokio::select! {
                biased;
                () = self.deps.world.clock.sleep(wait) => {}
                changed = live.changed() => changed.context("replicas are no longer known")?,
                changed = changed => changed?,
            }
        }
    }

    async fn keep(&self, servers: &dyn ExportConsumers) -> anyhow::Result<()> {
        let wanted: Wanted = self.fold.read(|state| {
            let named =
                |(id, known): (SubscriptionId, &Subscription)| Some((known.consumer()?, (id, known.clone())));
            state.subscriptions().filter_map(named).collect()
        });
        let mut there = servers.list().await?;
        for name in there.keys().filter(|name| !wanted.contains_key(name)) {
            servers.delete(*name).await?;
            tracing::info!(consumer = %name, "consumer on NATS deleted");
        }
        there.retain(|name, _| wanted.contains_key(name));
        for (name, (id, known)) in &wanted {
            let found = there.get_mut(name).filter(|consumer| consumer.purpose == purpose(*id, known));
            let is_there = found.is_some();
            self.keep_one(servers, *name, (*id, known), found).await?;
            if !is_there {
                // How one that was made stands is seen in the next comparison.
                there.remove(name);
            }
        }
        self.look(servers, there, &wanted).await
    }

    /// Makes a consumer that is not there, and pauses one or lets it go on.
    async fn keep_one(
        &self,
        servers: &dyn ExportConsumers,
        name: ConsumerName,
        (id, known): (SubscriptionId, &Subscription),
        found: Option<&mut Consumer>,
    ) -> anyhow::Result<()> {
        let paused = known.paused.is_some();
        match found {
            Some(consumer) if consumer.paused == paused => {}
            Some(consumer) => {
                servers.pause(name, paused).await?;
                consumer.paused = paused;
                tracing::info!(consumer = %name, paused, "consumer on NATS paused or let go on");
            }
            None => {
                let (types, behind) = (known.filter.types.clone(), self.begin(known).await?);
                let purpose = purpose(id, known);
                servers.make(&NewConsumer { name, types, behind, purpose, paused }).await?;
                tracing::info!(consumer = %name, "consumer on NATS made");
            }
        }
        Ok(())
    }

    /// Notes how the consumers stand, those with most events to give first.
    async fn look(
        &self,
        servers: &dyn ExportConsumers,
        there: BTreeMap<ConsumerName, Consumer>,
        wanted: &Wanted,
    ) -> anyhow::Result<()> {
        let mut there: Vec<_> = there.into_iter().collect();
        there.sort_by_key(|(_, consumer)| std::cmp::Reverse(consumer.behind()));
        let mut standing = Vec::new();
        for (place, (name, consumer)) in there.into_iter().enumerate() {
            let Some((subscription, _)) = wanted.get(&name) else { continue };
            let (subscription, paused, behind) = (*subscription, consumer.paused, consumer.behind());
            let asks = behind > 0 && place < MOST_ASKED;
            let oldest = if asks { servers.oldest(name).await? } else { None };
            standing.push(ConsumerStanding { subscription, paused, behind, oldest });
        }
        *self.standing.lock() = standing;
        Ok(())
    }

    /// Behind what a consumer begins.
    async fn begin(&self, known: &Subscription) -> anyhow::Result<Position> {
        let since = match known.from {
            SendFrom::Behind(position) => position.read_since(),
            SendFrom::Time(time) => time.plus_millis(-1),
        };
        Ok(self.deps.log.position_at(&[Stream::Exports], since).await?)
    }

    /// The consumer of a subscription; `None` while it is not as the subscription wants it.
    async fn find(
        &self,
        id: SubscriptionId,
        known: &Subscription,
    ) -> Result<Option<(ConsumerName, Consumer)>, Refusal> {
        let Some(name) = known.consumer() else { return Ok(None) };
        let found = self.servers()?.find(name).await.map_err(|error| away(&error))?;
        let is_it = |consumer: &Consumer| {
            consumer.purpose == purpose(id, known) && consumer.paused == known.paused.is_some()
        };
        Ok(found.filter(is_it).map(|consumer| (name, consumer)))
    }

    /// The consumer of a subscription, and when the oldest event was exported that was not acknowledged; `None` while it is not as the
    /// subscription wants it.
    pub(crate) async fn view(
        &self,
        id: SubscriptionId,
        known: &Subscription,
    ) -> Result<Option<(ConsumerView, Option<Timestamp>)>, Refusal> {
        let Some((name, consumer)) = self.find(id, known).await? else { return Ok(None) };
        let oldest = match consumer.behind() {
            0 => None,
            _ => self.servers()?.oldest(name).await.map_err(|error| away(&error))?,
        };
        let view = ConsumerView {
            stream: consumer.stream,
            name: name.to_string(),
            pending: consumer.pending,
            unacknowledged: consumer.unacknowledged,
            redelivered: consumer.redelivered,
            fetched_at: consumer.fetched_at,
            acknowledged_at: consumer.acknowledged_at,
        };
        Ok(Some((view, oldest)))
    }

    /// Waits until a subscription's consumer is there as it is wanted, or gone. What takes longer than a caller waits is done all the same.
    pub(crate) async fn wait(&self, id: SubscriptionId, known: &Subscription, is_there: bool) {
        let clock = &self.deps.world.clock;
        let until = clock.monotonic() + MADE_WITHIN;
        while clock.monotonic() < until {
            if self.find(id, known).await.is_ok_and(|found| found.is_some() == is_there) {
                return;
            }
            clock.sleep(LOOK_EVERY).await;
        }
    }
}

fn away(error: &ConsumerError) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"))
}
