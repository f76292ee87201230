//! What one feed knows; it outlives the feed's task while the epoch lasts.

use std::sync::Arc;
use std::time::Duration;

use events::observation::ObservedKind;

use crate::model::feeds::{FeedKey, Scope};
use crate::model::known::Known;

/// See the module.
pub(super) struct FeedState {
    pub(super) of: Arc<ObservedKind>,
    pub(super) scope: Scope,
    pub(super) known: Known,
    /// The sequence from which on every object is stated; none before the first list ended.
    pub(super) since: Option<u64>,
    /// The same of a statement that has begun.
    pub(super) stating: Option<u64>,
    /// When everything is stated again.
    pub(super) restate_at: Duration,
    /// Everything up to `followed` is reported.
    pub(super) is_listed: bool,
    /// The version up to which objects were followed last.
    pub(super) followed: Option<String>,
    /// Why nothing is seen, as it was reported.
    pub(super) blind: Option<String>,
    /// The API server does not know the collection.
    pub(super) is_missing: bool,
}

impl FeedState {
    pub(super) fn new(key: &FeedKey, scope: Scope) -> Self {
        let resource = &key.resource;
        let of = ObservedKind {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            namespaced: resource.namespaced,
            namespace: key.namespace.clone(),
        };
        Self {
            of: Arc::new(of),
            scope,
            known: Known::default(),
            since: None,
            stating: None,
            restate_at: Duration::ZERO,
            is_listed: false,
            followed: None,
            blind: None,
            is_missing: false,
        }
    }

    /// Whether everything is to be stated (again).
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.since.is_none() || now >= self.restate_at
    }

    /// What was reported does not count any more, and nobody tells its end: all is stated anew, if it ever is.
    pub(super) fn forget(&mut self) {
        self.known = Known::default();
        (self.since, self.stating, self.is_listed) = (None, None, false);
    }

    /// Whether it is reported what there is, or that it is not seen.
    pub(super) const fn is_told(&self) -> bool {
        self.since.is_some() || self.blind.is_some()
    }

    /// A list begins; what is told from now on has `next` as its sequence, or a later one. A statement that was broken off goes on: what
    /// it had stated is not told again.
    pub(super) fn begin_list(&mut self, now: Duration, next: u64) {
        if self.stating.is_none() && self.is_due(now) {
            self.known.begin_statement();
            self.stating = Some(next);
        }
        self.known.begin_list();
    }

    /// A list ended; everything is stated again at `restate_at` if it was a statement. Gives the sequence from which on all is stated.
    pub(super) fn end_list(&mut self, version: &str, restate_at: Duration) -> u64 {
        if let Some(since) = self.stating.take() {
            (self.since, self.restate_at) = (Some(since), restate_at);
        }
        (self.is_listed, self.followed, self.blind) = (true, Some(version.to_owned()), None);
        self.is_missing = false;
        self.since.unwrap_or_default()
    }
}
