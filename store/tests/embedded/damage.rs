//! Torn tails and flipped bits.

use std::path::Path;

use bytes::Bytes;
use events::Position;
use store::embedded::OpenError;
use store::{BlobError, Followed, ReadError, ReadFilter};

use crate::support::{
    ORGANIZATION, agent, all, fill, first_segment, opened, read, record_offsets, torn_files, try_open,
};

async fn log_with(folder: &Path, records: u64) -> Vec<u8> {
    let store = opened(folder);
    fill(&*store.log, "one", 0..records).await;
    drop(store);
    as_if_killed(folder);
    std::fs::read(first_segment(folder)).unwrap()
}

/// Whoever was killed did not say where the stream ends.
fn as_if_killed(folder: &Path) {
    std::fs::remove_file(folder.join("log/decisions/end")).unwrap();
}

/// What opening must do with a segment of four records whose last one is torn.
async fn is_cut(folder: &Path, torn: &[u8], last: usize, what: &str) {
    std::fs::write(first_segment(folder), torn).unwrap();
    let store = opened(folder);
    assert_eq!(store.torn.len(), 1, "{what}");
    let report = &store.torn[0];
    assert_eq!((report.segment.as_str(), report.offset), ("decisions/0000000001.seg", last as u64), "{what}");
    let kept = std::fs::read(folder.join("log/decisions").join(&report.kept_in)).unwrap();
    let used = torn.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert_eq!(kept, &torn[last..used], "{what}");
    assert_eq!(all(&*store.log).await.len(), 3, "{what}");
    fill(&*store.log, "one", 3..4).await;
    store.log.verify().await.unwrap();
    drop(store);
    as_if_killed(folder);
}

#[tokio::test]
async fn a_tail_torn_at_any_byte_of_the_last_record_is_cut_and_kept_aside() {
    let folder = tempfile::tempdir().unwrap();
    let whole = log_with(folder.path(), 4).await;
    let offsets = record_offsets(&whole);
    let (last, end) = (offsets[3], offsets[4]);
    assert_eq!(end, whole.len(), "a closed segment is cut to its end");
    for length in last + 1..end {
        is_cut(folder.path(), &whole[..length], last, &format!("cut at {length}")).await;
        let mut zeros = whole[..length].to_vec();
        zeros.resize(end + 4096, 0);
        if zeros[..end] != whole[..end] {
            is_cut(folder.path(), &zeros, last, &format!("zeros from {length}")).await;
        }
    }
    std::fs::write(first_segment(folder.path()), &whole[..last]).unwrap();
    let store = opened(folder.path());
    assert!(store.torn.is_empty(), "a record that never came is no torn tail");
    assert_eq!(all(&*store.log).await.len(), 3);
}

#[tokio::test]
async fn garbage_behind_the_end_is_cut_and_kept_aside() {
    let folder = tempfile::tempdir().unwrap();
    let whole = log_with(folder.path(), 3).await;
    let end = whole.len();
    let repeated = whole[record_offsets(&whole)[1]..].to_vec();
    for garbage in [vec![0xff; 10], repeated] {
        let torn = [whole.clone(), garbage].concat();
        is_cut(folder.path(), &torn, end, "garbage").await;
    }
    assert_eq!(torn_files(&folder.path().join("log/decisions")).len(), 1, "the same place has one file");
}

#[tokio::test]
async fn a_flipped_bit_before_the_last_group_is_damage_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let whole = log_with(folder.path(), 4).await;
    let offsets = record_offsets(&whole);
    for at in (offsets[1]..offsets[2]).step_by(7) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        std::fs::write(first_segment(folder.path()), &flipped).unwrap();
        match try_open(folder.path()) {
            Err(OpenError::Log(ReadError::Damaged { segment, offset, .. })) => {
                assert_eq!(
                    (segment.as_str(), offset),
                    ("decisions/0000000001.seg", offsets[1] as u64),
                    "at {at}"
                );
            }
            other => panic!("at {at}: {:?}", other.err()),
        }
        assert_eq!(std::fs::read(first_segment(folder.path())).unwrap(), flipped, "damage is left as it is");
    }
    std::fs::write(first_segment(folder.path()), &whole).unwrap();
    assert_eq!(all(&*opened(folder.path()).log).await.len(), 4);
}

