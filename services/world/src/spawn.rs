//! Tasks.

use futures::future::BoxFuture;

/// Starts tasks.
pub trait Spawner: Send + Sync {
    /// Starts a task; `name` shows in logs. The handle ends it when aborted, not when dropped.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle;
}

/// A started task.
#[derive(Debug)]
pub struct TaskHandle {
    inner: tokio::task::JoinHandle<()>,
}

/// A task ended by a panic or was aborted.
#[derive(Debug, thiserror::Error)]
#[error("task ended by itself: {0}")]
pub struct TaskFailed(String);

impl TaskHandle {
    /// Ends the task at its next await.
    pub fn abort(&self) {
        self.inner.abort();
    }

    /// Whether it ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it panicked or was aborted.
    pub async fn join(self) -> Result<(), TaskFailed> {
        self.inner.await.map_err(|error| TaskFailed(error.to_string()))
    }
}

/// Spawns on the current tokio runtime.
#[derive(Debug, Clone, Copy)]
pub struct TokioSpawner;

impl Spawner for TokioSpawner {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle { inner: tokio::spawn(task) }
    }
}
