//! The observer's feeds as others of the agent read along, so that a kind is watched once: each event of a watch that is open now.
//!
//! A subscription has no beginning, so a subscriber lists what it needs *after* it subscribed: what changes from then on comes as events, the
//! first of which may be older than the list. It ends as soon as an event may be missing or late: the watch broke, its feed has to list, ended
//! or waits for the server, or the subscriber did not take its events. The subscriber then lists and watches by itself, until the feed
//! is live again. Feeds are the agent's own: another account does not see what they see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::kubernetes::{LiveObject, Resource, WatchEvent};
use crate::model::feeds::FeedKey;

/// Bytes of events that a subscriber has not taken; over this its subscription ends.
pub const UNTAKEN_BYTES: usize = 8 << 20;

/// Whether a subscriber needs an object. It runs for each event of the feed, in the feed's own task.
pub type Interest = Box<dyn Fn(&LiveObject) -> bool + Send>;

/// Feeds that are live, and their subscribers.
#[derive(Default)]
pub struct LiveFeeds {
    feeds: Mutex<BTreeMap<FeedKey, Readers>>,
    begun: watch::Sender<()>,
}

type Readers = Arc<Mutex<Vec<Reader>>>;

struct Reader {
    interest: Interest,
    events: mpsc::UnboundedSender<WatchEvent>,
    untaken: Arc<AtomicUsize>,
}

impl Reader {
    /// Whether it goes on.
    fn take(&self, event: &WatchEvent) -> bool {
        let object = event.object();
        if !(self.interest)(object) {
            return !self.events.is_closed();
        }
        let bytes = object.text.len();
        let before = self.untaken.fetch_add(bytes, Ordering::AcqRel);
        // One is taken however large it is.
        (before == 0 || before + bytes <= UNTAKEN_BYTES) && self.events.send(event.detached()).is_ok()
    }
}

impl LiveFeeds {
    /// A feed follows its kind, until what this gives is dropped.
    pub(crate) fn begin(self: &Arc<Self>, key: &FeedKey) -> LiveFeed {
        let readers = Readers::default();
        self.feeds.lock().insert(key.clone(), Arc::clone(&readers));
        self.begun.send_replace(());
        LiveFeed { feeds: Arc::clone(self), key: key.clone(), readers }
    }

    /// Reads along a feed of a kind that sees this namespace (empty: all of them), where one is live.
    pub fn subscribe(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        interest: impl Fn(&LiveObject) -> bool + Send + 'static,
    ) -> Option<Subscription> {
        let readers = self.find(resource, namespace)?;
        let (events, taken) = mpsc::unbounded_channel();
        let untaken = Arc::<AtomicUsize>::default();
        let within = namespace.to_owned();
        let interest = move |object: &LiveObject| {
            (within.is_empty() || object.head.namespace == within) && interest(object)
        };
        let reader = Reader { interest: Box::new(interest), events, untaken: Arc::clone(&untaken) };
        readers.lock().push(reader);
        Some(Subscription { events: taken, untaken })
    }

    /// Returns once such a feed is live.
    pub async fn until_live(&self, resource: &Arc<Resource>, namespace: &str) {
        let mut begun = self.begun.subscribe();
        while self.find(resource, namespace).is_none() {
            if begun.changed().await.is_err() {
                return;
            }
        }
    }

    fn find(&self, resource: &Arc<Resource>, namespace: &str) -> Option<Readers> {
        let feeds = self.feeds.lock();
        let of = |namespace: &str| {
            feeds.get(&FeedKey { resource: Arc::clone(resource), namespace: namespace.to_owned() })
        };
        of(namespace).or_else(|| of("")).cloned()
    }

    /// How many subscriptions there are.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.feeds.lock().values().map(|readers| readers.lock().len()).sum()
    }
}

/// A feed's own side. When it is dropped, all subscriptions end.
pub(crate) struct LiveFeed {
    feeds: Arc<LiveFeeds>,
    key: FeedKey,
    readers: Readers,
}

impl LiveFeed {
    pub(crate) fn tell(&self, event: &WatchEvent) {
        self.readers.lock().retain(|reader| reader.take(event));
    }
}

impl Drop for LiveFeed {
    fn drop(&mut self) {
        let mut feeds = self.feeds.feeds.lock();
        if feeds.get(&self.key).is_some_and(|readers| Arc::ptr_eq(readers, &self.readers)) {
            feeds.remove(&self.key);
        }
        drop(feeds);
        self.readers.lock().clear();
    }
}

