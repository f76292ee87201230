//! The embedded store keeps the laws of its traits.

use async_trait::async_trait;
use tempfile::TempDir;
use world::World;

use super::{Options, open};
use crate::Parts;
use crate::conformance::{Storage, run_all};

struct Folder {
    folder: TempDir,
    world: World,
    options: Options,
}

#[async_trait]
impl Storage for Folder {
    async fn open(&self) -> Parts {
        open(&self.world, self.folder.path(), self.options.clone()).unwrap().parts()
    }
}

async fn laws_hold_with(options: Options) {
    let world = World::real();
    let make = async || {
        let folder = tempfile::tempdir().unwrap();
        let storage: Box<dyn Storage> =
            Box::new(Folder { folder, world: world.clone(), options: options.clone() });
        storage
    };
    run_all(&world, make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_store_keeps_every_law() {
    laws_hold_with(Options::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_of_a_few_kilobytes_and_one_partition_change_nothing() {
    laws_hold_with(Options { segment_bytes: 16 * 1024, partitions: Some(3), ..Options::default() }).await;
}
