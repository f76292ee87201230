//! The state and the jobs that a watcher shares with request handlers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use events::configuration::GitReference;
use events::requests::repository::{BundleAtCommit, RepositoryPushed};
use events::{CorrelationId, Refusal, SourceId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};

use crate::git::tree::Finder;
use crate::git::{GitError, ObjectId, Objects};

/// Requests that wait for a watcher, at most.
const JOB_QUEUE: usize = 32;
/// Files of one repository that are read at once for requests.
const READERS: usize = 4;

/// How a repository stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Status {
    /// The commits that refs name.
    pub tips: BTreeMap<GitReference, ObjectId>,
    /// When the last check that found each of them began, by the monotonic clock.
    pub checked: BTreeMap<GitReference, Duration>,
    /// Refs that cannot be read, and why.
    pub failures: BTreeMap<GitReference, GitError>,
    /// A check runs now. Most of them find nothing new.
    pub checking: bool,
    /// Somebody requested a check, after a push for example, that has not ended.
    pub requested: bool,
    /// Refs in which the check that runs now found another commit.
    pub moving: BTreeSet<GitReference>,
    /// When the next check is due.
    pub next_at: Option<Timestamp>,
}

impl Status {
    /// Whether what a ref names was found by a check that began then or later.
    pub(crate) fn checked_since(&self, reference: &GitReference, moment: Duration) -> bool {
        self.checked.get(reference).is_some_and(|checked| *checked >= moment)
    }

    /// Whether nothing is known of a ref, but may soon be.
    pub(crate) fn fetching_first(&self, reference: &GitReference) -> bool {
        (self.checking || self.next_at.is_none()) && !self.tips.contains_key(reference)
    }

    /// Whether another commit is being fetched or can be expected. A check made because time has passed is no sign of one.
    pub(crate) fn is_fetching(&self, reference: &GitReference) -> bool {
        self.requested || self.moving.contains(reference) || self.fetching_first(reference)
    }
}

/// Work for a watcher, beside watching.
pub(crate) struct Job {
    pub source: SourceId,
    pub commit: String,
    pub answer: oneshot::Sender<Result<BundleAtCommit, Refusal>>,
}

/// Why a round is made: the chain that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub correlation_id: CorrelationId,
    pub traceparent: Option<String>,
}

/// One watcher, as others see it.
pub(crate) struct Shared {
    pub status: watch::Sender<Status>,
    pub objects: Mutex<Option<Objects>>,
    pub finder: Arc<Finder>,
    pub jobs: mpsc::Sender<Job>,
    pub readers: Semaphore,
    pub(super) woken: Notify,
    push: Mutex<Option<Cause>>,
}

impl Shared {
    pub(super) fn new() -> (Self, mpsc::Receiver<Job>) {
        let (jobs, queue) = mpsc::channel(JOB_QUEUE);
        let shared = Self {
            status: watch::Sender::default(),
            objects: Mutex::default(),
            finder: Arc::default(),
            jobs,
            readers: Semaphore::new(READERS),
            woken: Notify::new(),
            push: Mutex::default(),
        };
        (shared, queue)
    }

    /// Requests a check now; several requests before it begins are one.
    pub(crate) fn wake(&self, push: Option<RepositoryPushed>) {
        if let Some(push) = push {
            let mut waiting = self.push.lock();
            *waiting = Some(Cause { correlation_id: push.correlation_id, traceparent: push.traceparent });
            self.status.send_modify(|status| status.requested = true);
        }
        self.woken.notify_one();
    }

    /// A check has ended; whether it is to be made again for the same reason.
    pub(super) fn checked(&self, next_at: Timestamp, again: bool) {
        let push = self.push.lock();
        self.status.send_modify(|status| {
            status.checking = false;
            status.requested &= again || push.is_some();
            status.moving.clear();
            status.next_at = Some(next_at);
        });
    }

    /// The push that requested the check that begins now.
    pub(super) fn take_push(&self) -> Option<Cause> {
        self.push.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::parse_id;

    fn pushed() -> RepositoryPushed {
        RepositoryPushed {
            project: events::ProjectId(uuid::Uuid::from_u128(1)),
            reference: None,
            correlation_id: CorrelationId(uuid::Uuid::from_u128(2)),
            traceparent: None,
        }
    }

    /// A repository whose ref was read before.
    fn known() -> (Shared, GitReference) {
        let (shared, _jobs) = Shared::new();
        let tip = parse_id(&"1".repeat(40)).unwrap();
        shared.status.send_modify(|status| {
            status.tips.insert(GitReference::Default, tip);
        });
        shared.checked(Timestamp(1), false);
        (shared, GitReference::Default)
    }

    #[test]
    fn a_check_because_time_has_passed_is_no_sign_of_a_new_commit() {
        let (shared, reference) = known();
        shared.wake(None);
        shared.status.send_modify(|status| status.checking = true);
        assert!(!shared.status.borrow().is_fetching(&reference));
        let unread = GitReference::Branch("other".to_owned());
        assert!(shared.status.borrow().is_fetching(&unread), "of that one nothing is known yet");
        shared.status.send_modify(|status| {
            status.moving.insert(reference.clone());
        });
        assert!(shared.status.borrow().is_fetching(&reference), "it names another commit");
        shared.checked(Timestamp(2), false);
        assert!(!shared.status.borrow().is_fetching(&reference));
    }

    #[test]
    fn a_push_is_fetched_until_a_check_that_began_after_it_has_ended() {
        let (shared, reference) = known();
        shared.wake(Some(pushed()));
        assert!(shared.status.borrow().is_fetching(&reference));
        assert!(shared.take_push().is_some(), "a check begins");
        shared.wake(Some(pushed()));
        shared.checked(Timestamp(2), false);
        assert!(shared.status.borrow().is_fetching(&reference), "another push came meanwhile");
        assert!(shared.take_push().is_some());
        shared.checked(Timestamp(3), true);
        assert!(shared.status.borrow().is_fetching(&reference), "the check is made again");
        shared.checked(Timestamp(4), false);
        assert!(!shared.status.borrow().is_fetching(&reference));
    }
}
