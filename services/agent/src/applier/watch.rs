//! One watch: list, follow, and list again where the API server has forgotten. Where the observer follows the kind, this reads along.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use events::object::ObjectKey;
use events::observation::Observed;
use events::{ObjectIdentity, SourceId, Timestamp};
use objects::health::is_known_by_metadata;
use objects::ownership::SOURCE_LABEL;
use serde_json::Value;

use super::Shared;
use super::collection::{Collection, Event};
use super::context::Context;
use super::prune::listed_identity;
use super::shared_feed::SharedFeed;
use super::watches::{Following, Forbidden, WatchKey};
use crate::kubernetes::{ApiError, LiveObject, path};
use crate::live_feeds::Subscription;
use crate::model::backoff::Backoff;
use crate::model::finished::finished;
use crate::model::manifest::version_of;

/// A watch that lasted for longer did not fail.
const LASTING: Duration = Duration::from_secs(30);
/// A watch without rights is tried again after this long.
const FORBIDDEN_WAIT: Duration = Duration::from_secs(300);

pub(super) struct Watch {
    shared: Arc<Shared>,
    key: WatchKey,
    sources: BTreeSet<SourceId>,
    collection: Collection,
    feed: SharedFeed,
    blocked: bool,
    /// It did not work since its last failure.
    failed: AtomicBool,
}

