//! Tasks that must not end by themselves.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use world::Clock;
use world::spawn::{Spawner, TaskHandle};

use crate::Shutdown;

/// Runs named tasks. Before shutdown is asked for none may end; afterwards all are to. Dropping it ends all of them.
pub struct Supervisor {
    group: TaskGroup,
    shutdown: Shutdown,
    ended: mpsc::UnboundedReceiver<Ended>,
}

/// Starts tasks under a [`Supervisor`]; cheap to clone.
#[derive(Clone)]
pub struct TaskGroup {
    spawner: Arc<dyn Spawner>,
    running: Arc<Mutex<Vec<Running>>>,
    ended: mpsc::UnboundedSender<Ended>,
}

struct Running {
    name: &'static str,
    number: usize,
    task: TaskHandle,
}

struct Ended {
    name: &'static str,
    number: usize,
    outcome: anyhow::Result<()>,
}

impl TaskGroup {
    /// Starts a task that is to run until shutdown is asked for.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        let mut running = self.running.lock();
        let number = running.last().map_or(0, |last| last.number + 1);
        let ended = self.ended.clone();
        let watched = async move {
            let outcome = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(outcome) => outcome,
                Err(panic) => Err(anyhow!("panicked: {}", panic_text(panic.as_ref()))),
            };
            // Nobody listens any more once the supervisor is dropped.
            let _sent = ended.send(Ended { name, number, outcome });
        };
        let task = self.spawner.spawn(name, Box::pin(watched));
        running.push(Running { name, number, task });
    }
}

impl Supervisor {
    /// A supervisor without tasks.
    #[must_use]
    pub fn new(spawner: Arc<dyn Spawner>, shutdown: Shutdown) -> Self {
        let (sender, ended) = mpsc::unbounded_channel();
        Self { group: TaskGroup { spawner, running: Arc::default(), ended: sender }, shutdown, ended }
    }

    /// Starts a task that is to run until shutdown is asked for.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.group.spawn(name, task);
    }

    /// For starting tasks while [`Supervisor::join`] runs.
    #[must_use]
    pub fn group(&self) -> TaskGroup {
        self.group.clone()
    }

    /// Waits until shutdown was asked for and all tasks ended.
    ///
    /// # Errors
    /// At once when a task ends before shutdown was asked for, or fails after it: the message names the task. The others are
    /// ended.
    pub async fn join(mut self) -> anyhow::Result<()> {
        self.wait().await
    }

    /// As [`Supervisor::join`], but tasks that still run `deadline` after shutdown was asked for are ended.
    ///
    /// # Errors
    /// As [`Supervisor::join`]; also when tasks had to be ended: the message names them.
    pub async fn join_within(mut self, clock: &dyn Clock, deadline: Duration) -> anyhow::Result<()> {
        let shutdown = self.shutdown.clone();
        let late = async {
            shutdown.requested().await;
            clock.sleep(deadline).await;
        };
        tokio::select! {
            biased;
            outcome = self.wait() => return outcome,
            () = late => {}
        }
        bail!("not drained within {deadline:?}: {}", self.running_names().join(", "))
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        loop {
            if self.shutdown.is_requested() && self.group.running.lock().is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                ended = self.ended.recv() => if let Some(ended) = ended { self.note(ended)? },
                () = self.shutdown.requested(), if !self.shutdown.is_requested() => {}
            }
        }
    }

    fn note(&self, ended: Ended) -> anyhow::Result<()> {
        self.group.running.lock().retain(|running| running.number != ended.number);
        let name = ended.name;
        match ended.outcome {
            Ok(()) if self.shutdown.is_requested() => Ok(()),
            Ok(()) => Err(anyhow!("task {name} ended unexpectedly")),
            failed @ Err(_) => failed.with_context(|| format!("task {name} failed")),
        }
    }

    fn running_names(&self) -> Vec<&'static str> {
        self.group.running.lock().iter().map(|running| running.name).collect()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for running in self.group.running.lock().iter() {
            running.task.abort();
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests;