/// Events from the moment of the subscription on.
pub struct Subscription {
    events: mpsc::UnboundedReceiver<WatchEvent>,
    untaken: Arc<AtomicUsize>,
}

impl Subscription {
    /// The next event; `None`: it ended, and what follows has to be listed.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        let event = self.events.recv().await?;
        self.untaken.fetch_sub(event.object().text.len(), Ordering::AcqRel);
        Some(event)
    }
}

impl WatchEvent {
    /// A copy that does not hold the memory of the answer that it was read from.
    fn detached(&self) -> Self {
        let copy = |object: &LiveObject| LiveObject {
            head: object.head.clone(),
            text: Bytes::copy_from_slice(&object.text),
        };
        match self {
            Self::Seen(object) => Self::Seen(copy(object)),
            Self::Deleted(object) => Self::Deleted(copy(object)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource() -> Arc<Resource> {
        let [group, version, kind, plural] = ["", "v1", "ConfigMap", "configmaps"].map(str::to_owned);
        Arc::new(Resource { group, version, kind, plural, namespaced: true, listable: true, watchable: true })
    }

    fn key(namespace: &str) -> FeedKey {
        FeedKey { resource: resource(), namespace: namespace.to_owned() }
    }

    fn seen(namespace: &str, name: &str, size: usize) -> WatchEvent {
        let text = format!(
            r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}"}},"data":"{}"}}"#,
            "x".repeat(size)
        );
        WatchEvent::Seen(LiveObject::of(Bytes::from(text)))
    }

    async fn name(subscription: &mut Subscription) -> Option<String> {
        subscription.next().await.map(|event| event.object().head.name.clone())
    }

    #[tokio::test]
    async fn a_subscriber_reads_what_it_wants_until_the_feed_is_not_live_any_more() {
        let feeds = Arc::<LiveFeeds>::default();
        assert!(feeds.subscribe(&resource(), "", |_| true).is_none());
        let live = feeds.begin(&key(""));
        let mut all = feeds.subscribe(&resource(), "", |object| object.head.name != "no").unwrap();
        let mut shop = feeds.subscribe(&resource(), "shop", |_| true).unwrap();
        for (namespace, name) in [("shop", "no"), ("other", "a"), ("shop", "b")] {
            live.tell(&seen(namespace, name, 0));
        }
        assert_eq!(feeds.subscriptions(), 2);
        drop(live);
        assert_eq!(feeds.subscriptions(), 0);
        assert!(feeds.subscribe(&resource(), "", |_| true).is_none());
        let mut read = Vec::new();
        while let Some(name) = name(&mut all).await {
            read.push(name);
        }
        assert_eq!(read, ["a", "b"]);
        assert_eq!(name(&mut shop).await.as_deref(), Some("no"));
        assert_eq!(name(&mut shop).await.as_deref(), Some("b"));
        assert_eq!(name(&mut shop).await, None);
    }

    #[tokio::test]
    async fn a_feed_of_one_namespace_serves_no_one_who_needs_all() {
        let feeds = Arc::<LiveFeeds>::default();
        let _live = feeds.begin(&key("shop"));
        assert!(feeds.subscribe(&resource(), "", |_| true).is_none());
        assert!(feeds.subscribe(&resource(), "other", |_| true).is_none());
        assert!(feeds.subscribe(&resource(), "shop", |_| true).is_some());
        feeds.until_live(&resource(), "shop").await;
    }

    #[tokio::test]
    async fn only_a_subscriber_that_does_not_take_its_events_is_cut_off() {
        let feeds = Arc::<LiveFeeds>::default();
        let live = feeds.begin(&key(""));
        let mut slow = feeds.subscribe(&resource(), "", |_| true).unwrap();
        let mut quick = feeds.subscribe(&resource(), "", |_| true).unwrap();
        for number in 0..9 {
            live.tell(&seen("shop", &number.to_string(), 1 << 20));
            assert_eq!(name(&mut quick).await, Some(number.to_string()));
        }
        let mut read = 0;
        while name(&mut slow).await.is_some() {
            read += 1;
        }
        assert_eq!((read, feeds.subscriptions()), (7, 1));
        // One that is larger than all that may wait comes through.
        live.tell(&seen("shop", "huge", UNTAKEN_BYTES + 1));
        assert_eq!(name(&mut quick).await.as_deref(), Some("huge"));
    }
}
