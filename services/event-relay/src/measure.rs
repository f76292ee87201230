//! Shows how subscribers stand: counts by state, and those by name that lag most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use events::{Actor, OrganizationId, SubscriptionId, Timestamp};

use crate::cursors::Progress;
use crate::deliverer::Deliverer;
use crate::model::{State, Subscription};
use crate::readers::behind;

/// How events get out, as labels have it.
const WAYS: [&str; 3] = ["webhook", "nats", "sse"];
/// How a subscriber stands, as labels have it.
const STATES: [&str; 4] = ["active", "retrying", "parked", "paused"];

/// How one subscriber stands.
struct Standing {
    who: Who,
    way: &'static str,
    state: &'static str,
    behind: u64,
    oldest: Option<Timestamp>,
}

/// A subscriber.
enum Who {
    Subscription(SubscriptionId),
    Reader(OrganizationId, Actor),
}

/// A subscriber's name in metrics, and how much it lags.
type Series = ([String; 4], i64);

impl Deliverer {
    /// Shows how the subscribers stand that are this replica's.
    pub(crate) fn measure(&self) {
        let mut all = self.webhooks();
        all.extend(self.consumers_on_nats());
        all.extend(self.readers_over_http());
        let mut counts: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for one in &all {
            *counts.entry((one.way, one.state)).or_default() += 1;
        }
        for (way, state) in WAYS.into_iter().flat_map(|way| STATES.map(|state| (way, state))) {
            let count = counts.get(&(way, state)).copied().unwrap_or(0);
            self.counts.subscriptions.with([way, state]).set(count);
        }
        let now = self.now();
        let seconds = |one: &Standing| Some(now.millis_since(one.oldest?) / 1000);
        let events = |one: &Standing| i64::try_from(one.behind).ok();
        self.counts.subscription_lag_seconds.replace(self.most(&all, seconds));
        self.counts.subscription_lag_events.replace(self.most(&all, events));
    }

    fn webhooks(&self) -> Vec<Standing> {
        let mut all = Vec::new();
        self.fold.read(|folded| {
            self.look_at_all(|id, progress| {
                let Some(known) = folded.subscription(id) else { return };
                let (way, state) = ("webhook", state_of(known, progress));
                let behind = progress.behind(self.ends.of(known.organization)).unwrap_or(0);
                all.push(Standing {
                    who: Who::Subscription(id),
                    way,
                    state,
                    behind,
                    oldest: progress.oldest,
                });
            });
        });
        all
    }

    fn consumers_on_nats(&self) -> impl Iterator<Item = Standing> {
        self.consumers.standing().into_iter().map(|consumer| Standing {
            who: Who::Subscription(consumer.subscription),
            way: "nats",
            state: if consumer.paused { "paused" } else { "active" },
            behind: consumer.behind,
            oldest: consumer.oldest,
        })
    }

    /// All replicas hear of all readers: each counts those of the organizations that are its own.
    fn readers_over_http(&self) -> Vec<Standing> {
        let mut all = Vec::new();
        self.readers.look_at_all(self.deps.world.clock.monotonic(), |reader| {
            if self.holds(reader.organization) {
                all.push(Standing {
                    who: Who::Reader(reader.organization, reader.actor.clone()),
                    way: "sse",
                    state: "active",
                    behind: behind(reader, self.ends.of(reader.organization)).unwrap_or(0),
                    oldest: reader.oldest,
                });
            }
        });
        all
    }

    /// Those that lag at all, the most first, by name.
    fn most(&self, all: &[Standing], lag: impl Fn(&Standing) -> Option<i64>) -> Vec<Series> {
        let mut lagging: Vec<(&Standing, i64)> =
            all.iter().filter_map(|one| Some((one, lag(one).filter(|lag| *lag > 0)?))).collect();
        lagging.sort_by_key(|(_, lag)| Reverse(*lag));
        self.fold.read(|folded| {
            let series = |(one, lag): (&Standing, i64)| {
                let (organization, name) = named(&one.who, folded)?;
                Some(([organization.to_string(), name, one.way.to_owned(), one.state.to_owned()], lag))
            };
            lagging.into_iter().filter_map(series).collect()
        })
    }
}

fn named(who: &Who, folded: &State) -> Option<(OrganizationId, String)> {
    match who {
        Who::Subscription(id) => {
            folded.subscription(*id).map(|known| (known.organization, known.name.clone()))
        }
        Who::Reader(organization, actor) => Some((*organization, actor.to_string())),
    }
}

const fn state_of(known: &Subscription, progress: &Progress) -> &'static str {
    match (&known.paused, &progress.parked, &progress.failing) {
        (Some(_), ..) => "paused",
        (None, Some(_), _) => "parked",
        (None, None, Some(_)) => "retrying",
        (None, None, None) => "active",
    }
}
