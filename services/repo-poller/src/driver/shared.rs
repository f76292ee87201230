//! The state and the jobs that a watcher shares with request handlers.

use std::collections::BTreeMap;
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
    /// A check runs now.
    pub fetching: bool,
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
        (self.fetching || self.next_at.is_none()) && !self.tips.contains_key(reference)
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
            *self.push.lock() =
                Some(Cause { correlation_id: push.correlation_id, traceparent: push.traceparent });
        }
        self.woken.notify_one();
    }

    /// The push that requested the check that begins now.
    pub(super) fn take_push(&self) -> Option<Cause> {
        self.push.lock().take()
    }
}
