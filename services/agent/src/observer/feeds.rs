//! Which feeds run: laid out anew when the desired state, the Lease or the kinds that the API server serves change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use events::observation::{Gone, Observed};
use parking_lot::Mutex;
use world::spawn::TaskHandle;

use super::Observer;
use super::feed::Feed;
use super::looks::Looks;
use super::rediscovery::Rediscovery;
use super::state::FeedState;
use crate::desired::View;
use crate::kubernetes::Resource;
use crate::kubernetes::connections::{FEEDS, WATCHES_PER_LANE};
use crate::kubernetes::discovery::Kinds;
use crate::model::feeds::{FeedKey, Scope, Sight, wanted};

/// It is looked at everything at least this often.
pub(super) const TICK: Duration = Duration::from_secs(5);

/// Over so many silent groups, nothing is reported of all kinds.
const SILENT_GROUPS: usize = 200;

/// Those that run.
#[derive(Default)]
pub(super) struct Feeds {
    epoch: u64,
    tasks: BTreeMap<FeedKey, Task>,
    rediscovery: Rediscovery,
    looks: Looks,
    /// Kinds for which there is no feed, as was reported.
    unfed: BTreeSet<FeedKey>,
    /// Groups that were silent when it was reported that all kinds were covered.
    silent: BTreeSet<String>,
}

struct Task {
    lane: usize,
    handle: TaskHandle,
}

impl Feeds {
    /// Makes what runs what should; gives how long that is good for.
    pub(super) async fn follow(&mut self, observer: &Arc<Observer>) -> Duration {
        let Some((epoch, view)) = observer.shared.active() else {
            self.stop().await;
            return TICK;
        };
        let now = observer.shared.now();
        if self.epoch != epoch {
            self.stop().await;
            observer.states.lock().clear();
            observer.forbidden.lock().clear();
            self.unfed.clear();
            self.looks = Looks::default();
            observer.outbox.begin(epoch);
            self.rediscovery.begin(now);
            self.epoch = epoch;
            tracing::info!(epoch, "this instance now observes");
        }
        if self.rediscovery.take(now) {
            let looked = observer.shared.look_up_kinds().await;
            match &looked {
                Ok(()) => self.looks.looked(observer.shared.discovery.kinds()),
                Err(error) => tracing::debug!(error = %error, "cannot discover kinds"),
            }
            self.rediscovery.asked(observer.shared.now(), looked.is_ok());
            if looked.is_ok() && !self.looks.is_same() {
                self.rediscovery.again(observer.shared.now());
            }
        }
        self.lay_out(observer, &view).await;
        self.settle(observer);
        observer.laid_out.send_modify(|count| *count = count.wrapping_add(1));
        self.rediscovery.wait(observer.shared.now())
    }

    pub(super) fn kinds_moved(&mut self, observer: &Observer) {
        self.rediscovery.moved(observer.shared.now());
    }

    /// Ends all tasks, and returns once they have ended: nothing is reported by two of the same feed.
    pub(super) async fn stop(&mut self) {
        for task in self.tasks.values() {
            task.handle.abort();
        }
        for (_, task) in std::mem::take(&mut self.tasks) {
            // It was aborted: how it ended is known.
            let _aborted = task.handle.join().await;
        }
    }

    async fn lay_out(&mut self, observer: &Arc<Observer>, view: &View) {
        let kinds = observer.shared.discovery.kinds();
        if kinds.is_empty() {
            return;
        }
        let mut wanted = wanted_by(observer, &kinds, view);
        self.keep_unsure(observer, &kinds, &mut wanted);
        let unfed: BTreeSet<FeedKey> = wanted.keys().skip(FEEDS).cloned().collect();
        wanted.retain(|key, _| !unfed.contains(key));
        self.end_others(observer, &kinds, &wanted).await;
        for key in unfed.difference(&self.unfed) {
            let of = FeedState::new(key, Scope::default()).of;
            let reason = format!("more than {FEEDS} kinds and namespaces are to be observed");
            observer.outbox.mark(&of, Observed::KindBlind { of: (*of).clone(), reason, missing: None });
        }
        for key in self.unfed.iter().filter(|key| !unfed.contains(key) && !is_covered(key, &wanted)) {
            let of = FeedState::new(key, Scope::default()).of;
            observer.outbox.drop_kind(&of, why_not(&kinds, key), std::iter::empty());
        }
        self.unfed = unfed;
        for (key, scope) in wanted {
            if !self.tasks.contains_key(&key) {
                self.start(observer, key, scope);
            }
        }
    }

