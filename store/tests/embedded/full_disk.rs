//! Disks that run full or fail: what was acknowledged stays, the rest is refused with its reason.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use store::embedded::{EmbeddedStore, Options, open};
use store::{AppendError, BlobError};
use world::World;

use crate::faulty_disk::faulty_world;
use crate::support::{ORGANIZATION, all, commit, fill, opened};

/// Appends until an append fails; how many were acknowledged, and the failure.
async fn until_failure(store: &EmbeddedStore, world: &World) -> (u64, AppendError) {
    let mut acknowledged = 0;
    loop {
        match store.log.append(commit(world, "one", acknowledged)).await {
            Ok(_) => acknowledged += 1,
            Err(error) => return (acknowledged, error),
        }
    }
}

async fn exactly(folder: &Path, acknowledged: u64) {
    let store = opened(folder);
    assert_eq!(all(&*store.log).await.len() as u64, acknowledged);
    assert!(store.torn.is_empty(), "{:?}", store.torn);
    store.log.verify().await.unwrap();
    fill(&*store.log, "one", acknowledged..acknowledged + 1).await;
}

#[tokio::test]
async fn a_full_disk_makes_the_log_read_only_and_loses_nothing_acknowledged() {
    // The middle ones are used up while the file is filled ahead, which is no failure by itself.
    for room in [1, 100, 5000, 5001, 9999, 131_073, 131_172, 136_072, 136_073, 141_071] {
        let folder = tempfile::tempdir().unwrap();
        let (world, faults) = faulty_world();
        let store = open(&world, folder.path(), Options::default()).unwrap();
        faults.room.store(room, Ordering::SeqCst);
        let (acknowledged, error) = until_failure(&store, &world).await;
        let AppendError::ReadOnly { reason } = &error else { panic!("{error:?}") };
        assert!(reason.contains("decisions") && reason.contains("no storage space"), "{reason}");
        faults.room.store(i64::MAX, Ordering::SeqCst);
        let still = store.log.append(commit(&world, "two", 0)).await;
        assert_eq!(still, Err(error), "read-only until restart");
        assert_eq!(all(&*store.log).await.len() as u64, acknowledged, "reading goes on");
        drop(store);
        exactly(folder.path(), acknowledged).await;
    }
}

#[tokio::test]
async fn a_failed_sync_leaves_the_outcome_unknown_and_the_log_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let (world, faults) = faulty_world();
    let store = open(&world, folder.path(), Options::default()).unwrap();
    fill(&*store.log, "one", 0..3).await;
    faults.syncs_fail.store(true, Ordering::SeqCst);
    let unknown = commit(&world, "one", 3);
    let outcome = store.log.append(unknown.clone()).await;
    assert!(matches!(outcome, Err(AppendError::Unknown { .. })), "{outcome:?}");
    faults.syncs_fail.store(false, Ordering::SeqCst);
    let refused = store.log.append(unknown.clone()).await;
    assert!(
        matches!(refused, Err(AppendError::ReadOnly { .. })),
        "a failed sync is never tried again: {refused:?}"
    );
    assert_eq!(all(&*store.log).await.len(), 3, "what is not durable is not shown");
    drop(store);
    let store = opened(folder.path());
    let again = store.log.append(unknown).await.unwrap();
    assert_eq!(again.version, 4);
    assert_eq!(all(&*store.log).await.len(), 4, "never doubled");
}

#[tokio::test]
async fn a_write_that_can_not_be_undone_leaves_the_outcome_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let (world, faults) = faulty_world();
    let store = open(&world, folder.path(), Options::default()).unwrap();
    fill(&*store.log, "one", 0..3).await;
    faults.room.store(100, Ordering::SeqCst);
    faults.lengths_fail.store(true, Ordering::SeqCst);
    let outcome = store.log.append(commit(&world, "one", 3)).await;
    assert!(matches!(outcome, Err(AppendError::Unknown { .. })), "{outcome:?}");
    drop(store);
    let store = opened(folder.path());
    assert_eq!(store.torn.len(), 1);
    assert_eq!(all(&*store.log).await.len(), 3);
}

#[tokio::test]
async fn a_full_disk_when_a_segment_begins() {
    let mut reasons = BTreeSet::new();
    for room in (6_000..10_000).step_by(200) {
        let folder = tempfile::tempdir().unwrap();
        let (world, faults) = faulty_world();
        let small = Options { segment_bytes: 4096, ..Options::default() };
        let store = open(&world, folder.path(), small).unwrap();
        faults.room.store(room, Ordering::SeqCst);
        let (acknowledged, error) = until_failure(&store, &world).await;
        let AppendError::ReadOnly { reason } = error else { panic!("{error:?}") };
        reasons.insert(reason.split(" stream").next().unwrap().to_owned());
        assert!(acknowledged > 0);
        drop(store);
        exactly(folder.path(), acknowledged).await;
    }
    assert_eq!(reasons, BTreeSet::from(["cannot begin a segment".to_owned(), "cannot write".to_owned()]));
}

#[tokio::test]
async fn a_full_disk_keeps_the_blobs_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let (world, faults) = faulty_world();
    let store = open(&world, folder.path(), Options::default()).unwrap();
    let kept = store.blobs.put(ORGANIZATION, vec![Bytes::from_static(b"kept")]).await.unwrap();
    faults.room.store(150, Ordering::SeqCst);
    let two = vec![Bytes::from_static(b"fits alone"), Bytes::from(vec![1; 1000])];
    let refused = store.blobs.put(ORGANIZATION, two.clone()).await;
    assert!(
        matches!(&refused, Err(BlobError::Failed { detail }) if detail.contains("no storage space")),
        "{refused:?}"
    );
    faults.room.store(i64::MAX, Ordering::SeqCst);
    store.blobs.put(ORGANIZATION, two.clone()).await.unwrap_err();
    assert_eq!(store.blobs.get(ORGANIZATION, kept[0]).await.unwrap(), Bytes::from_static(b"kept"));
    assert_eq!(store.blobs.put(ORGANIZATION, vec![Bytes::from_static(b"kept")]).await.unwrap(), kept);
    drop(store);
    let store = opened(folder.path());
    assert_eq!(store.verify_blobs(), Ok(1));
    let digests = store.blobs.put(ORGANIZATION, two.clone()).await.unwrap();
    assert_eq!(store.blobs.get(ORGANIZATION, digests[1]).await.unwrap(), two[1]);
}
