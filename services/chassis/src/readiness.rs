//! Whether the process can serve, and what stands in the way.

use std::fmt;
use std::sync::Arc;

use events::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

/// Letters of a message on the page.
const MESSAGE_MAXIMUM: usize = 1_000;

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All is well.
    Passed,
    /// Something is wrong, but the process can do its job.
    Warning,
    /// The process cannot do its job: it is not ready.
    Failed,
}

/// What a check found, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The outcome.
    pub outcome: Outcome,
    /// In words; may be empty.
    pub message: String,
    /// Since when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl Finding {
    /// All is well.
    #[must_use]
    pub fn passed(message: impl Into<String>) -> Self {
        Self::new(Outcome::Passed, message.into())
    }

    /// Something is wrong, but the process can do its job.
    #[must_use]
    pub fn warning(message: impl Into<String>) -> Self {
        Self::new(Outcome::Warning, message.into())
    }

    /// The process cannot do its job.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Outcome::Failed, message.into())
    }

    fn new(outcome: Outcome, message: String) -> Self {
        let message = if message.chars().count() > MESSAGE_MAXIMUM {
            message.chars().take(MESSAGE_MAXIMUM).chain(" …".chars()).collect()
        } else {
            message
        };
        Self { outcome, message, since: None }
    }

    /// The same, since this moment.
    #[must_use]
    pub fn since(self, moment: Timestamp) -> Self {
        Self { since: Some(moment), ..self }
    }
}

/// A check with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A stable name, such as `tunnel`.
    pub name: &'static str,
    /// What it found.
    #[serde(flatten)]
    pub finding: Finding,
}

/// One line, for people.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { outcome, message, since } = &self.finding;
        let outcome = match outcome {
            Outcome::Passed => "passed",
            Outcome::Warning => "warning",
            Outcome::Failed => "failed",
        };
        write!(f, "{} {outcome}", self.name)?;
        if let Some(since) = since {
            write!(f, " since {since}")?;
        }
        if !message.is_empty() {
            write!(f, ": {}", message.replace('\n', " "))?;
        }
        Ok(())
    }
}

/// Looks at something that is not registered as a part.
type Look = Arc<dyn Fn() -> Finding + Send + Sync>;

/// The parts of a process that must be ready before it is, and what else is looked at when somebody asks. Cheap to clone.
#[derive(Clone)]
pub struct Readiness {
    parts: Arc<Mutex<Vec<Check>>>,
    looks: Arc<Mutex<Vec<(&'static str, Look)>>>,
    changes: Arc<watch::Sender<()>>,
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("parts", &*self.parts.lock()).finish_non_exhaustive()
    }
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
        Self { parts: Arc::default(), looks: Arc::default(), changes: Arc::new(watch::Sender::new(())) }
    }

    /// Adds a part, which is not ready yet. Its state stays when the handle is dropped.
    #[must_use]
    pub fn register(&self, name: &'static str) -> ReadyHandle {
        let index = {
            let mut parts = self.parts.lock();
            parts.push(Check { name, finding: Finding::failed("") });
            parts.len() - 1
        };
        self.changes.send_replace(());
        ReadyHandle { readiness: self.clone(), index }
    }

    /// Adds a check that is made each time that somebody asks for [`Readiness::checks`]. It must not block. Nobody waits for it: the
    /// process may become ready and serve before it passes.
    pub fn check(&self, name: &'static str, look: impl Fn() -> Finding + Send + Sync + 'static) {
        self.looks.lock().push((name, Arc::new(look)));
    }

    /// Everything that is checked, as it is now: parts in order of their registration, then the other checks.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        let mut checks = self.parts.lock().clone();
        let looks = self.looks.lock().clone();
        checks.extend(looks.into_iter().map(|(name, look)| Check { name, finding: look() }));
        checks
    }

    /// Whether every part is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.parts.lock().iter().all(is_ready)
    }

    /// Returns once each of these parts is registered and ready.
    pub async fn wait_for(&self, names: &[&str]) {
        let mut changes = self.changes.subscribe();
        let ready = || {
            let parts = self.parts.lock();
            names.iter().all(|name| parts.iter().any(|part| part.name == *name && is_ready(part)))
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

fn is_ready(part: &Check) -> bool {
    part.finding.outcome != Outcome::Failed
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
        self.report(if ready { Finding::passed("") } else { Finding::failed("") });
    }

    /// Says how the part stands, and why.
    pub fn report(&self, finding: Finding) {
        if let Some(part) = self.readiness.parts.lock().get_mut(self.index) {
            part.finding = finding;
        }
        self.readiness.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(readiness: &Readiness) -> Vec<&'static str> {
        let checks = readiness.checks().into_iter();
        checks.filter(|check| check.finding.outcome == Outcome::Failed).map(|check| check.name).collect()
    }

    #[tokio::test]
    async fn ready_only_while_each_part_is() {
        let readiness = Readiness::new();
        assert!(readiness.is_ready());
        let log = readiness.register("log");
        let gateway = readiness.register("gateway");
        assert_eq!(failing(&readiness), ["log", "gateway"]);
        log.set(true);
        assert_eq!(failing(&readiness), ["gateway"]);
        tokio::join!(readiness.wait(), async { gateway.set(true) });
        log.set(false);
        tokio::join!(readiness.wait_for(&["gateway", "console"]), async {
            readiness.register("console").set(true)
        });
        assert!(!readiness.is_ready());
        assert_eq!(failing(&readiness), ["log"]);
        log.report(Finding::warning("slow"));
        assert!(readiness.is_ready(), "a warning is no failure");
    }

    #[test]
    fn what_is_looked_at_comes_after_the_parts_and_is_new_each_time() {
        let readiness = Readiness::new();
        let found = Arc::new(Mutex::new(Finding::passed("reached")));
        let shown = Arc::clone(&found);
        readiness.check("api-server", move || shown.lock().clone());
        readiness.register("tunnel").report(Finding::failed("refused\nonce").since(Timestamp(1_000)));
        let lines = || readiness.checks().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            lines(),
            ["tunnel failed since 1970-01-01T00:00:01.000Z: refused once", "api-server passed: reached"]
        );
        *found.lock() = Finding::failed("x".repeat(2_000));
        assert_eq!(lines()[1].chars().count(), "api-server failed: ".len() + MESSAGE_MAXIMUM + 2);
    }
}
