//! One feed: list, follow, and list again where the API server has forgotten, where there was no room, and now and then.

mod streaming;
mod telling;

use std::sync::Arc;
use std::time::Duration;

use events::observation::{Gone, Observed, ObservedKind, STATED_WITHIN};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Observer;
use super::listing::{FIRST_PAGE, Pages};
use super::state::FeedState;
use crate::kubernetes::{
    ApiError, ApiStatus, Call, LiveObject, Page, Resource, WatchEvent, WatchEvents, path,
};
use crate::live_feeds::LiveFeed;
use crate::model::backoff::Backoff;
use crate::model::event_rate::EventRate;
use crate::model::feeds::FeedKey;
use crate::model::object_queue::gone;

/// Feeds begin within this time, each at a moment of its own.
const START_SPREAD: Duration = Duration::from_millis(500);
/// Everything is stated again within this time, half of what the server keeps; at the earliest after half of it.
const RESTATED: Duration = STATED_WITHIN;
/// Of Events more often: their end is not told one by one.
const EVENTS_RESTATED: Duration = Duration::from_secs(3_600);
/// A watch that lasted for longer did not fail.
const LASTING: Duration = Duration::from_secs(30);
/// One that ended in order before is not opened again at once.
const SHORT: Duration = Duration::from_secs(1);
/// A kind that may not be listed is tried again after this long.
const FORBIDDEN_WAIT: Duration = Duration::from_secs(600);
/// Rights have changed: what follows from that is not known at once, and more may follow.
const RIGHTS_SETTLE: Duration = Duration::from_secs(2);
/// The API server says when to come back; it is not waited longer for than this, and up to as long again.
const RETRY_AFTER_MAXIMUM: Duration = Duration::from_secs(30);
/// A watch that said nothing for so long is taken to work.
const QUIET: Duration = Duration::from_secs(5);
/// Watches that fail at the same version one behind the other, after which there is a list.
const STUCK: u32 = 5;
const REASON_MAXIMUM: usize = 500;
/// Vanished objects that are looked up together at the end of a list.
const GONE_AT_ONCE: usize = 500;

/// See the module.
pub(super) struct Feed {
    observer: Arc<Observer>,
    key: FeedKey,
    of: Arc<ObservedKind>,
    api_version: String,
    state: Arc<Mutex<FeedState>>,
    lane: usize,
    /// Of Events only.
    rate: Option<EventRate>,
    backoff: Backoff,
    failures: u32,
    /// Watches that came no further, one behind the other.
    stuck: u32,
    /// Objects of the first page of a list.
    page: usize,
    /// The API server is asked to stream everything there is.
    streams: bool,
    /// That rights have changed: each time since a request began.
    rights: watch::Receiver<()>,
    /// For subscribers, while a watch is open or ended in order.
    live: Option<LiveFeed>,
}

impl Feed {
    pub(super) fn new(
        observer: Arc<Observer>,
        key: FeedKey,
        state: Arc<Mutex<FeedState>>,
        lane: usize,
    ) -> Self {
        let of = Arc::clone(&state.lock().of);
        let is_event = key.resource.group.is_empty() && key.resource.kind == "Event";
        let Resource { group, version, .. } = key.resource.as_ref();
        let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
        let rate = is_event.then(EventRate::default);
        let backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
        let rights = observer.rights_moved.subscribe();
        Self {
            observer,
            key,
            of,
            api_version,
            state,
            lane,
            rate,
            backoff,
            failures: 0,
            stuck: 0,
            page: FIRST_PAGE,
            streams: true,
            rights,
            live: None,
        }
    }

    pub(super) async fn run(mut self) {
        self.sleep(self.within(START_SPREAD)).await;
        loop {
            // Before anything is asked: what changes while the request is under way may come too late for it.
            self.rights.mark_unchanged();
            if let Err(error) = self.step().await {
                self.refused(&error).await;
            }
        }
    }

    async fn step(&mut self) -> Result<(), ApiError> {
        let now = self.now();
        let (is_listed, is_due, followed) = {
            let state = self.state.lock();
            (state.is_listed, state.is_due(now), state.followed.clone())
        };
        match followed.filter(|_| is_listed) {
            // As it was then: what happened since is followed from there, and nothing is missed.
            Some(version) if is_due => self.list(Some(&version)).await,
            Some(version) => self.follow(version).await,
            None => {
                self.probe().await?;
                self.list(None).await
            }
        }
    }

    /// Where all namespaces at once were forbidden, looks whether they still are.
    async fn probe(&self) -> Result<(), ApiError> {
        if self.key.namespace.is_empty() && self.observer.is_forbidden(&self.key.resource) {
            self.kube_look("?limit=1").await?;
            self.observer.allow(&self.key.resource).await;
        }
        Ok(())
    }