    /// Ends the feeds that are not wanted any more; what they told is gone. One whose namespaces changed begins anew, and another feed may tell
    /// of the same objects: its first statement says what is gone.
    async fn end_others(&mut self, observer: &Observer, kinds: &Kinds, wanted: &BTreeMap<FeedKey, Scope>) {
        let states: Vec<_> =
            observer.states.lock().iter().map(|(key, state)| (key.clone(), Arc::clone(state))).collect();
        for (key, state) in states {
            let scope = wanted.get(&key);
            let stays = scope.is_some_and(|scope| *scope == state.lock().scope);
            if stays && self.tasks.get(&key).is_some_and(|task| !task.handle.is_finished()) {
                continue;
            }
            self.end(&key).await;
            if stays {
                continue;
            }
            observer.states.lock().remove(&key);
            let state = state.lock();
            if is_covered(&key, wanted) {
                observer.outbox.forget_kind(&state.of);
            } else {
                let why = why_not(kinds, &key);
                observer.outbox.drop_kind(&state.of, why, state.known.all());
                tracing::info!(kind = %state.of, ?why, "a kind is no longer observed");
            }
        }
    }

    /// Of a group whose own API server does not answer nobody knows which kinds it has, and one look may be incomplete: what was observed
    /// stays so, and is blind.
    fn keep_unsure(&mut self, observer: &Observer, kinds: &Kinds, wanted: &mut BTreeMap<FeedKey, Scope>) {
        let silent: BTreeSet<&String> = kinds.silent_groups().collect();
        let mut is_unsure = false;
        let mut feeds: Vec<(FeedKey, Scope, bool)> =
            self.unfed.iter().map(|key| (key.clone(), Scope::default(), false)).collect();
        for (key, state) in observer.states.lock().iter() {
            let state = state.lock();
            feeds.push((key.clone(), state.scope.clone(), state.is_missing));
        }
        for (key, scope, is_missing) in feeds {
            let Resource { group, kind, .. } = key.resource.as_ref();
            if kinds.serves(group, kind) {
                continue;
            }
            let (is_silent, is_gone) = (silent.contains(group), self.looks.is_gone(group, kind));
            if is_silent || !(is_gone || is_missing) {
                is_unsure |= !is_silent;
                wanted.entry(key).or_insert(scope);
            }
        }
        if is_unsure {
            self.rediscovery.again(observer.shared.now());
        }
    }

    /// Tells that all kinds were told of, once they were, and again where groups that were silent are not any more.
    fn settle(&mut self, observer: &Observer) {
        let kinds = observer.shared.discovery.kinds();
        let silent: BTreeSet<String> = kinds.silent_groups().cloned().collect();
        let is_said = observer.outbox.is_settled() && self.silent.is_subset(&silent);
        if is_said || !self.looks.is_same() || kinds.is_empty() || silent.len() > SILENT_GROUPS {
            return;
        }
        let is_told =
            |key: &FeedKey| observer.states.lock().get(key).is_some_and(|state| state.lock().is_told());
        if self.tasks.keys().all(is_told) {
            observer.outbox.settle(Observed::KindsSettled { silent: silent.iter().cloned().collect() });
            self.silent = silent;
        }
    }

    async fn end(&mut self, key: &FeedKey) {
        if let Some(task) = self.tasks.remove(key) {
            task.handle.abort();
            // It was aborted: how it ended is known.
            let _aborted = task.handle.join().await;
        }
    }

    fn start(&mut self, observer: &Arc<Observer>, key: FeedKey, scope: Scope) {
        let state = {
            let mut states = observer.states.lock();
            let begin = || Arc::new(Mutex::new(FeedState::new(&key, scope)));
            Arc::clone(states.entry(key.clone()).or_insert_with(begin))
        };
        let lane = self.lane();
        let feed = Feed::new(Arc::clone(observer), key.clone(), state, lane);
        let handle = observer.shared.world.spawner.spawn("agent feed", Box::pin(feed.run()));
        self.tasks.insert(key, Task { lane, handle });
    }

    /// The first connection that has room.
    fn lane(&self) -> usize {
        let mut feeds = BTreeMap::<usize, usize>::new();
        for task in self.tasks.values() {
            *feeds.entry(task.lane).or_default() += 1;
        }
        let has_room = |lane: &usize| feeds.get(lane).is_none_or(|count| *count < WATCHES_PER_LANE);
        (0..FEEDS / WATCHES_PER_LANE).find(has_room).unwrap_or_default()
    }
}

fn wanted_by(observer: &Observer, kinds: &Kinds, view: &View) -> BTreeMap<FeedKey, Scope> {
    let forbidden = observer.forbidden.lock();
    let namespaces = view.sources.iter().map(|source| source.head.default_namespace.as_str());
    let namespaces = namespaces.filter(|namespace| !namespace.is_empty()).collect();
    wanted(kinds, &view.observe, &Sight { mode: view.mode, forbidden: &forbidden, namespaces })
}

/// Whether one of these tells of all that a feed told of, maybe in another version.
fn is_covered(key: &FeedKey, wanted: &BTreeMap<FeedKey, Scope>) -> bool {
    wanted.keys().any(|other| {
        (&other.resource.group, &other.resource.kind) == (&key.resource.group, &key.resource.kind)
            && (other.namespace.is_empty() || other.namespace == key.namespace)
    })
}

/// Why what is not wanted is not.
fn why_not(kinds: &Kinds, key: &FeedKey) -> Gone {
    let is_served = kinds.serves(&key.resource.group, &key.resource.kind);
    if is_served { Gone::NotObserved } else { Gone::KindGone }
}
