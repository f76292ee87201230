//! Whether the process can serve, and what it waits for.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The parts of a process that must be ready before it is. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Readiness {
    parts: Arc<Mutex<Vec<(&'static str, bool)>>>,
    changes: Arc<watch::Sender<()>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// Nothing registered: ready.
    #[must_use]
    pub fn new() -> Self {
        Self { parts: Arc::default(), changes: Arc::new(watch::Sender::new(())) }
    }

    /// Adds a part, which is not ready yet. Its state stays when the handle is dropped.
    #[must_use]
    pub fn register(&self, name: &'static str) -> ReadyHandle {
        let index = {
            let mut parts = self.parts.lock();
            parts.push((name, false));
            parts.len() - 1
        };
        self.changes.send_replace(());
        ReadyHandle { readiness: self.clone(), index }
    }

    /// Whether every part is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.parts.lock().iter().all(|(_, ready)| *ready)
    }

    /// Names of the parts that are not ready, in order of their registration.
    #[must_use]
    pub fn not_ready(&self) -> Vec<&'static str> {
        self.parts.lock().iter().filter(|(_, ready)| !ready).map(|(name, _)| *name).collect()
    }

    /// Returns once each of these parts is registered and ready.
    pub async fn wait_for(&self, names: &[&str]) {
        let mut changes = self.changes.subscribe();
        let ready = || {
            let parts = self.parts.lock();
            names.iter().all(|name| parts.iter().any(|(part, ready)| part == name && *ready))
        };
        while !ready() {
            // The sender lives in `self`, so that waiting cannot fail.
            let _held = changes.changed().await;
        }
    }

    /// Returns once every part that is registered by then is ready.
    pub async fn wait(&self) {
        let mut changes = self.changes.subscribe();
        while !self.is_ready() {
            // The sender lives in `self`, so that waiting cannot fail.
            let _held = changes.changed().await;
        }
    }
}

/// Sets the state of one part.
#[derive(Debug, Clone)]
pub struct ReadyHandle {
    readiness: Readiness,
    index: usize,
}

impl ReadyHandle {
    /// Says whether the part is ready.
    pub fn set(&self, ready: bool) {
        if let Some(part) = self.readiness.parts.lock().get_mut(self.index) {
            part.1 = ready;
        }
        self.readiness.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_only_while_each_part_is() {
        let readiness = Readiness::new();
        assert!(readiness.is_ready());
        let log = readiness.register("log");
        let gateway = readiness.register("gateway");
        assert_eq!(readiness.not_ready(), ["log", "gateway"]);
        log.set(true);
        assert_eq!(readiness.not_ready(), ["gateway"]);
        tokio::join!(readiness.wait(), async { gateway.set(true) });
        log.set(false);
        tokio::join!(readiness.wait_for(&["gateway", "console"]), async {
            readiness.register("console").set(true)
        });
        assert!(!readiness.is_ready());
        assert_eq!(readiness.not_ready(), ["log"]);
    }
}