    /// Waits after a failure, and tells of it.
    async fn refused(&mut self, error: &ApiError) {
        // Subscribers do not wait as long as this feed does.
        self.live = None;
        let shared = &self.observer.shared;
        shared.reach.doubts(error);
        self.failures += 1;
        tracing::debug!(kind = %self.of, error = %error, "a feed is retried");
        let code = error.code();
        if error.status().is_some_and(asks_for_list) {
            // What happened meanwhile has to be looked for.
            self.state.lock().is_listed = false;
        }
        // Once is nothing: an API server that restarts ends all watches. That it is not reached at all is reported elsewhere.
        let is_blind = matches!(code, 403 | 405)
            || (self.failures > 1
                && !matches!(error, ApiError::Unreachable { .. })
                && !matches!(code, 410 | 429));
        if is_blind {
            self.is_blind(error);
        }
        if code == 404 {
            self.state.lock().is_missing = true;
            self.observer.kinds_moved.notify_one();
        }
        if code == 403 {
            // Feeds of single namespaces tell it anew: nothing is reported by two.
            self.state.lock().forget();
            if self.key.namespace.is_empty() && self.key.resource.namespaced {
                self.observer.forbid(&self.key.resource);
            }
            self.wait_for_rights().await;
        } else {
            self.wait(error.retry_after()).await;
        }
    }

    /// Waits longer with each failure, or as long as the server asked for and up to as long again: it asks many at once.
    async fn wait(&mut self, told: Option<Duration>) {
        let own = self.backoff.next(self.observer.shared.world.random.as_ref());
        let told = told.map(|told| told.min(RETRY_AFTER_MAXIMUM));
        let wait = told.map_or(own, |told| (told + self.within(told)).max(own));
        self.sleep(wait).await;
    }

    async fn wait_for_rights(&mut self) {
        let settle = RIGHTS_SETTLE + self.within(RIGHTS_SETTLE);
        let wait = FORBIDDEN_WAIT + self.within(FORBIDDEN_WAIT);
        let clock = Arc::clone(&self.observer.shared.world.clock);
        tokio::select! {
            biased;
            moved = self.rights.changed() => if moved.is_ok() {
                clock.sleep(settle).await;
            },
            () = clock.sleep(wait) => {}
        }
    }

    fn is_blind(&self, error: &ApiError) {
        let reason: String = error.to_string().chars().take(REASON_MAXIMUM).collect();
        let mut state = self.state.lock();
        if state.blind.as_ref() != Some(&reason) {
            state.blind = Some(reason.clone());
            let missing = error.missing_right();
            self.observer
                .outbox
                .mark(&self.of, Observed::KindBlind { of: (*self.of).clone(), reason, missing });
        }
    }

    /// What was blind goes on where it was: nothing was missed, and what was stated still is.
    fn sees_again(&self, version: &str) {
        let mut state = self.state.lock();
        if let Some(since) = state.since
            && state.blind.take().is_some()
        {
            self.all_is_stated(&state, since, version);
        }
    }

    fn all_is_stated(&self, state: &FeedState, since: u64, version: &str) {
        let (of, resource_version) = ((*self.of).clone(), version.to_owned());
        let objects = state.known.len() as u64;
        self.observer.outbox.mark(&self.of, Observed::KindListed { of, resource_version, since, objects });
    }

    /// Looks at everything; `at`: as it was in that version.
    async fn list(&mut self, at: Option<&str>) -> Result<(), ApiError> {
        // The list may wait for the server, and subscribers must not.
        self.live = None;
        let observer = Arc::clone(&self.observer);
        observer.outbox.room().await;
        let closed = |_| ApiError::Impossible { detail: "closing".to_owned() };
        let _turn = observer.lists.acquire().await.map_err(closed)?;
        self.state.lock().begin_list(self.now(), observer.outbox.next_sequence());
        // Behind a gap, which names the version that the list has, and of a version that was reached, there are pages only.
        let is_first = at.is_none() && self.state.lock().followed.is_none();
        let streamed = if is_first && self.streams { self.stream().await? } else { None };
        let version = match streamed {
            Some(version) => version,
            None => self.pages(at).await?,
        };
        self.end_list(&version).await;
        self.stuck = 0;
        Ok(())
    }

    /// Looks at everything page by page; gives the version of it.
    async fn pages(&mut self, at: Option<&str>) -> Result<String, ApiError> {
        let mut pages = Pages::of(self.page);
        loop {
            let answer = self.kube_look(&pages.query(at)).await?;
            let page = Page::read(&answer.body)?;
            if pages.is_first() {
                self.tell_gap(&page.resource_version);
            }
            for item in &page.items {
                self.listed(&LiveObject::of(answer.body.slice_ref(item.get().as_bytes()))).await?;
            }
            if page.next.is_empty() {
                return Ok(page.resource_version);
            }
            self.page = pages.turn(answer.body.len(), page.items.len(), page.next);
            self.observer.outbox.room().await;
        }
    }

    /// A list of this version begins: something may have been missed, unless it is as it was where the feed had got to. What is told from
    /// here on is behind that.
    fn tell_gap(&self, version: &str) {
        let mut state = self.state.lock();
        let Some(from) = state.followed.as_ref().filter(|from| *from != version) else { return };
        self.observer.outbox.gap(&self.of, from, version, 0);
        self.observer.counts.object_relists.inc();
        state.followed = Some(version.to_owned());
    }

