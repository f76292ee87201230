//! Asking a process to stop, and hearing it.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Hears that the process is to stop: take no new work, finish what runs, return.
#[derive(Debug, Clone)]
pub struct Shutdown {
    requested: Arc<watch::Sender<bool>>,
}

/// Asks the process to stop. Dropping it asks nothing.
#[derive(Debug, Clone)]
pub struct ShutdownTrigger {
    requested: Arc<watch::Sender<bool>>,
}

impl ShutdownTrigger {
    /// A trigger and those that hear it.
    #[must_use]
    pub fn new() -> (Self, Shutdown) {
        let requested = Arc::new(watch::Sender::new(false));
        (Self { requested: Arc::clone(&requested) }, Shutdown { requested })
    }

    /// Asks. Asking again changes nothing.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }
}

impl Shutdown {
    /// Whether stopping was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Returns once stopping was asked for; at once if it was before.
    pub async fn requested(&self) {
        let mut receiver = self.requested.subscribe();
        // The sender lives in `self`, so that waiting cannot fail.
        let _held = receiver.wait_for(|requested| *requested).await;
    }
}

/// Returns with the name of the first SIGTERM or SIGINT that comes after the call.
///
/// # Errors
/// When the operating system refuses to install the handlers.
pub fn signals() -> io::Result<impl Future<Output = &'static str> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_hears_it_also_who_asks_late() {
        let (trigger, shutdown) = ShutdownTrigger::new();
        let early = shutdown.clone();
        assert!(!early.is_requested());
        let (heard, ()) = tokio::join!(
            async {
                early.requested().await;
                early.is_requested()
            },
            async { trigger.request() }
        );
        assert!(heard);
        drop(trigger);
        shutdown.requested().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_trigger_asks_nothing() {
        let (trigger, shutdown) = ShutdownTrigger::new();
        drop(trigger);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(3600), shutdown.requested()).await;
        assert!(waited.is_err());
    }
}
