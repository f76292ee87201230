//! Laws of snapshots.

use std::sync::Arc;

use events::Position;
use events::position::Stream;
use futures::FutureExt as _;
use world::World;

use super::{Storage, parallel};
use crate::model::Commits;
use crate::projection::Snapshot;
use crate::snapshots::SnapshotError;

fn snapshot(name: &str, filled_with: u8, bytes: usize) -> Snapshot {
    Snapshot {
        name: name.to_owned(),
        fold_version: u32::from(filled_with),
        position: Position::of(Stream::Decisions, 3, 8),
        heads: Some(Commits::new()),
        reading: None,
        state: vec![filled_with; bytes],
    }
}

pub(super) async fn the_newest_snapshot_is_read_whole(world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    assert_eq!(parts.snapshots.load("one").await.unwrap(), None);
    parts.snapshots.save(snapshot("one", 1, 10)).await.unwrap();
    parts.snapshots.save(snapshot("one", 2, 0)).await.unwrap();
    assert_eq!(parts.snapshots.load("one").await.unwrap(), Some(snapshot("one", 2, 0)));
    let savers = (1..9_u8).map(|saver| {
        let snapshots = Arc::clone(&parts.snapshots);
        async move {
            snapshots.save(snapshot("one", saver, 100_000)).await.unwrap();
            let found = snapshots.load("one").await.unwrap().unwrap();
            assert_eq!(found, snapshot("one", found.state[0], 100_000), "a mixture");
        }
        .boxed()
    });
    parallel(&world, savers).await;
    let newest = parts.snapshots.load("one").await.unwrap();
    drop(parts);
    assert_eq!(storage.open().await.snapshots.load("one").await.unwrap(), newest);
}

pub(super) async fn names_are_apart_and_checked(_world: World, storage: Box<dyn Storage>) {
    let parts = storage.open().await;
    parts.snapshots.save(snapshot("one", 1, 10)).await.unwrap();
    parts.snapshots.save(snapshot("two", 2, 10)).await.unwrap();
    assert_eq!(parts.snapshots.load("one").await.unwrap(), Some(snapshot("one", 1, 10)));
    for name in ["", "../one", "a/b", "a.b", "ä"] {
        let refused = SnapshotError::Name { name: name.to_owned() };
        assert_eq!(parts.snapshots.load(name).await, Err(refused.clone()));
        assert_eq!(parts.snapshots.save(snapshot(name, 1, 1)).await, Err(refused));
    }
}
