//! The world of one simulated process.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use world::spawn::{Task, TaskFailed, TaskHandle};
use world::{Clock, Random, Spawner, World};

use crate::dice::Dice;
use crate::disk::MemoryDisk;
use crate::executor::{AbortHandle, Executor, Joined, Life, SharedOutcome, is_ended};
use crate::network::{Endpoint, Internet};

/// When runs begin, in milliseconds since the Unix epoch.
pub(crate) const BEGIN_MILLIS: i64 = 1_900_000_000_000;

/// The world of one start of a process.
#[must_use]
pub fn world_of(executor: &Executor, internet: &Internet, life: Life, disk: &MemoryDisk) -> World {
    let dice = executor.roll(Dice::split);
    World {
        clock: Arc::new(SimulatedClock { executor: executor.clone(), life }),
        random: Arc::new(SimulatedRandom(Mutex::new(dice))),
        spawner: Arc::new(SimulatedSpawner { executor: executor.clone(), life }),
        disk: Arc::new(disk.clone()),
        network: Arc::new(Endpoint::new(internet.clone(), life)),
    }
}

/// Wall-clock time of a process.
#[must_use]
pub fn wall_millis(executor: &Executor, life: Life) -> i64 {
    let now = i64::try_from(executor.now().as_millis()).unwrap_or(i64::MAX);
    BEGIN_MILLIS.saturating_add(now).saturating_add(executor.clock_offset_millis(life.node))
}

struct SimulatedClock {
    executor: Executor,
    life: Life,
}

#[async_trait]
impl Clock for SimulatedClock {
    fn now_millis(&self) -> i64 {
        wall_millis(&self.executor, self.life)
    }

    fn monotonic(&self) -> Duration {
        self.executor.now()
    }

    async fn sleep(&self, duration: Duration) {
        self.executor.sleep(duration).await;
    }
}

struct SimulatedRandom(Mutex<Dice>);

impl Random for SimulatedRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.0.lock();
        for chunk in bytes.chunks_mut(8) {
            let number = dice.next().to_le_bytes();
            chunk.iter_mut().zip(number).for_each(|(to, from)| *to = from);
        }
    }
}

struct SimulatedSpawner {
    executor: Executor,
    life: Life,
}

struct SimulatedTask {
    outcome: SharedOutcome,
    abort: AbortHandle,
}

#[async_trait]
impl Task for SimulatedTask {
    fn abort(&self) {
        self.abort.abort();
    }

    fn is_finished(&self) -> bool {
        is_ended(&self.outcome)
    }

    async fn join(self: Box<Self>) -> Result<(), TaskFailed> {
        Joined(Arc::clone(&self.outcome)).await.map_err(TaskFailed)
    }
}

impl Spawner for SimulatedSpawner {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        let (outcome, abort) = self.executor.spawn(self.life, name, task);
        TaskHandle::new(Box::new(SimulatedTask { outcome, abort }))
    }

    fn spawn_blocking(&self, name: &'static str, work: Box<dyn FnOnce() + Send>) -> TaskHandle {
        self.spawn(name, Box::pin(async move { work() }))
    }
}
