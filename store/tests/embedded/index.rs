//! The index is thrown away and made anew.

use std::path::Path;

use store::AppendError;
use world::World;

use crate::support::{ORGANIZATION, agent, all, commit, fill, first_segment, opened, record_offsets};

/// Versions, conflicts and duplicates as they must be whatever became of the index.
async fn knows_everything(folder: &Path, kept: &store::NewCommit) {
    let store = opened(folder);
    assert_eq!(all(&*store.log).await.len(), 1300);
    assert_eq!(store.log.history(ORGANIZATION, &agent("one")).await.unwrap().len(), 1290);
    assert_eq!(store.log.history(ORGANIZATION, &agent("two")).await.unwrap().len(), 10);
    let again = store.log.append(kept.clone()).await.unwrap();
    assert_eq!((again.version, again.duplicate), (1290, true));
    let late = store.log.append(commit(&World::real(), "two", 9)).await;
    assert_eq!(late, Err(AppendError::Conflict { aggregate: agent("two"), expected: 9, actual: 10 }));
    store.log.verify().await.unwrap();
}

async fn prepared(folder: &Path) -> store::NewCommit {
    let store = opened(folder);
    fill(&*store.log, "two", 0..10).await;
    fill(&*store.log, "one", 0..1289).await;
    let kept = commit(&World::real(), "one", 1289);
    store.log.append(kept.clone()).await.unwrap();
    kept
}

#[tokio::test]
async fn a_deleted_index_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let kept = prepared(folder.path()).await;
    std::fs::remove_dir_all(folder.path().join("index")).unwrap();
    knows_everything(folder.path(), &kept).await;
    std::fs::remove_dir_all(folder.path().join("index")).unwrap();
    std::fs::create_dir(folder.path().join("index")).unwrap();
    knows_everything(folder.path(), &kept).await;
}

#[tokio::test]
async fn a_damaged_index_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let kept = prepared(folder.path()).await;
    let files = ["index/decisions", "index/blobs"];
    for file in files {
        let path = folder.path().join(file);
        let whole = std::fs::read(&path).unwrap();
        for damage in [
            Vec::new(),
            whole[..whole.len() / 2].to_vec(),
            whole.iter().map(|byte| byte ^ 0xff).collect(),
            whole
                .iter()
                .enumerate()
                .map(|(at, byte)| if at % 1000 == 17 { byte ^ 1 } else { *byte })
                .collect(),
        ] {
            std::fs::write(&path, damage).unwrap();
            knows_everything(folder.path(), &kept).await;
        }
    }
}

#[tokio::test]
async fn an_index_that_lags_catches_up_and_one_that_leads_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    fill(&*store.log, "one", 0..5).await;
    drop(store);
    let (old, new) = (folder.path().join("index"), folder.path().join("newer"));
    copy(&old, &new);
    let store = opened(folder.path());
    fill(&*store.log, "one", 5..9).await;
    drop(store);
    let ahead = folder.path().join("ahead");
    copy(&old, &ahead);
    std::fs::remove_dir_all(&old).unwrap();
    copy(&new, &old);
    let store = opened(folder.path());
    assert_eq!(store.log.history(ORGANIZATION, &agent("one")).await.unwrap().len(), 9);
    drop(store);
    std::fs::remove_dir_all(&old).unwrap();
    copy(&ahead, &old);
    let bytes = std::fs::read(first_segment(folder.path())).unwrap();
    std::fs::write(first_segment(folder.path()), &bytes[..record_offsets(&bytes)[6]]).unwrap();
    std::fs::remove_file(folder.path().join("log/decisions/end")).unwrap();
    let store = opened(folder.path());
    assert_eq!(store.log.history(ORGANIZATION, &agent("one")).await.unwrap().len(), 6);
    fill(&*store.log, "one", 6..7).await;
}

#[tokio::test]
async fn an_index_of_another_log_is_not_used() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = opened(one.path());
    fill(&*store.log, "one", 0..5).await;
    drop(store);
    drop(opened(two.path()));
    std::fs::remove_dir_all(two.path().join("index")).unwrap();
    copy(&one.path().join("index"), &two.path().join("index"));
    let store = opened(two.path());
    assert!(store.log.history(ORGANIZATION, &agent("one")).await.unwrap().is_empty());
    fill(&*store.log, "one", 0..1).await;
}

#[tokio::test]
async fn an_index_that_says_something_else_is_found_out_and_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (log, twin) = (folder.path().join("log"), folder.path().join("twin"));
    let store = opened(&log);
    fill(&*store.log, "one", 0..5).await;
    drop(store);
    copy(&log, &twin);
    for (folder, id, versions) in [(&log, "two", 0..5), (&twin, "one", 5..10)] {
        let store = opened(folder);
        fill(&*store.log, id, versions).await;
    }
    std::fs::remove_dir_all(log.join("index")).unwrap();
    copy(&twin.join("index"), &log.join("index"));
    let store = opened(&log);
    let misfit = store.log.history(ORGANIZATION, &agent("one")).await.unwrap_err();
    assert!(misfit.to_string().contains("the index does not match the segments"), "{misfit}");
    let unknown = store.log.append(commit(&World::real(), "one", 5)).await;
    assert!(matches!(unknown, Err(AppendError::Unknown { .. })), "{unknown:?}");
    drop(store);
    let store = opened(&log);
    for id in ["one", "two"] {
        assert_eq!(store.log.history(ORGANIZATION, &agent(id)).await.unwrap().len(), 5);
        fill(&*store.log, id, 5..6).await;
    }
    store.log.verify().await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, target).unwrap();
        }
    }
}
