//! Segments that leave: what a crash in the middle leaves behind, and what is taken for damage.

use std::path::Path;

use events::Position;
use events::position::Stream;
use store::embedded::{EmbeddedStore, OpenError, Options, open};
use store::{NewBatch, ReadError};
use world::World;

use crate::support::ORGANIZATION;

fn opened(folder: &Path) -> Result<EmbeddedStore, OpenError> {
    let options = Options { segment_bytes: 16 * 1024, partitions: Some(2), ..Options::default() };
    open(&World::real(), folder, options)
}

async fn observe(store: &EmbeddedStore, count: usize) -> Position {
    let mut end = Position::start();
    for number in 0..count {
        let writer = format!("w{}", number % 3);
        let data = vec![0; 1024];
        let record = NewBatch { stream: Stream::Observations, organization: ORGANIZATION, writer, data };
        end.merge(&store.log.append_batch(record).await.unwrap());
    }
    end
}

fn segments(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder.join("log/observations")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".seg"))
        .collect();
    names.sort();
    names
}

async fn counted(store: &EmbeddedStore) -> u64 {
    let report = store.log.verify().await.unwrap();
    report.streams.iter().find(|report| report.stream == Stream::Observations).unwrap().records
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_segments_leave_and_what_a_crash_left_over_follows_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path()).unwrap();
    let middle = observe(&store, 100).await;
    observe(&store, 100).await;
    let before = segments(folder.path());
    let left = folder.path().join("log/observations").join(&before[1]);
    let content = std::fs::read(&left).unwrap();
    store.log.forget(&middle).await.unwrap();
    let after = segments(folder.path());
    assert!(after.len() >= 6 && after.len() + 4 <= before.len(), "{before:?} {after:?}");
    assert_eq!(after, before[before.len() - after.len()..]);
    let records = counted(&store).await;
    assert!((100..130).contains(&records), "{records}");
    drop(store);

    std::fs::write(&left, content).unwrap();
    let store = opened(folder.path()).unwrap();
    assert_eq!(segments(folder.path()), after);
    assert_eq!(counted(&store).await, records);
    observe(&store, 1).await;
    drop(store);
    // Counts beside the stream are written anew from what is in it.
    std::fs::remove_file(folder.path().join("log/observations/checkpoints")).unwrap();
    let store = opened(folder.path()).unwrap();
    assert_eq!(counted(&store).await, records + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_that_nobody_let_go_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path()).unwrap();
    let middle = observe(&store, 60).await;
    observe(&store, 60).await;
    store.log.forget(&middle).await.unwrap();
    drop(store);
    let first = segments(folder.path()).remove(0);
    std::fs::remove_file(folder.path().join("log/observations").join(&first)).unwrap();
    let Err(OpenError::Log(ReadError::Damaged { segment, detail, .. })) = opened(folder.path()) else {
        panic!("it opens");
    };
    assert_eq!((segment, detail.as_str()), (format!("observations/{first}"), "the segment is missing"));
}
