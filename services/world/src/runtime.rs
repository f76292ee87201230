//! What hyper runs on, over a world: its timer and its own tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use hyper::rt::{Executor, Sleep, Timer};
use parking_lot::Mutex;

use crate::{Clock, Spawner, World};

/// Sleeps end by the world's clock.
#[derive(Clone)]
pub struct WorldTimer {
    clock: Arc<dyn Clock>,
    base: Instant,
    started: Duration,
}

impl WorldTimer {
    /// That of a world.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self {
            clock: Arc::clone(&world.clock),
            base: tokio::time::Instant::now().into_std(),
            started: world.clock.monotonic(),
        }
    }
}

struct WorldSleep {
    inner: Mutex<BoxFuture<'static, ()>>,
}

impl Future for WorldSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.get_mut().inner.get_mut().as_mut().poll(context)
    }
}

impl Sleep for WorldSleep {}

impl Timer for WorldTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        let clock = Arc::clone(&self.clock);
        Box::pin(WorldSleep { inner: Mutex::new(Box::pin(async move { clock.sleep(duration).await })) })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> Instant {
        self.base + self.clock.monotonic().saturating_sub(self.started)
    }
}

/// Tasks go through the world's spawner, under one name.
#[derive(Clone)]
pub struct WorldTasks {
    spawner: Arc<dyn Spawner>,
    name: &'static str,
}

impl WorldTasks {
    /// Those of a world.
    #[must_use]
    pub fn new(world: &World, name: &'static str) -> Self {
        Self { spawner: Arc::clone(&world.spawner), name }
    }
}

impl<F> Executor<F> for WorldTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawner.spawn(self.name, Box::pin(task));
    }
}
