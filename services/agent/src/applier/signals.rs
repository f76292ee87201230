//! What wakes the applier besides its own objects: namespaces that come and go, and definitions of kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use events::configuration::{Mode, ServiceAccount};
use serde_json::Value;
use tokio::sync::Notify;
use world::spawn::TaskHandle;

use super::Shared;
use super::collection::{Collection, Event};
use super::shared_feed::SharedFeed;
use crate::desired::View;
use crate::kubernetes::{ApiError, Resource};
use crate::live_feeds::Subscription;
use crate::model::backoff::Backoff;

/// A watch that lasted for longer did not fail.
const LASTING: Duration = Duration::from_secs(30);
/// A watch without rights is tried again after this long.
const FORBIDDEN_WAIT: Duration = Duration::from_secs(300);
/// Under lockdown so many service accounts of sources are tried: one that may watch is enough.
const ACCOUNTS: usize = 3;
/// What the API server serves follows a definition a moment later.
const KINDS_AFTER: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_secs(2), Duration::from_secs(10)];
/// Many definitions that change one after the other are looked at together.
const KINDS_APART: Duration = Duration::from_secs(1);

/// What the watches found.
#[derive(Default)]
pub(super) struct Signalled {
    /// Definitions of kinds changed.
    kinds: Notify,
    /// Watches over namespaces that are followed now.
    namespaces: AtomicUsize,
}

impl Signalled {
    /// A namespace that comes back would be noticed at once.
    pub(super) fn follows_namespaces(&self) -> bool {
        self.namespaces.load(Ordering::Relaxed) > 0
    }
}

/// Namespaces are followed until this is dropped.
struct Follows<'a>(&'a AtomicUsize);

impl<'a> Follows<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Follows<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    account: Option<ServiceAccount>,
    resource: Arc<Resource>,
}

/// The watches that run.
#[derive(Default)]
pub(super) struct Signals {
    running: BTreeMap<Key, TaskHandle>,
    refreshing: Option<TaskHandle>,
}

impl Signals {
    /// Starts what is needed and ends what is not.
    pub(super) fn lay_out(&mut self, shared: &Arc<Shared>, view: &View) {
        let mut wanted = needed(shared, view);
        self.running.retain(|key, task| {
            let keep = wanted.remove(key) && !task.is_finished();
            if !keep {
                task.abort();
            }
            keep
        });
        for key in wanted {
            let signal = Signal::new(shared, key.clone());
            let task = shared.world.spawner.spawn("agent signal", Box::pin(signal.run()));
            self.running.insert(key, task);
        }
        if self.refreshing.is_none() && !self.running.is_empty() {
            let task = refresh_kinds(Arc::clone(shared));
            self.refreshing = Some(shared.world.spawner.spawn("agent kinds", Box::pin(task)));
        }
    }

    pub(super) fn stop(&mut self) {
        for task in self.running.values().chain(&self.refreshing) {
            task.abort();
        }
        self.running.clear();
        self.refreshing = None;
    }
}

fn needed(shared: &Shared, view: &View) -> BTreeSet<Key> {
    if view.mode == Mode::Namespaced {
        return BTreeSet::new();
    }
    let accounts: BTreeSet<Option<ServiceAccount>> = if view.lockdown {
        let accounts: BTreeSet<_> = view.sources.iter().filter_map(|source| source.account()).collect();
        accounts.into_iter().take(ACCOUNTS).cloned().map(Some).collect()
    } else {
        BTreeSet::from([None])
    };
    let kinds = shared.discovery.kinds();
    let resources = kinds.preferred().filter(|resource| resource.watchable && is_signal(resource));
    resources
        .flat_map(|resource| {
            accounts.iter().map(|account| Key { account: account.clone(), resource: Arc::clone(resource) })
        })
        .collect()
}

fn is_namespace(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.kind == "Namespace"
}

fn is_signal(resource: &Resource) -> bool {
    is_namespace(resource)
        || matches!(
            (resource.group.as_str(), resource.kind.as_str()),
            ("apiextensions.k8s.io", "CustomResourceDefinition") | ("apiregistration.k8s.io", "APIService")
        )
}

/// The name of an object, and whether it is being deleted.
fn standing(live: &Value) -> (String, bool) {
    let text = |place| live.pointer(place).and_then(Value::as_str);
    (text("/metadata/name").unwrap_or_default().to_owned(), text("/metadata/deletionTimestamp").is_some())
}

/// Looks up what the API server serves, each time that a definition changed.
async fn refresh_kinds(shared: Arc<Shared>) {
    let clock = Arc::clone(&shared.world.clock);
    let mut next = KINDS_AFTER.len();
    loop {
        let pause = KINDS_AFTER.get(next).copied();
        tokio::select! {
            biased;
            () = shared.signalled.kinds.notified() => {
                next = 0;
                continue;
            }
            () = async { match pause { Some(pause) => clock.sleep(pause).await, None => std::future::pending().await } } => {}
        }
        next += 1;
        if let Err(error) = shared.look_up_kinds().await {
            tracing::debug!(error = %error, "cannot discover kinds");
        }
        clock.sleep(KINDS_APART).await;
    }
}

