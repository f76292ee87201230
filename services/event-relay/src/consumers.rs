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
use events::{ConsumerName, Position, Refusal, RefusalKind, Stream, SubscriptionId};
use store::{ConsumerError, ExportConsumers, Following, NewConsumer};
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

/// Makes and deletes consumers.
pub(crate) struct Consumers {
    pub(crate) deps: Deps,
    pub(crate) fold: Following<State>,
}

/// What a subscription's consumer was made for. Another one is made once events are to be sent from elsewhere on.
fn purpose(id: SubscriptionId, known: &Subscription) -> String {
    format!("{id}/{}", known.placed)
}

impl Consumers {
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
            if is_own && let Err(error) = self.keep(&**servers).await {
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
        let wanted: BTreeMap<ConsumerName, (SubscriptionId, Subscription)> = self.fold.read(|state| {
            let named =
                |(id, known): (SubscriptionId, &Subscription)| Some((known.consumer()?, (id, known.clone())));
            state.subscriptions().filter_map(named).collect()
        });
        let there = servers.list().await?;
        for name in there.keys().filter(|name| !wanted.contains_key(name)) {
            servers.delete(*name).await?;
            tracing::info!(consumer = %name, "consumer on NATS deleted");
        }
        for (name, (id, known)) in wanted {
            let purpose = purpose(id, &known);
            if there.get(&name).is_some_and(|consumer| consumer.purpose == purpose) {
                continue;
            }
            let behind = self.begin(&known).await?;
            let types = known.filter.types.clone();
            servers.make(&NewConsumer { name, types, behind, purpose }).await?;
            tracing::info!(consumer = %name, "consumer on NATS made");
        }
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
    pub(crate) async fn view(
        &self,
        id: SubscriptionId,
        known: &Subscription,
    ) -> Result<Option<ConsumerView>, Refusal> {
        let Some(name) = known.consumer() else { return Ok(None) };
        let found = self.servers()?.find(name).await.map_err(|error| away(&error))?;
        let found = found.filter(|(consumer, _)| consumer.purpose == purpose(id, known));
        Ok(found.map(|(consumer, oldest)| ConsumerView {
            stream: consumer.stream,
            name: name.to_string(),
            pending: consumer.pending,
            unacknowledged: consumer.unacknowledged,
            redelivered: consumer.redelivered,
            oldest,
            fetched_at: consumer.fetched_at,
            acknowledged_at: consumer.acknowledged_at,
        }))
    }

    /// Waits until a subscription's consumer is there, or gone. What takes longer than a caller waits is done all the same.
    pub(crate) async fn wait(&self, id: SubscriptionId, known: &Subscription, is_there: bool) {
        let clock = &self.deps.world.clock;
        let until = clock.monotonic() + MADE_WITHIN;
        while clock.monotonic() < until {
            if self.view(id, known).await.is_ok_and(|view| view.is_some() == is_there) {
                return;
            }
            clock.sleep(LOOK_EVERY).await;
        }
    }
}

fn away(error: &ConsumerError) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"))
}
