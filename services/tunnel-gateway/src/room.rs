//! Room on a connection for requests to the cluster's API.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many more requests a connection takes.
pub(crate) struct Room {
    free: Arc<Semaphore>,
    whole: usize,
}

/// A request's part of it, taken while this is held.
pub(crate) struct Taken(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Room {
    pub(crate) fn new(whole: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(whole)), whole }
    }

    /// Room for one request, if there is any.
    pub(crate) fn take(&self) -> Option<Taken> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(Taken)
    }

    /// For how many more there is some.
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Nobody uses any.
    pub(crate) fn is_unused(&self) -> bool {
        self.free() == self.whole
    }
}