    /// Tells what is gone, and that this was everything.
    async fn end_list(&self, version: &str) {
        let outbox = &self.observer.outbox;
        loop {
            let unlisted = self.state.lock().known.unlisted(GONE_AT_ONCE);
            if unlisted.is_empty() {
                break;
            }
            for head in unlisted {
                let uid = head.uid.clone();
                while outbox.put(&self.of, &uid, gone(&self.of, head.clone(), Gone::Vanished)).is_err() {
                    outbox.room().await;
                }
                self.state.lock().known.forget(&uid);
                self.observer.noticed(&self.key.resource);
            }
        }
        let restated = if self.rate.is_some() { EVENTS_RESTATED } else { RESTATED };
        let restate_at = self.now() + restated / 2 + self.within(restated / 2);
        let mut state = self.state.lock();
        let since = state.end_list(version, restate_at);
        self.all_is_stated(&state, since, version);
    }

    /// Follows until the watch ends in order, or something has to be listed.
    async fn follow(&mut self, mut version: String) -> Result<(), ApiError> {
        let began = self.now();
        // Half an hour to an hour, so that many watches do not end together.
        let timeout = 1_800 + self.observer.shared.world.random.below(1_800);
        let query = format!(
            "?watch=1&allowWatchBookmarks=true&timeoutSeconds={timeout}&resourceVersion={}",
            path::escape(&version)
        );
        let answer = self.observer.shared.kube.feed(&self.call(&query)?, self.lane).await?;
        let feeds = &self.observer.shared.live_feeds;
        self.live.get_or_insert_with(|| feeds.begin(&self.key));
        let mut events = WatchEvents::of(answer.into_body());
        let from = version.clone();
        let followed = self.follow_events(&mut events, &mut version).await;
        let is_stuck = version == from
            && followed.as_ref().is_err_and(|error| !matches!(error, ApiError::Unreachable { .. }));
        self.stuck = if is_stuck { self.stuck + 1 } else { 0 };
        {
            let mut state = self.state.lock();
            if state.is_listed {
                // Some versions are past what can be followed, whatever the API server calls it.
                (state.is_listed, state.followed) = (self.stuck < STUCK, Some(version));
            }
        }
        let lasted = self.now().saturating_sub(began);
        if lasted > LASTING || followed.is_ok() {
            self.backoff.reset();
            self.failures = 0;
        }
        if followed.is_ok() && lasted < SHORT {
            self.live = None;
            self.sleep(SHORT).await;
        }
        followed
    }

    async fn follow_events(
        &mut self,
        events: &mut WatchEvents,
        version: &mut String,
    ) -> Result<(), ApiError> {
        loop {
            let before = version.clone();
            let (until, is_blind) = {
                let state = self.state.lock();
                (state.restate_at.saturating_sub(self.now()), state.blind.is_some())
            };
            let clock = Arc::clone(&self.observer.shared.world.clock);
            let event = tokio::select! {
                biased;
                event = events.next(version) => event?,
                () = clock.sleep(until) => return Ok(()),
                () = clock.sleep(QUIET), if is_blind => {
                    self.sees_again(version);
                    continue;
                }
            };
            let Some(event) = event else { return Ok(()) };
            self.sees_again(&before);
            if let Some(live) = &self.live {
                live.tell(&event);
            }
            let told = match event {
                WatchEvent::Seen(object) => self.seen(&object),
                WatchEvent::Deleted(object) => self.deleted(&object),
            };
            let is_told = told.unwrap_or_else(|error| {
                tracing::debug!(kind = %self.of, %error, "a change cannot be read");
                self.observer.outbox.gap(&self.of, &before, version, 1);
                true
            });
            let mut state = self.state.lock();
            if !is_told {
                (state.is_listed, state.followed) = (false, Some(before.clone()));
                drop(state);
                self.observer.outbox.gap(&self.of, &before, "", 0);
                return Ok(());
            }
            state.followed = Some(version.clone());
        }
    }

    fn call(&self, query: &str) -> Result<Call, ApiError> {
        let collection = path::collection(&self.key.resource, &self.key.namespace)
            .ok_or_else(|| ApiError::Impossible { detail: "no path".to_owned() })?;
        Ok(Call::get(format!("{collection}{query}")))
    }

    async fn kube_look(&self, query: &str) -> Result<crate::kubernetes::Answer, ApiError> {
        self.observer.shared.kube.look(&self.call(query)?).await
    }

    fn now(&self) -> Duration {
        self.observer.shared.now()
    }

    async fn sleep(&self, wait: Duration) {
        self.observer.shared.world.clock.sleep(wait).await;
    }

    /// A random time below.
    fn within(&self, most: Duration) -> Duration {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.observer.shared.world.random.below(millis))
    }
}

/// Whether a refusal says that what was followed cannot be followed any more. Anything else passes, and the feed goes on where it was.
fn asks_for_list(status: &ApiStatus) -> bool {
    // An API server that was restored from a backup has not come as far yet.
    let is_ahead = status.causes().iter().any(|cause| cause.reason == "ResourceVersionTooLarge");
    is_ahead || matches!(status.code, 400 | 403 | 404 | 405 | 410)
}
