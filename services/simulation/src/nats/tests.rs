//! The simulated server keeps the laws of the bus that the real one keeps.

use std::sync::Arc;

use bus::{Bus, NatsBus};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use world::World;

use super::Nats;
use crate::dice::Dice;
use crate::disk::MemoryDisk;
use crate::executor::{Executor, NodeId, Step, is_ended};
use crate::network::Internet;
use crate::process::world_of;

/// Runs a law in worlds of its own, by several seeds.
fn in_worlds(law: impl Fn(Arc<dyn Bus>, World) -> BoxFuture<'static, anyhow::Result<()>>) {
    for seed in 1..=3 {
        let executor = Executor::new(Dice::new(seed));
        let life = executor.start(NodeId(0));
        let world = world_of(&executor, &Internet::new(&executor), life, &MemoryDisk::default());
        let bus = NatsBus::over(world.clone(), Nats::new(&executor).connect(life));
        let told: Arc<Mutex<Option<anyhow::Result<()>>>> = Arc::default();
        let (tell, law) = (Arc::clone(&told), law(Arc::new(bus), world));
        let (outcome, _) =
            executor.spawn(life, "law", Box::pin(async move { *tell.lock() = Some(law.await) }));
        while !is_ended(&outcome) {
            assert_ne!(executor.step(), Step::Idle, "nothing happens any more");
        }
        let kept = told.lock().take();
        kept.unwrap().unwrap();
    }
}

bus::conformance_suite!(simulated, in in_worlds);
