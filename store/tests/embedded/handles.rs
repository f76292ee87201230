//! A log of any length goes on with few handles.

use std::process::Command;

use store::embedded::{EmbeddedStore, Options, open};
use world::World;

use crate::support::*;

const SEGMENTS: usize = 400;
/// Set where this process has few handles.
const LIMITED: &str = "KASBAH_FEW_HANDLES";

fn opened(folder: &std::path::Path) -> EmbeddedStore {
    let options = Options { segment_bytes: 4 * 1024, partitions: Some(2), ..Options::default() };
    open(&World::real(), folder, options).unwrap()
}

#[test]
fn a_log_of_hundreds_of_segments_goes_on_with_256_handles() {
    let program = std::env::current_exe().unwrap();
    let limited = format!("ulimit -n 256 && exec {} --exact handles::goes_on", program.display());
    let output = Command::new("sh").args(["-c", &limited]).env(LIMITED, "1").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Runs under the limit of the test above, and does nothing without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goes_on() {
    if std::env::var_os(LIMITED).is_none() {
        println!("skipped: {LIMITED} is not set");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let segments = || std::fs::read_dir(folder.path().join("log/decisions")).unwrap().count();
    let store = opened(folder.path());
    let mut written = 0;
    while segments() < SEGMENTS {
        fill(&*store.log, "one", written..written + 100).await;
        written += 100;
    }
    drop(store);
    let store = opened(folder.path());
    assert_eq!(all(&*store.log).await.len() as u64, written);
    let history = store.log.history(ORGANIZATION, &agent("one")).await.unwrap();
    assert_eq!(history.len() as u64, written);
    store.log.verify().await.unwrap();
    store.log.retained(events::Stream::Decisions).await.unwrap();
    fill(&*store.log, "one", written..written + 100).await;
}
