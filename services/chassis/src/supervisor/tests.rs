use std::future::pending;

use world::World;

use super::*;
use crate::ShutdownTrigger;

fn supervisor() -> (ShutdownTrigger, Shutdown, Supervisor, World) {
    let world = World::real();
    let (trigger, shutdown) = ShutdownTrigger::new();
    let supervisor = Supervisor::new(Arc::clone(&world.spawner), shutdown.clone());
    (trigger, shutdown, supervisor, world)
}

#[tokio::test]
async fn a_task_that_returns_too_early_ends_all_and_is_named() {
    let (_trigger, _shutdown, supervisor, _world) = supervisor();
    let (held, mut dropped) = mpsc::channel::<()>(1);
    supervisor.spawn("patient", async move {
        let _held = held;
        pending().await
    });
    supervisor.spawn("poller", async { Ok(()) });
    let error = supervisor.join().await.unwrap_err();
    assert_eq!(error.to_string(), "task poller ended unexpectedly");
    assert_eq!(dropped.recv().await, None, "the other task was ended too");
}

#[tokio::test]
async fn a_task_that_fails_is_named_with_its_error() {
    let (_trigger, _shutdown, supervisor, _world) = supervisor();
    supervisor.spawn("poller", async { Err(anyhow!("disk full")) });
    let error = supervisor.join().await.unwrap_err();
    assert_eq!(format!("{error:#}"), "task poller failed: disk full");
}

#[tokio::test]
async fn a_task_that_panics_is_named_with_its_message() {
    let (_trigger, _shutdown, supervisor, _world) = supervisor();
    supervisor.spawn("poller", async { panic!("seven is not even") });
    let error = supervisor.join().await.unwrap_err();
    assert_eq!(format!("{error:#}"), "task poller failed: panicked: seven is not even");
}

#[tokio::test]
async fn shutdown_waits_for_every_task() {
    let (trigger, shutdown, supervisor, _world) = supervisor();
    let (finished, mut order) = mpsc::unbounded_channel();
    for name in ["one", "two"] {
        let (shutdown, finished) = (shutdown.clone(), finished.clone());
        supervisor.spawn(name, async move {
            shutdown.requested().await;
            tokio::task::yield_now().await;
            finished.send(name).unwrap();
            Ok(())
        });
    }
    trigger.request();
    supervisor.join().await.unwrap();
    let mut seen = [order.recv().await.unwrap(), order.recv().await.unwrap()];
    seen.sort_unstable();
    assert_eq!(seen, ["one", "two"]);
}

#[tokio::test]
async fn tasks_started_later_are_supervised_too() {
    let (_trigger, _shutdown, supervisor, _world) = supervisor();
    let group = supervisor.group();
    supervisor.spawn("parent", async move {
        group.spawn("child", async { Err(anyhow!("lost")) });
        pending().await
    });
    let error = supervisor.join().await.unwrap_err();
    assert_eq!(format!("{error:#}"), "task child failed: lost");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_drain_is_ended_by_the_deadline_and_named() {
    let (trigger, shutdown, supervisor, world) = supervisor();
    supervisor.spawn("stubborn", pending());
    supervisor.spawn("obedient", async move {
        shutdown.requested().await;
        Ok(())
    });
    trigger.request();
    let error = supervisor.join_within(world.clock.as_ref(), Duration::from_secs(7)).await.unwrap_err();
    assert_eq!(error.to_string(), "not drained within 7s: stubborn");
}

#[tokio::test(start_paused = true)]
async fn without_shutdown_no_deadline_runs() {
    let (trigger, shutdown, supervisor, world) = supervisor();
    supervisor.spawn("obedient", async move {
        shutdown.requested().await;
        Ok(())
    });
    let asked = async {
        world.clock.sleep(Duration::from_secs(3600)).await;
        trigger.request();
    };
    let (outcome, ()) =
        tokio::join!(supervisor.join_within(world.clock.as_ref(), Duration::from_secs(1)), asked);
    outcome.unwrap();
}
