//! Tasks.

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

/// Starts tasks.
pub trait Spawner: Send + Sync {
    /// Starts a task; `name` shows in logs. The handle ends it when aborted, not when dropped.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle;

    /// Does work that takes a thread for itself, away from the tasks. It cannot be ended before its end.
    fn spawn_blocking(&self, name: &'static str, work: Box<dyn FnOnce() + Send>) -> TaskHandle;
}

/// A started task, as whoever runs it knows it.
#[async_trait]
pub trait Task: Send + Sync {
    /// Ends it at its next await.
    fn abort(&self);

    /// Whether it ended.
    fn is_finished(&self) -> bool;

    /// Waits for its end.
    ///
    /// # Errors
    /// When it panicked or was aborted.
    async fn join(self: Box<Self>) -> Result<(), TaskFailed>;
}

/// A started task.
pub struct TaskHandle(Box<dyn Task>);

/// A task ended by a panic or was aborted.
#[derive(Debug, thiserror::Error)]
#[error("task ended unexpectedly: {0}")]
pub struct TaskFailed(pub String);

impl std::fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskHandle").field("finished", &self.is_finished()).finish()
    }
}

impl TaskHandle {
    /// The handle of a task.
    #[must_use]
    pub fn new(task: Box<dyn Task>) -> Self {
        Self(task)
    }

    /// Ends the task at its next await.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// Whether it ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it panicked or was aborted.
    pub async fn join(self) -> Result<(), TaskFailed> {
        self.0.join().await
    }
}

/// Does work on a thread that may block and waits for its outcome.
///
/// # Errors
/// When the work panicked.
pub async fn blocking<T: Send + 'static>(
    spawner: &dyn Spawner,
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TaskFailed> {
    let (give, taken) = oneshot::channel();
    let done = spawner.spawn_blocking(
        name,
        Box::new(move || {
            // Nobody may be waiting any more.
            let _given = give.send(work());
        }),
    );
    match taken.await {
        Ok(outcome) => Ok(outcome),
        Err(_) => Err(done.join().await.err().unwrap_or_else(|| TaskFailed(name.to_owned()))),
    }
}

/// Spawns on the current tokio runtime.
#[derive(Debug, Clone, Copy)]
pub struct TokioSpawner;

struct TokioTask(tokio::task::JoinHandle<()>);

#[async_trait]
impl Task for TokioTask {
    fn abort(&self) {
        self.0.abort();
    }

    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    async fn join(self: Box<Self>) -> Result<(), TaskFailed> {
        self.0.await.map_err(|error| TaskFailed(error.to_string()))
    }
}

impl Spawner for TokioSpawner {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle::new(Box::new(TokioTask(tokio::spawn(task))))
    }

    fn spawn_blocking(&self, _name: &'static str, work: Box<dyn FnOnce() + Send>) -> TaskHandle {
        TaskHandle::new(Box::new(TokioTask(tokio::task::spawn_blocking(work))))
    }
}
