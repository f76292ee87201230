//! Performs what the desired state asks for, while this instance is the applier: one worker per source, watches over what they own,
//! and a statement of the inventory at the start of each epoch, and when the Lease was lost meanwhile.

mod checks;
mod collection;
mod concurrent;
mod context;
mod correct;
mod diff;
mod finish;
mod health;
mod inventory;
mod prune;
mod report;
mod shared_feed;
mod signals;
mod stage;
mod sync;
mod watch;
mod watches;
mod worker;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chassis::Shutdown;
use events::desired::Applier;
use events::object::ObjectKey;
use events::{InstanceId, SourceId};
use objects::health::HealthOptions;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use world::World;
use world::spawn::TaskHandle;

use crate::desired::{Desired, View};
use crate::kubernetes::client::ANSWER_DEADLINE;
use crate::kubernetes::{ApiError, Discovery, Kube};
use crate::lease::{Holding, Note};
use crate::live_feeds::LiveFeeds;
use crate::metrics::Counts;
use crate::model::backoff::Backoff;
use crate::model::book::Book;
use crate::model::fights::{self, Fights};
use crate::outbox::Outbox;
use crate::reach::ApiServerReach;

pub use diff::diff;

/// What all parts of the applier share.
pub struct Shared {
    /// Clock, randomness, tasks.
    pub world: World,
    /// The API server.
    pub kube: Kube,
    /// Which kinds it knows.
    pub discovery: Discovery,
    /// What is told to the server.
    pub outbox: Arc<Outbox>,
    /// Whether the API server is reached.
    pub reach: Arc<ApiServerReach>,
    /// Whether writing is allowed.
    pub holding: Holding,
    /// What the server wants.
    pub desired: Arc<Desired>,
    /// Which instance this is.
    pub instance: InstanceId,
    /// What is left to the next holder of the Lease.
    pub note: Arc<Note>,
    /// What the observer follows now.
    pub live_feeds: Arc<LiveFeeds>,
    books: Mutex<BTreeMap<SourceId, Book>>,
    /// Fights from before the books were begun.
    past: Mutex<Fights>,
    wakes: Mutex<BTreeMap<SourceId, Arc<Notify>>>,
    /// The watches have to be laid out anew: kinds came up, or a scope is forbidden.
    relay: Notify,
    forbidden: Mutex<BTreeSet<watches::Forbidden>>,
    followed: watches::Followed,
    broken: Mutex<watches::BrokenWatches>,
    /// Rights that syncs lack.
    lacking: Mutex<BTreeMap<SourceId, checks::Lacking>>,
    signalled: signals::Signalled,
    /// Sources that may fare better now than when they failed.
    hopeful: Mutex<BTreeSet<SourceId>>,
    statuses: Mutex<BTreeMap<SourceId, String>>,
    /// What was learned of the cluster by which health is judged.
    health: RwLock<HealthOptions>,
    /// The revision of the state whose health rules are in force.
    rules_of: Mutex<u64>,
    counts: Counts,
}

