//! The order in which the process ends: first what takes work from outside, then what does it.

use std::sync::Arc;
use std::time::Duration;

use chassis::{Shutdown, ShutdownTrigger, Supervisor};
use world::{Clock, World};

/// The tasks of the process in two groups.
pub(super) struct Groups {
    /// Takes work from outside: ends first, while the others still answer.
    pub(super) edge: Group,
    /// Answers it.
    pub(super) core: Group,
}

/// Tasks that end together.
pub(super) struct Group {
    pub(super) supervisor: Supervisor,
    pub(super) shutdown: Shutdown,
    trigger: ShutdownTrigger,
}

impl Group {
    fn new(world: &World) -> Self {
        let (trigger, shutdown) = ShutdownTrigger::new();
        Self { supervisor: Supervisor::new(Arc::clone(&world.spawner), shutdown.clone()), shutdown, trigger }
    }
}

impl Groups {
    pub(super) fn new(world: &World) -> Self {
        Self { edge: Group::new(world), core: Group::new(world) }
    }

    /// Waits until both ended after `shutdown` was asked for. Each has half of `deadline`.
    ///
    /// # Errors
    /// At once when a task ends by itself; at the end when some had to be ended.
    pub(super) async fn join(
        self,
        clock: &dyn Clock,
        deadline: Duration,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let half = deadline / 2;
        let relay = async {
            shutdown.requested().await;
            self.edge.trigger.request();
            std::future::pending::<()>().await
        };
        let edge = async {
            let outcome = self.edge.supervisor.join_within(clock, half).await;
            self.core.trigger.request();
            // Who ended late is told at the end; who ended by itself ends all.
            if shutdown.is_requested() { Ok(outcome) } else { outcome.map(Ok) }
        };
        let both = async {
            let (edge, ()) = tokio::try_join!(edge, self.core.supervisor.join_within(clock, half))?;
            edge
        };
        tokio::select! {
            outcome = both => outcome,
            () = relay => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use parking_lot::Mutex;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    async fn until(
        shutdown: Shutdown,
        name: &'static str,
        order: Arc<Mutex<Vec<&'static str>>>,
    ) -> anyhow::Result<()> {
        shutdown.requested().await;
        order.lock().push(name);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn the_edge_ends_before_the_core() {
        let world = World::real();
        let groups = Groups::new(&world);
        let order = Arc::new(Mutex::new(Vec::new()));
        groups.core.supervisor.spawn("core", until(groups.core.shutdown.clone(), "core", Arc::clone(&order)));
        groups.edge.supervisor.spawn("edge", until(groups.edge.shutdown.clone(), "edge", Arc::clone(&order)));
        let (trigger, shutdown) = ShutdownTrigger::new();
        trigger.request();
        groups.join(&*world.clock, DEADLINE, shutdown).await.unwrap();
        assert_eq!(*order.lock(), ["edge", "core"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stubborn_edge_is_ended_and_the_core_still_drains() {
        let world = World::real();
        let groups = Groups::new(&world);
        let order = Arc::new(Mutex::new(Vec::new()));
        groups.core.supervisor.spawn("core", until(groups.core.shutdown.clone(), "core", Arc::clone(&order)));
        groups.edge.supervisor.spawn("stubborn", pending());
        let (trigger, shutdown) = ShutdownTrigger::new();
        trigger.request();
        let error = groups.join(&*world.clock, DEADLINE, shutdown).await.unwrap_err();
        assert_eq!(error.to_string(), "not drained within 5s: stubborn");
        assert_eq!(*order.lock(), ["core"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_by_itself_ends_all() {
        for edge in [true, false] {
            let world = World::real();
            let groups = Groups::new(&world);
            groups.core.supervisor.spawn("core", pending());
            groups.edge.supervisor.spawn("edge", pending());
            let group = if edge { &groups.edge } else { &groups.core };
            group.supervisor.spawn("weak", async { Ok(()) });
            let (_trigger, shutdown) = ShutdownTrigger::new();
            let error = groups.join(&*world.clock, DEADLINE, shutdown).await.unwrap_err();
            assert_eq!(error.to_string(), "task weak ended unexpectedly");
        }
    }
}
