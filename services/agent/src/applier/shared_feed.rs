//! The observer's feed of a kind, which a watch of the applier reads along where both act as the same account.

use std::sync::Arc;
use std::time::Duration;

use events::configuration::ServiceAccount;

use super::Shared;
use crate::kubernetes::{LiveObject, Resource};
use crate::live_feeds::Subscription;
use crate::model::backoff::Backoff;

/// Waits before a feed that ended soon is read along again: each change over costs a list.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// A subscription that lasted for longer did not end soon.
const LASTING: Duration = Duration::from_secs(60);

/// The observer's feed of what one watch is over.
pub(super) struct SharedFeed {
    shared: Arc<Shared>,
    resource: Arc<Resource>,
    namespace: String,
    /// Another account does not see what the observer sees.
    is_own: bool,
    pauses: Backoff,
    not_before: Duration,
}

impl SharedFeed {
    pub(super) fn of(
        shared: &Arc<Shared>,
        account: Option<&ServiceAccount>,
        resource: &Arc<Resource>,
        namespace: &str,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            resource: Arc::clone(resource),
            namespace: namespace.to_owned(),
            is_own: account.is_none(),
            pauses: Backoff::new(PAUSES.0, PAUSES.1),
            not_before: Duration::ZERO,
        }
    }

    /// Subscribes, where that is possible now. A list that begins after this shows what the events do not.
    pub(super) fn subscribe(
        &self,
        interest: impl Fn(&LiveObject) -> bool + Send + 'static,
    ) -> Option<Subscription> {
        if !self.is_own || self.shared.now() < self.not_before {
            return None;
        }
        self.shared.live_feeds.subscribe(&self.resource, &self.namespace, interest)
    }

    /// Returns once it can be read along.
    pub(super) async fn until_live(&self) {
        if !self.is_own {
            return std::future::pending().await;
        }
        self.shared.world.clock.sleep(self.not_before.saturating_sub(self.shared.now())).await;
        self.shared.live_feeds.until_live(&self.resource, &self.namespace).await;
    }

    /// Notes the end of a subscription that began then.
    pub(super) fn ended(&mut self, began: Duration) {
        let now = self.shared.now();
        if now.saturating_sub(began) > LASTING {
            self.pauses.reset();
        }
        self.not_before = now + self.pauses.next(self.shared.world.random.as_ref());
    }
}