impl Shared {
    /// Nothing known yet.
    #[must_use]
    pub fn new(
        world: World,
        kube: Kube,
        outbox: Arc<Outbox>,
        holding: Holding,
        desired: Arc<Desired>,
        instance: InstanceId,
        counts: Counts,
    ) -> Self {
        Self {
            kube,
            discovery: Discovery::default(),
            reach: Arc::new(ApiServerReach::new(Arc::clone(&outbox), Arc::clone(&world.clock))),
            world,
            outbox,
            holding,
            desired,
            instance,
            note: Arc::default(),
            live_feeds: Arc::default(),
            books: Mutex::default(),
            past: Mutex::default(),
            wakes: Mutex::default(),
            relay: Notify::new(),
            forbidden: Mutex::default(),
            followed: watches::Followed::default(),
            broken: Mutex::default(),
            lacking: Mutex::default(),
            signalled: signals::Signalled::default(),
            hopeful: Mutex::default(),
            statuses: Mutex::default(),
            health: RwLock::default(),
            rules_of: Mutex::default(),
            counts,
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.world.clock.monotonic()
    }

    fn with_book<R>(&self, source: SourceId, act: impl FnOnce(&mut Book) -> R) -> R {
        let begin = || Book::remembering(self.past.lock().remove(&source).unwrap_or_default());
        act(self.books.lock().entry(source).or_insert_with(begin))
    }

    /// What the wall clock is ahead of the monotonic one, in milliseconds.
    fn clock_offset(&self) -> i64 {
        let monotonic = i64::try_from(self.now().as_millis()).unwrap_or(i64::MAX);
        self.world.clock.now_millis().saturating_sub(monotonic)
    }

    /// Leaves the fights to the next holder of the Lease.
    fn note_fights(&self) {
        let books = self.books.lock();
        let now = self.now();
        let all = books
            .iter()
            .flat_map(|(source, book)| book.fights(now).map(|(key, fight)| (*source, key, fight)));
        let text = fights::write(all, self.clock_offset());
        drop(books);
        self.note.set(text);
    }

    /// Goes on with the fights of the former holder.
    fn begin_books(&self, begin: impl Fn(&mut Book)) {
        let mut past = fights::read(&self.note.text(), self.clock_offset());
        for (source, book) in self.books.lock().iter_mut() {
            begin(book);
            book.remember(past.remove(source).unwrap_or_default());
        }
        *self.past.lock() = past;
    }

    /// An object is gone, or nobody's of ours any more: no source goes on believing that it is applied.
    fn forget_object(&self, key: &ObjectKey, uid: &str) {
        for book in self.books.lock().values_mut() {
            if book.get(key).is_some_and(|known| known.uid == uid) {
                book.forget(key);
            }
        }
    }

    fn wake(&self, source: SourceId) {
        if let Some(wake) = self.wakes.lock().get(&source) {
            wake.notify_one();
        }
    }

    fn wake_of(&self, source: SourceId) -> Arc<Notify> {
        Arc::clone(self.wakes.lock().entry(source).or_default())
    }

    /// Asks what the API server serves; where that changed, all that depends on it looks again.
    pub(crate) async fn look_up_kinds(&self) -> Result<(), ApiError> {
        let before = self.discovery.kinds();
        let now = self.discovery.refresh(&self.kube).await?;
        if !Arc::ptr_eq(&before, &now) {
            self.relay.notify_one();
            for wake in self.wakes.lock().values() {
                wake.notify_one();
            }
        }
        Ok(())
    }

    /// Whatever waits for its next attempt has it now.
    fn try_all_again(&self) {
        let Some(view) = self.desired.view() else { return };
        for source in &view.sources {
            self.hopeful.lock().insert(source.head.source);
            self.wake(source.head.source);
        }
    }

    /// A namespace is gone, or is there (again): what waited for that need not wait longer.
    fn namespace_moved(&self, name: &str, is_there: bool) {
        let Some(view) = self.desired.view() else { return };
        let now = self.now();
        for source in &view.sources {
            let id = source.head.source;
            let waited = self.with_book(id, |book| {
                book.unblock(
                    |key| {
                        (is_there && key.namespace == name)
                            || (key.group.is_empty() && key.kind == "Namespace" && key.name == name)
                    },
                    now,
                )
            });
            let is_hopeful = is_there && source.uses_namespace(name);
            if is_hopeful {
                self.hopeful.lock().insert(id);
            }
            if waited || is_hopeful {
                self.wake(id);
            }
        }
    }

    /// What a source is doing, for `GET /v1/debug/state`.
    fn note(&self, source: SourceId, doing: &str) {
        self.statuses.lock().insert(source, doing.to_owned());
    }

    /// For people: what each source is doing and how many objects it owns.
    #[must_use]
    pub fn describe(&self) -> serde_json::Value {
        let statuses = self.statuses.lock().clone();
        let books = self.books.lock();
        let sources: Vec<serde_json::Value> = books
            .iter()
            .map(|(source, book)| {
                let drifted = book.iter().filter(|(_, known)| known.drift.is_some()).count();
                serde_json::json!({
                    "source": source.to_string(), "doing": statuses.get(source), "objects": book.len(), "drifted": drifted,
                })
            })
            .collect();
        serde_json::json!({"sources": sources, "kinds": self.discovery.kinds().len()})
    }

    fn count(&self) {
        let held = self.holding.is_held();
        let owned: usize = if held { self.books.lock().values().map(Book::len).sum() } else { 0 };
        self.counts.objects.set(i64::try_from(owned).unwrap_or(i64::MAX));
        self.counts.lease_held.set(i64::from(held));
    }

    /// The epoch, if this instance is to apply now.
    pub(crate) fn active(&self) -> Option<(u64, Arc<View>)> {
        let view = self.desired.view()?;
        match view.applier {
            Some(Applier { instance, epoch }) if instance == self.instance && self.holding.is_held() => {
                Some((epoch, view))
            }
            _ => None,
        }
    }
}

/// How long an orderly end waits for writes that are under way.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// No write lasts longer: its answer is not waited for after that.
const LONGEST_WRITE: Duration = ANSWER_DEADLINE;

/// Runs until shutdown is asked for.
pub async fn run(shared: Arc<Shared>, shutdown: Shutdown) {
    let mut views = shared.desired.subscribe();
    let mut held = shared.holding.subscribe();
    let mut running = Running::default();
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    loop {
        views.mark_unchanged();
        held.mark_unchanged();
        let mut again = None;
        match shared.active() {
            Some((epoch, view)) => {
                shared.holding.set_named(true);
                shared.follow_health_rules(&view);
                match running.follow(&shared, epoch, &view).await {
                    Ok(()) => {
                        backoff.reset();
                        shared.note_fights();
                    }
                    Err(error) => {
                        let wait = backoff.next(shared.world.random.as_ref());
                        tracing::warn!(error = %error, retry_ms = wait.as_millis(), "cannot start applying");
                        again = Some(wait);
                    }
                }
            }
            None => {
                shared.holding.set_named(false);
                if !running.workers.is_empty() {
                    // How their last writes ended is not heard: what they left has to be looked for.
                    running.stated = 0;
                    shared.note_fights();
                }
                running.stop();
            }
        }
        shared.count();
        // Also looks at the clock: a Lease that cannot be renewed ends without anybody saying so.
        let tick = again.unwrap_or(Duration::from_secs(5));
        tokio::select! {
            biased;
            () = shutdown.requested() => break,
            changed = views.changed() => if changed.is_err() { break },
            changed = held.changed() => if changed.is_err() { break },
            () = shared.relay.notified() => {}
            () = shared.world.clock.sleep(tick) => {}
        }
    }
    let applied = !running.workers.is_empty();
    running.drain(&shared, LAST_WRITES).await;
    if applied {
        shared.note_fights();
    }
}

/// Workers and watches that run.
#[derive(Default)]
struct Running {
    /// The epoch whose inventory was stated, 0 when it has to be stated again. Who gets the Lease back in the same epoch goes on with the
    /// same sequence.
    stated: u64,
    workers: BTreeMap<SourceId, TaskHandle>,
    watches: watches::Watches,
    signals: signals::Signals,
}

impl Running {
    async fn follow(&mut self, shared: &Arc<Shared>, epoch: u64, view: &Arc<View>) -> Result<(), ApiError> {
        if shared.outbox.take_restate() {
            // What is created while it is looked at would be missing in the statement.
            self.drain(shared, LONGEST_WRITE).await;
            shared.note_fights();
            shared.holding.set_named(true);
            self.stated = 0;
        }
        if self.stated != epoch {
            self.stop();
            shared.discovery.refresh(&shared.kube).await?;
            shared.forbidden.lock().clear();
            shared.broken.lock().clear();
            shared.lacking.lock().clear();
            if shared.outbox.epoch() == epoch {
                // What ran to its end in this epoch may not be known to the server yet.
                shared.begin_books(Book::keep_finished);
            } else {
                shared.begin_books(|book| *book = Book::default());
                shared.outbox.begin(epoch);
            }
            inventory::state(shared, view).await?;
            self.stated = epoch;
            tracing::info!(epoch, sources = view.sources.len(), "this instance is now the applier");
        }
        // One whose source is gone ends by itself, once it has told how its last writes ended: nobody would prune what nobody heard of.
        self.workers.retain(|_, worker| !worker.is_finished());
        shared.books.lock().retain(|source, _| view.source(*source).is_some());
        shared.lacking.lock().retain(|source, _| view.source(*source).is_some());
        for source in &view.sources {
            let id = source.head.source;
            self.workers.entry(id).or_insert_with(|| {
                let worker = worker::Worker::new(Arc::clone(shared), id);
                shared.world.spawner.spawn("agent source", Box::pin(worker.run()))
            });
        }
        self.watches.lay_out(shared, view);
        self.signals.lay_out(shared, view);
        Ok(())
    }

    fn stop(&mut self) {
        for worker in self.workers.values() {
            worker.abort();
        }
        self.workers.clear();
        self.watches.stop();
        self.signals.stop();
    }

    /// Stops everything, and lets writes that are under way end: nothing new begins.
    async fn drain(&mut self, shared: &Shared, limit: Duration) {
        shared.holding.set_named(false);
        self.watches.stop();
        self.signals.stop();
        let quiet = async {
            while shared.kube.writes() > 0 {
                shared.world.clock.sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            biased;
            () = quiet => {}
            () = shared.world.clock.sleep(limit) => tracing::warn!("writes did not finish in time"),
        }
        for (_, worker) in std::mem::take(&mut self.workers) {
            worker.abort();
            // It was aborted: how it ended is known.
            let _aborted = worker.join().await;
        }
    }
}