/// One watch.
struct Signal {
    shared: Arc<Shared>,
    key: Key,
    collection: Collection,
    /// Names, and whether they are being deleted.
    known: BTreeMap<String, bool>,
}

impl Signal {
    fn new(shared: &Arc<Shared>, key: Key) -> Self {
        let collection = Collection {
            shared: Arc::clone(shared),
            resource: Arc::clone(&key.resource),
            namespace: String::new(),
            account: key.account.clone(),
            selector: String::new(),
            whole: false,
            lane: 0,
        };
        Self { shared: Arc::clone(shared), key, collection, known: BTreeMap::new() }
    }

    async fn run(mut self) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let mut feed = SharedFeed::of(&self.shared, self.key.account.as_ref(), &self.key.resource, "");
        let mut is_first = true;
        loop {
            let began = self.shared.now();
            let ended = self.follow(&mut feed, is_first).await;
            is_first = false;
            let wait = match ended {
                // To follow the feed, or because that ended.
                Ok(()) => Duration::ZERO,
                Err(error) if error.code() == 403 => FORBIDDEN_WAIT,
                Err(_) => {
                    if self.shared.now().saturating_sub(began) > LASTING {
                        backoff.reset();
                    }
                    backoff.next(self.shared.world.random.as_ref())
                }
            };
            self.shared.world.clock.sleep(wait).await;
        }
    }

    async fn list(&self) -> Result<(BTreeMap<String, bool>, String), ApiError> {
        let mut found = BTreeMap::new();
        let version = self.collection.list(|live| found.extend([standing(&live)])).await?;
        Ok((found, version))
    }

    /// Lists, and follows until a list is needed again.
    async fn follow(&mut self, feed: &mut SharedFeed, is_first: bool) -> Result<(), ApiError> {
        // Before the list: what changes while it is made is not missed.
        let subscription = feed.subscribe(|_| true);
        let (found, mut version) = self.list().await?;
        let names: BTreeSet<String> = self.known.keys().chain(found.keys()).cloned().collect();
        for name in names {
            let now = found.get(&name).copied();
            // What was there before this process began is no news.
            if is_first {
                self.known.extend(now.map(|now| (name, now)));
            } else {
                self.became(name, now);
            }
        }
        match (is_first, is_namespace(&self.key.resource)) {
            // What came between an attempt and this list was not seen to come.
            (true, true) => self.shared.try_all_again(),
            (false, false) => self.shared.signalled.kinds.notify_one(),
            (true, false) | (false, true) => {}
        }
        let Some(subscription) = subscription else {
            return tokio::select! {
                biased;
                ended = self.watch(&mut version) => ended,
                () = feed.until_live() => Ok(()),
            };
        };
        let began = self.shared.now();
        let ended = self.follow_feed(subscription).await;
        feed.ended(began);
        ended
    }

    /// Reads along until the feed ends.
    async fn follow_feed(&mut self, mut feed: Subscription) -> Result<(), ApiError> {
        let shared = Arc::clone(&self.shared);
        let _follows = self.begin_following(&shared);
        while let Some(event) = feed.next().await {
            self.heard(&event)?;
        }
        Ok(())
    }

    /// Follows until a list is needed.
    async fn watch(&mut self, version: &mut String) -> Result<(), ApiError> {
        let shared = Arc::clone(&self.shared);
        loop {
            let began = shared.now();
            let mut events = self.collection.follow(version).await?;
            let _follows = self.begin_following(&shared);
            while let Some(event) = events.next(version).await? {
                self.heard(&event)?;
            }
            if shared.now().saturating_sub(began) < LASTING {
                return Err(ApiError::Unreachable { detail: "the watch ended early".to_owned() });
            }
        }
    }

    fn begin_following<'a>(&self, shared: &'a Shared) -> Option<Follows<'a>> {
        is_namespace(&self.key.resource).then(|| Follows::begin(&shared.signalled.namespaces))
    }

    fn heard(&mut self, event: &Event) -> Result<(), ApiError> {
        let (name, is_going) = standing(&event.object().metadata()?);
        self.became(name, matches!(event, Event::Seen(_)).then_some(is_going));
        Ok(())
    }

    /// One object is as it is now: being deleted or not; `None`: gone.
    fn became(&mut self, name: String, now: Option<bool>) {
        let before = match now {
            Some(now) => self.known.insert(name.clone(), now),
            None => self.known.remove(&name),
        };
        if !is_namespace(&self.key.resource) {
            self.shared.signalled.kinds.notify_one();
        } else if before != now && now != Some(true) {
            self.shared.namespace_moved(&name, now.is_some());
        }
    }
}