#[tokio::test]
async fn damage_far_behind_is_found_by_each_way_of_reading_and_never_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let whole = log_with(folder.path(), 2500).await;
    let offsets = record_offsets(&whole);
    let mut flipped = whole.clone();
    flipped[offsets[1] + 100] ^= 1;
    std::fs::write(first_segment(folder.path()), &flipped).unwrap();
    let store = opened(folder.path());
    let is_damage = |error: &ReadError| match error {
        ReadError::Damaged { segment, offset, .. } => {
            segment == "decisions/0000000001.seg" && *offset == offsets[1] as u64
        }
        ReadError::Left { .. } | ReadError::NotDense { .. } | ReadError::Failed { .. } => false,
    };
    let (records, error) = read(&*store.log, &Position::start()).await;
    assert_eq!(records.len(), 1);
    assert!(is_damage(&error.unwrap()));
    let mut follow = store.log.follow(&Position::start(), &ReadFilter::decisions(&[])).await.unwrap();
    assert!(matches!(follow.recv().await, Some(Ok(Followed::Record(_)))));
    assert!(is_damage(&follow.recv().await.unwrap().unwrap_err()));
    assert!(follow.recv().await.is_none(), "nothing is given out behind damage");
    assert!(is_damage(&store.log.history(ORGANIZATION, &agent("one")).await.unwrap_err()));
    assert!(is_damage(&store.log.verify().await.unwrap_err()));
    let behind = Position::of(events::position::Stream::Decisions, records[0].shard.1, 2400);
    assert_eq!(read(&*store.log, &behind).await.0.len(), 100, "what lies behind a checkpoint is readable");
}

#[tokio::test]
async fn a_lost_tail_is_found_by_the_checkpoints_beside_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let whole = log_with(folder.path(), 2500).await;
    let offsets = record_offsets(&whole);
    std::fs::write(first_segment(folder.path()), &whole[..offsets[1500]]).unwrap();
    let error = try_open(folder.path()).err().unwrap();
    assert!(matches!(error, OpenError::Log(ReadError::Damaged { .. })), "{error}");
    assert!(error.to_string().contains("ends before its last checkpoint"), "{error}");
}

#[tokio::test]
async fn an_end_that_was_lost_after_the_log_was_closed_is_found_at_any_record() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    fill(&*store.log, "one", 0..4).await;
    drop(store);
    let whole = std::fs::read(first_segment(folder.path())).unwrap();
    let offsets = record_offsets(&whole);
    for length in offsets[..4].iter().copied().chain([offsets[3] + 9, whole.len() - 1]) {
        std::fs::write(first_segment(folder.path()), &whole[..length]).unwrap();
        let error = try_open(folder.path()).err().unwrap().to_string();
        assert!(error.contains(": the stream was closed behind it"), "{length}: {error}");
        assert_eq!(std::fs::read(first_segment(folder.path())).unwrap(), &whole[..length], "nothing is cut");
        assert!(torn_files(&folder.path().join("log/decisions")).is_empty());
    }
    let checkpoints = folder.path().join("log/decisions/checkpoints");
    std::fs::remove_file(first_segment(folder.path())).unwrap();
    let known = std::fs::read(&checkpoints).unwrap();
    std::fs::remove_file(&checkpoints).unwrap();
    let error = try_open(folder.path()).err().unwrap().to_string();
    assert!(error.contains("the segment is missing"), "{error}");
    std::fs::write(&checkpoints, known).unwrap();
    std::fs::write(first_segment(folder.path()), &whole).unwrap();
    fill(&*opened(folder.path()).log, "one", 4..6).await;
    assert_eq!(all(&*opened(folder.path()).log).await.len(), 6);
}

#[tokio::test]
async fn checkpoints_that_are_lost_or_cut_are_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    log_with(folder.path(), 2500).await;
    let path = folder.path().join("log/decisions/checkpoints");
    let whole = std::fs::read(&path).unwrap();
    for left in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..left]).unwrap();
        let store = opened(folder.path());
        assert_eq!(store.log.verify().await.unwrap().streams[0].records, 2500);
        drop(store);
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{left} bytes were left");
    }
}

#[tokio::test]
async fn damaged_blobs_are_named_and_never_returned() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let contents: Vec<Bytes> = (0..3_u8).map(|index| Bytes::from(vec![index; 200])).collect();
    let mut digests = Vec::new();
    for content in &contents {
        digests.extend(store.blobs.put(ORGANIZATION, vec![content.clone()]).await.unwrap());
    }
    drop(store);
    let path = folder.path().join("blobs/0000000001.seg");
    let whole = std::fs::read(&path).unwrap();
    let offsets = record_offsets(&whole);
    let mut flipped = whole.clone();
    flipped[offsets[1] + 150] ^= 4;
    std::fs::write(&path, &flipped).unwrap();
    let store = opened(folder.path());
    let damaged = BlobError::Damaged {
        digest: digests[1],
        segment: "blobs/0000000001.seg".to_owned(),
        offset: offsets[1] as u64,
    };
    assert_eq!(store.blobs.get(ORGANIZATION, digests[1]).await, Err(damaged));
    assert_eq!(store.blobs.get(ORGANIZATION, digests[2]).await.unwrap(), contents[2]);
    assert!(matches!(store.verify_blobs(), Err(BlobError::Damaged { .. })));
    drop(store);
    std::fs::write(&path, &whole[..offsets[3] - 5]).unwrap();
    let store = opened(folder.path());
    assert_eq!(store.torn.len(), 1);
    assert_eq!(
        store.blobs.get(ORGANIZATION, digests[2]).await,
        Err(BlobError::Missing { digest: digests[2] })
    );
    assert_eq!(store.blobs.put(ORGANIZATION, vec![contents[2].clone()]).await.unwrap(), digests[2..]);
    assert_eq!(store.verify_blobs(), Ok(3));
}
