//! The store on JetStream keeps the laws of its traits, on one server and on three.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use testkit::{NatsCluster, NatsServer};
use world::World;
use zeroize::Zeroizing;

use super::{Options, open};
use crate::Parts;
use crate::conformance::{Storage, run_all};

/// An account that nobody used before.
struct Account {
    world: World,
    servers: Vec<String>,
}

pub(crate) fn options(servers: Vec<String>) -> Options {
    Options {
        servers,
        name: "conformance".to_owned(),
        process: "conformance".to_owned(),
        ca_file: None,
        makes_log: true,
        master_key: Zeroizing::new([7; 32]),
        partitions: Some(3),
        accept_weak_durability: false,
        created_by: "conformance".to_owned(),
    }
}

#[async_trait]
impl Storage for Account {
    async fn open(&self) -> Parts {
        open(&self.world, options(self.servers.clone())).await.unwrap().parts
    }
}

async fn laws_hold_in(accounts: impl Fn(usize) -> Vec<String>) {
    let world = World::real();
    let next = AtomicUsize::new(0);
    let make = async || {
        let servers = accounts(next.fetch_add(1, Ordering::Relaxed));
        let storage: Box<dyn Storage> = Box::new(Account { world: world.clone(), servers });
        storage
    };
    run_all(&world, make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_keeps_every_law() {
    let server = NatsServer::start().await.unwrap();
    laws_hold_in(|account| vec![server.account_url(account)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_keep_every_law() {
    let cluster = NatsCluster::start().await.unwrap();
    laws_hold_in(|account| cluster.account_urls(account)).await;
}
