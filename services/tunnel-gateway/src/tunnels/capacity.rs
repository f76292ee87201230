//! Capacity of a connection for requests to the cluster's API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many more requests a connection takes.
pub(crate) struct Capacity {
    free: Arc<Semaphore>,
    maximum: u32,
    /// A permit was acquired since this was read last.
    was_acquired: AtomicBool,
    is_closed: AtomicBool,
}

/// The share of one request, taken while this is held.
pub(crate) struct CapacityPermit(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Capacity {
    pub(crate) fn new(maximum: u32) -> Self {
        let free = Arc::new(Semaphore::new(maximum as usize));
        Self { free, maximum, was_acquired: AtomicBool::new(false), is_closed: AtomicBool::new(false) }
    }

    /// A permit for one request, if one is free.
    pub(crate) fn acquire(&self) -> Option<CapacityPermit> {
        if self.is_closed() {
            return None;
        }
        let taken = Arc::clone(&self.free).try_acquire_owned().ok().map(CapacityPermit)?;
        self.was_acquired.store(true, Ordering::Relaxed);
        Some(taken)
    }

    /// How many more requests there are permits for.
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Whether a request uses it, or did since this was called last.
    pub(crate) fn was_used(&self) -> bool {
        self.was_acquired.swap(false, Ordering::Relaxed) || self.free() < self.maximum as usize
    }

    /// No further permit is given.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns once no permit is held. None is given while this waits.
    pub(crate) async fn drained(&self) {
        // Nothing closes the semaphore itself.
        let _all = self.free.acquire_many(self.maximum).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn what_was_used_between_two_looks_is_seen_once() {
        let capacity = Capacity::new(2);
        assert!(!capacity.was_used());
        drop(capacity.acquire());
        assert!(capacity.was_used());
        assert!(!capacity.was_used());
        let taken = capacity.acquire();
        assert!(capacity.was_used() && capacity.was_used(), "somebody still uses it");
        drop(taken);
        assert!(!capacity.was_used());
    }

    #[test]
    fn nobody_gets_room_where_none_is_given_any_more() {
        let capacity = Capacity::new(2);
        let taken = capacity.acquire();
        capacity.close();
        assert!(capacity.acquire().is_none());
        let mut drained = Box::pin(capacity.drained());
        assert!(drained.as_mut().now_or_never().is_none());
        drop(taken);
        assert!(drained.now_or_never().is_some());
    }
}
