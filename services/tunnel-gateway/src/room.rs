//! Room on a connection for requests to the cluster's API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many more requests a connection takes.
pub(crate) struct Room {
    free: Arc<Semaphore>,
    whole: u32,
    /// Somebody took of it since it was looked at last.
    was_taken: AtomicBool,
    is_closed: AtomicBool,
}

/// A request's part of it, taken while this is held.
pub(crate) struct Taken(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Room {
    pub(crate) fn new(whole: u32) -> Self {
        let free = Arc::new(Semaphore::new(whole as usize));
        Self { free, whole, was_taken: AtomicBool::new(false), is_closed: AtomicBool::new(false) }
    }

    /// Room for one request, if there is any.
    pub(crate) fn take(&self) -> Option<Taken> {
        if self.is_closed() {
            return None;
        }
        let taken = Arc::clone(&self.free).try_acquire_owned().ok().map(Taken)?;
        self.was_taken.store(true, Ordering::Relaxed);
        Some(taken)
    }

    /// For how many more there is some.
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Whether somebody uses it, or did since this was asked last.
    pub(crate) fn was_used(&self) -> bool {
        self.was_taken.swap(false, Ordering::Relaxed) || self.free() < self.whole as usize
    }

    /// Nobody gets any more of it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns once nobody uses any. Nobody else gets any while this waits.
    pub(crate) async fn emptied(&self) {
        // Nothing closes the semaphore itself.
        let _all = self.free.acquire_many(self.whole).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn what_was_used_between_two_looks_is_seen_once() {
        let room = Room::new(2);
        assert!(!room.was_used());
        drop(room.take());
        assert!(room.was_used());
        assert!(!room.was_used());
        let taken = room.take();
        assert!(room.was_used() && room.was_used(), "somebody still uses it");
        drop(taken);
        assert!(!room.was_used());
    }

    #[test]
    fn nobody_gets_room_where_none_is_given_any_more() {
        let room = Room::new(2);
        let taken = room.take();
        room.close();
        assert!(room.take().is_none());
        let mut emptied = Box::pin(room.emptied());
        assert!(emptied.as_mut().now_or_never().is_none());
        drop(taken);
        assert!(emptied.now_or_never().is_some());
    }
}