impl Watch {
    pub(super) fn new(shared: Arc<Shared>, key: WatchKey, sources: BTreeSet<SourceId>, lane: usize) -> Self {
        let ids: Vec<String> = sources.iter().map(ToString::to_string).collect();
        let collection = Collection {
            shared: Arc::clone(&shared),
            resource: Arc::clone(&key.resource),
            namespace: key.namespace.clone(),
            account: key.account.clone(),
            selector: path::escape(&format!("{SOURCE_LABEL} in ({})", ids.join(","))),
            whole: !is_known_by_metadata(&key.resource.group, &key.resource.kind),
            lane,
        };
        let feed = SharedFeed::of(&shared, key.account.as_ref(), &key.resource, &key.namespace);
        Self { shared, key, sources, collection, feed, blocked: false, failed: AtomicBool::new(false) }
    }

    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        loop {
            // Before the list: what changes while it is made is not missed.
            let feed = self.feed.subscribe(self.interest());
            let ended = match self.list().await {
                Ok(version) => {
                    self.blocked = false;
                    self.follow_feed_or(feed, version, &mut backoff).await
                }
                Err(error) => Err(error),
            };
            let wait = match ended {
                Ok(()) => Duration::ZERO,
                // The API server has forgotten what came behind the version.
                Err(error) if error.code() == 410 => Duration::ZERO,
                // What happens meanwhile has to be known before anything is followed again, so that it is listed.
                Err(error) => self.refused(&error, &mut backoff).await,
            };
            self.shared.world.clock.sleep(wait).await;
        }
    }

    /// Objects of the sources, and those that lost their label or changed hands.
    fn interest(&self) -> impl Fn(&LiveObject) -> bool + Send + 'static {
        let (shared, resource, sources) =
            (Arc::clone(&self.shared), Arc::clone(&self.key.resource), self.sources.clone());
        move |object| {
            is_of(object, &sources) || {
                let key = ObjectKey {
                    group: resource.group.clone(),
                    kind: resource.kind.clone(),
                    namespace: object.head.namespace.clone(),
                    name: object.head.name.clone(),
                };
                let books = shared.books.lock();
                sources.iter().any(|source| books.get(source).is_some_and(|book| book.get(&key).is_some()))
            }
        }
    }

    /// Follows the feed, or by itself until there is one, until a list is needed again.
    async fn follow_feed_or(
        &mut self,
        feed: Option<Subscription>,
        version: String,
        backoff: &mut Backoff,
    ) -> Result<(), ApiError> {
        let Some(feed) = feed else {
            return tokio::select! {
                biased;
                error = self.follow_from(version, backoff) => Err(error),
                () = self.feed.until_live() => Ok(()),
            };
        };
        let began = self.shared.now();
        let ended = self.follow_feed(feed).await;
        self.feed.ended(began);
        ended
    }

    /// Follows until a list is needed again; says why.
    async fn follow_from(&self, mut version: String, backoff: &mut Backoff) -> ApiError {
        loop {
            let began = self.shared.now();
            let ended = self.follow(&mut version).await;
            // A watch that breaks again and again costs a list each time.
            if ended.is_ok() || self.shared.now().saturating_sub(began) > LASTING {
                backoff.reset();
            }
            if let Err(error) = ended {
                return error;
            }
        }
    }

    async fn refused(&mut self, error: &ApiError, backoff: &mut Backoff) -> Duration {
        let resource = &self.key.resource;
        self.shared.reach.doubts(error);
        // Once is nothing: an API server that restarts ends all watches.
        if self.failed.swap(true, Ordering::Relaxed) || matches!(error.code(), 403 | 404) {
            self.is_broken(error);
        }
        if error.code() == 404 {
            // Its kind, or this version of it, is not served any more.
            if let Err(error) = self.shared.look_up_kinds().await {
                tracing::debug!(error = %error, "cannot discover kinds");
            }
        }
        if error.code() != 403 {
            tracing::debug!(resource = %resource.plural, error = %error, "watch is retried");
            return backoff.next(self.shared.world.random.as_ref());
        }
        if self.key.namespace.is_empty() && resource.namespaced {
            let forbidden = Forbidden { account: self.key.account.clone(), resource: Arc::clone(resource) };
            self.shared.forbidden.lock().insert(forbidden);
            self.shared.relay.notify_one();
        } else if !std::mem::replace(&mut self.blocked, true) {
            for source in &self.sources {
                let reason =
                    format!("drift and health are unknown, the rights list and watch are needed: {error}");
                let missing = error.missing_right().into_iter().collect();
                self.shared.outbox.report(Observed::SourceBlocked { source: *source, reason, missing });
            }
        }
        FORBIDDEN_WAIT
    }

    fn is_broken(&self, error: &ApiError) {
        let now = Timestamp(self.shared.world.clock.now_millis());
        if self.shared.broken.lock().broke(&self.key, &self.sources, error, now) {
            self.shared.relay.notify_one();
        }
    }

    /// Looks at everything; gives the version from which to follow.
    async fn list(&self) -> Result<String, ApiError> {
        let mut seen = BTreeSet::new();
        let version = self
            .collection
            .list(|mut live| {
                let identity = self.complete(&mut live);
                seen.insert(identity.key());
                self.saw(&identity, &live);
            })
            .await?;
        self.find_missing(&seen, version.parse().unwrap_or(0)).await;
        Ok(version)
    }

    /// Items of lists do not state their kind, and metadata states another.
    fn complete(&self, live: &mut Value) -> ObjectIdentity {
        let identity = listed_identity(&self.key.resource, live);
        if let Some(live) = live.as_object_mut() {
            live.insert("apiVersion".to_owned(), Value::String(identity.api_version()));
            live.insert("kind".to_owned(), Value::String(identity.kind.clone()));
        }
        identity
    }

    fn contexts(&self) -> Vec<Context> {
        let Some(view) = self.shared.desired.view() else { return Vec::new() };
        let sources = self.sources.iter().filter_map(|source| view.source(*source));
        sources.map(|source| Context::new(&self.shared, &view, source)).collect()
    }

    fn saw(&self, identity: &ObjectIdentity, live: &Value) {
        let label = live.pointer("/metadata/labels").and_then(|labels| labels.get(SOURCE_LABEL)?.as_str());
        for context in self.contexts() {
            if label == Some(context.id().to_string().as_str()) {
                context.saw(identity, live);
            }
        }
    }

    /// What is known and was not in the list is gone, if it was known before the list was made.
    async fn find_missing(&self, seen: &BTreeSet<ObjectKey>, version: u64) {
        for context in self.contexts() {
            let resource = &self.key.resource;
            let missing: Vec<ObjectIdentity> = self.shared.with_book(context.id(), |book| {
                book.iter()
                    .filter(|(key, known)| {
                        key.kind == resource.kind
                            && key.group == resource.group
                            && (self.key.namespace.is_empty() || key.namespace == self.key.namespace)
                            && known.identity.version == resource.version
                            && !seen.contains(*key)
                    })
                    .map(|(_, known)| known.identity.clone())
                    .collect()
            });
            for identity in missing {
                context.missed(&identity, version).await;
            }
        }
    }

    /// Reads along until the feed ends.
    async fn follow_feed(&self, mut feed: Subscription) -> Result<(), ApiError> {
        let _followed = self.works();
        // A list does not find what lost its label any more; it is taken for deleted, once.
        let mut lost = BTreeSet::new();
        while let Some(event) = feed.next().await {
            let object = event.object();
            let live = self.read(object)?;
            let key = (object.head.namespace.clone(), object.head.name.clone());
            match &event {
                Event::Seen(object) if is_of(object, &self.sources) => {
                    lost.remove(&key);
                    self.saw_live(live);
                }
                Event::Seen(_) => {
                    if lost.insert(key) {
                        self.deleted(live).await;
                    }
                }
                Event::Deleted(_) => {
                    lost.remove(&key);
                    self.deleted(live).await;
                }
            }
        }
        Ok(())
    }

    /// As the API server gives it where only metadata are asked for: values of Secrets stay unread.
    fn read(&self, object: &LiveObject) -> Result<Value, ApiError> {
        if self.collection.whole { object.value() } else { object.metadata() }
    }

    fn works(&self) -> Following<'_> {
        let followed = self.shared.followed.begin(&self.key);
        self.failed.store(false, Ordering::Relaxed);
        if self.shared.broken.lock().works(&self.key) {
            self.shared.relay.notify_one();
        }
        // A sync may wait for that.
        self.sources.iter().for_each(|source| self.shared.wake(*source));
        followed
    }

    /// Follows until the watch ends in order.
    async fn follow(&self, version: &mut String) -> Result<(), ApiError> {
        let mut events = self.collection.follow(version).await?;
        let _followed = self.works();
        while let Some(event) = events.next(version).await? {
            match event {
                Event::Seen(object) => self.saw_live(object.value()?),
                Event::Deleted(object) => self.deleted(object.value()?).await,
            }
        }
        Ok(())
    }

    fn saw_live(&self, mut live: Value) {
        let identity = self.complete(&mut live);
        self.saw(&identity, &live);
    }

    async fn deleted(&self, mut live: Value) {
        let identity = self.complete(&mut live);
        if finished(&live).is_some() {
            // The last that is seen of it may be the first that tells of its end.
            self.saw(&identity, &live);
        }
        for context in self.contexts() {
            context.missed(&identity, version_of(&live)).await;
        }
    }
}

/// Whether an object carries the label of one of these sources.
fn is_of(object: &LiveObject, sources: &BTreeSet<SourceId>) -> bool {
    object.label(SOURCE_LABEL).is_some_and(|label| sources.iter().any(|source| source.to_string() == label))
}
