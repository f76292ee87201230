//! The simulated servers keep the laws that the real ones keep.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use store::Parts;
use store::conformance::{Storage, run_all};
use store::jetstream::Options;
use store::jetstream::simulated::open;
use world::World;
use zeroize::Zeroizing;

use super::LogServers;
use crate::dice::Dice;
use crate::disk::MemoryDisk;
use crate::executor::{Executor, Life, NodeId, Step, is_ended};
use crate::faults::Kind;
use crate::network::Internet;
use crate::process::world_of;

/// A store that nobody used before.
struct Account {
    world: World,
    servers: LogServers,
    life: Life,
}

#[async_trait]
impl Storage for Account {
    async fn open(&self) -> Parts {
        let options = Options {
            servers: Vec::new(),
            name: "conformance".to_owned(),
            process: "simulation".to_owned(),
            ca_file: None,
            makes_log: true,
            master_key: Zeroizing::new([7; 32]),
            partitions: Some(3),
            accept_weak_durability: false,
            created_by: "conformance".to_owned(),
        };
        open(&self.world, self.servers.connect(self.life), &options).await.unwrap()
    }
}

fn laws_hold(seed: u64, trouble: impl Fn(&LogServers, &mut Dice)) {
    let executor = Executor::new(Dice::new(seed));
    let life = executor.start(NodeId(0));
    let world = world_of(&executor, &Internet::new(&executor), life, &MemoryDisk::default());
    let current: Arc<parking_lot::Mutex<Option<LogServers>>> = Arc::default();
    let (executing, made, of_world) = (executor.clone(), Arc::clone(&current), world.clone());
    let make = async move || {
        let servers = LogServers::new(&executing, 3, None);
        *made.lock() = Some(servers.clone());
        let storage: Box<dyn Storage> = Box::new(Account { world: of_world.clone(), servers, life });
        storage
    };
    let (outcome, _) = executor.spawn(life, "laws", Box::pin(async move { run_all(&world, make).await }));
    let mut dice = Dice::new(seed);
    let mut next = Duration::ZERO;
    while !is_ended(&outcome) {
        if executor.now() >= next {
            next = executor.now() + Duration::from_millis(dice.between(20, 200));
            let servers = current.lock().clone();
            servers.iter().for_each(|servers| trouble(servers, &mut dice));
        }
        assert_ne!(executor.step(), Step::Idle, "nothing happens any more");
        assert_eq!(executor.panics(), Vec::<String>::new());
    }
}

#[test]
fn every_law_holds() {
    laws_hold(1, |_, _| {});
}

#[test]
fn every_law_holds_while_copies_are_lost_and_doubled_and_servers_lag() {
    laws_hold(2, |servers, dice| match dice.below(3) {
        0 => servers.will(Kind::LostCopy),
        1 => servers.will(Kind::DoubledCopy),
        _ => servers.replica_falls_behind(Duration::from_millis(dice.below(100)), false),
    });
}
