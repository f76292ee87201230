//! Tells the server of every object that the agent's own account may see, and of each change: while this instance is the applier, one
//! feed for each kind.
//!
//! It holds no body: an object is read, pruned, hashed, told and forgotten but for about a hundred bytes. What a feed cannot see is reported
//! as well, and so is every gap. Everything is stated anew in each epoch, and each kind again and again.

mod bodies;
mod feed;
mod feeds;
mod listing;
mod looks;
mod rediscovery;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chassis::Shutdown;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};

use crate::applier::Shared;
use crate::kubernetes::Resource;
use crate::metrics::Counts;
use crate::model::feeds::FeedKey;
use crate::object_outbox::ObjectOutbox;
use feeds::{Feeds, TICK};
use state::FeedState;

/// Lists at once: the cluster's users come first.
const LISTS: usize = 2;
/// Blind kinds that the debug page names.
const BLIND_SHOWN: usize = 50;

/// What all feeds share.
pub struct Observer {
    shared: Arc<Shared>,
    outbox: Arc<ObjectOutbox>,
    counts: Counts,
    lists: Semaphore,
    states: Mutex<BTreeMap<FeedKey, Arc<Mutex<FeedState>>>>,
    /// Kinds that may not be listed in all namespaces at once.
    forbidden: Mutex<BTreeSet<Arc<Resource>>>,
    /// The feeds have to be laid out anew.
    relay: Notify,
    /// The API server may serve other kinds by now.
    kinds_moved: Notify,
    /// Somebody may have other rights by now.
    rights_moved: watch::Sender<()>,
    /// How often the feeds were laid out.
    laid_out: watch::Sender<u64>,
}

/// What it does, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Objects that were told.
    pub objects: usize,
    /// Feeds that run, or stand by until the Lease is back.
    pub feeds: usize,
    /// Of these, those that see nothing.
    pub blind: usize,
}

impl Observer {
    /// Observes nothing yet.
    #[must_use]
    pub fn new(shared: Arc<Shared>, counts: Counts) -> Self {
        let outbox = Arc::new(ObjectOutbox::new(shared.world.clone()));
        Self {
            shared,
            outbox,
            counts,
            lists: Semaphore::new(LISTS),
            states: Mutex::default(),
            forbidden: Mutex::default(),
            relay: Notify::new(),
            kinds_moved: Notify::new(),
            rights_moved: watch::Sender::new(()),
            laid_out: watch::Sender::new(0),
        }
    }

    /// What it has to tell the server.
    #[must_use]
    pub fn outbox(&self) -> Arc<ObjectOutbox> {
        Arc::clone(&self.outbox)
    }

    /// Counts objects and feeds.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let states = self.states.lock();
        let mut figures = Figures { feeds: states.len(), ..Figures::default() };
        for state in states.values() {
            let state = state.lock();
            figures.objects += state.known.len();
            figures.blind += usize::from(state.blind.is_some());
        }
        figures
    }

    /// Shows its numbers.
    pub(crate) fn count(&self) {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let Figures { objects, feeds, blind } = self.figures();
        self.counts.observed_objects.set(number(objects));
        self.counts.object_feeds.set(number(feeds));
        self.counts.blind_kinds.set(number(blind));
        self.counts.queued_object_bytes.set(number(self.outbox.bytes()));
    }

    /// For people: what is observed, and what is not seen.
    #[must_use]
    pub fn describe(&self) -> serde_json::Value {
        let Figures { objects, feeds, blind } = self.figures();
        let states = self.states.lock();
        let reasons = states.values().filter_map(|state| {
            let state = state.lock();
            Some(serde_json::json!({"kind": state.of.to_string(), "reason": state.blind.as_ref()?}))
        });
        let reasons: Vec<serde_json::Value> = reasons.take(BLIND_SHOWN).collect();
        serde_json::json!({
            "objects": objects, "feeds": feeds, "blind": blind, "blind_kinds": reasons,
            "epoch": self.outbox.epoch(), "bytes": self.outbox.bytes(),
            "subscriptions": self.shared.live_feeds.subscriptions(),
        })
    }

    fn is_forbidden(&self, resource: &Arc<Resource>) -> bool {
        self.forbidden.lock().contains(resource)
    }

    /// A kind may not be listed in all namespaces at once: from now on those are observed that somebody names.
    fn forbid(&self, resource: &Arc<Resource>) {
        if self.forbidden.lock().insert(Arc::clone(resource)) {
            self.relay.notify_one();
        }
    }

    /// It may be after all. Returns once the feeds of single namespaces ended: nothing is reported by two.
    async fn allow(&self, resource: &Arc<Resource>) {
        let mut laid_out = self.laid_out.subscribe();
        let seen = *laid_out.borrow_and_update();
        self.forbidden.lock().remove(resource);
        self.relay.notify_one();
        // One may have begun before.
        let two_more = |count: &u64| count.wrapping_sub(seen) >= 2;
        if laid_out.wait_for(two_more).await.is_err() {
            tracing::debug!(resource = %resource.plural, "the observer ended");
        }
    }

    /// Something of a kind changed on which others depend.
    fn noticed(&self, resource: &Resource) {
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService") => {
                self.kinds_moved.notify_one();
            }
            ("rbac.authorization.k8s.io", _) => self.rights_moved.send_replace(()),
            _ => {}
        }
    }
}

/// Runs until shutdown is asked for.
pub async fn run(observer: Arc<Observer>, shutdown: Shutdown) {
    let shared = Arc::clone(&observer.shared);
    let mut views = shared.desired.subscribe();
    let mut held = shared.holding.subscribe();
    let mut feeds = Feeds::default();
    loop {
        views.mark_unchanged();
        held.mark_unchanged();
        let wait = tokio::select! {
            biased;
            () = shutdown.requested() => break,
            wait = feeds.follow(&observer) => wait,
        };
        tokio::select! {
            biased;
            () = shutdown.requested() => break,
            changed = views.changed() => if changed.is_err() { break },
            changed = held.changed() => if changed.is_err() { break },
            () = observer.kinds_moved.notified() => feeds.kinds_moved(&observer),
            () = observer.relay.notified() => {}
            // Also looks at the clock: a Lease that cannot be renewed ends without anybody saying so.
            () = shared.world.clock.sleep(wait.min(TICK)) => {}
        }
    }
    feeds.stop().await;
}

#[cfg(test)]
mod tests;
