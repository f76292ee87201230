//! Opening: what fits together and what does not.

use std::process::{Command, Stdio};

use events::Position;
use events::position::Stream;
use store::KeyRingError;
use store::MasterKey;
use store::embedded::{OpenError, Options, open};
use world::World;

use crate::support::{ORGANIZATION, agent, all, fill, opened, read, try_open};

#[tokio::test]
async fn what_was_appended_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    fill(&*store.log, "one", 0..3000).await;
    let before = all(&*store.log).await;
    let position = store.log.position(Stream::ALL).await.unwrap();
    let live = store.log.verify().await.unwrap();
    let records = store::verify_records(&*store.log).await.unwrap();
    assert_eq!(records.streams[0].partitions, live.streams[0].partitions);
    drop(store);
    let store = opened(folder.path());
    assert_eq!(all(&*store.log).await, before);
    assert_eq!(store.log.position(Stream::ALL).await.unwrap(), position);
    let report = store.log.verify().await.unwrap();
    assert_eq!(report, live);
    assert_eq!((report.streams[0].records, report.streams[0].aggregates), (3000, 1));
    assert!(report.streams[0].checkpoints > 2, "{report:?}");
    fill(&*store.log, "one", 3000..3001).await;
    assert_eq!(read(&*store.log, &position).await.0.len(), 1);
}

#[tokio::test]
async fn segments_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let small = Options { segment_bytes: 20_000, ..Options::default() };
    let world = World::real();
    for round in 0..4 {
        let store = open(&world, folder.path(), small.clone()).unwrap();
        fill(&*store.log, "one", round * 100..(round + 1) * 100).await;
        assert_eq!(all(&*store.log).await.len() as u64, (round + 1) * 100);
        let report = store.log.verify().await.unwrap();
        assert!(u64::from(report.streams[0].segments) > round, "{report:?}");
        assert_eq!(
            store.log.history(ORGANIZATION, &agent("one")).await.unwrap().len() as u64,
            (round + 1) * 100
        );
    }
    std::fs::remove_file(folder.path().join("log/decisions/0000000002.seg")).unwrap();
    let error = open(&world, folder.path(), small).err().unwrap();
    assert_eq!(
        error.to_string(),
        "segment decisions/0000000002.seg is damaged at offset 0: the segment is missing"
    );
}

/// Run by the test below in a process of its own: holds the folder until it is killed.
#[test]
fn holder() {
    let Ok(folder) = std::env::var("STORE_TEST_HOLD") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _runtime = runtime.enter();
    let _store = opened(folder.as_ref());
    println!("held");
    loop {
        std::thread::park();
    }
}

#[tokio::test]
async fn a_second_process_is_refused_until_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "opening::holder", "--nocapture"])
        .env("STORE_TEST_HOLD", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().ends_with("held")));
    let refused = try_open(folder.path()).err().unwrap();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains("in use by another process"));
    child.kill().unwrap();
    child.wait().unwrap();
    opened(folder.path());
}

#[tokio::test]
async fn two_stores_of_one_process_on_one_folder_are_refused_too() {
    let folder = tempfile::tempdir().unwrap();
    let _store = opened(folder.path());
    assert!(matches!(try_open(folder.path()), Err(OpenError::InUse { .. })));
}

fn with_key(byte: u8) -> Options {
    Options { master_key: Some(MasterKey::new([byte; 32])), ..Options::default() }
}

#[tokio::test]
async fn another_master_key_is_refused_clearly() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::real();
    drop(open(&world, folder.path(), with_key(1)).unwrap());
    assert!(!folder.path().join("keys/master").exists(), "a given master key is not written down");
    let refused = open(&world, folder.path(), with_key(2)).err().unwrap();
    assert!(matches!(refused, OpenError::KeyRing(KeyRingError::WrongMasterKey)), "{refused}");
    let refused = try_open(folder.path()).err().unwrap();
    assert!(matches!(refused, OpenError::KeyRing(KeyRingError::WrongMasterKey)), "{refused}");
    assert!(!folder.path().join("keys/master").exists(), "no master key is made beside a ring of another");
    open(&world, folder.path(), with_key(1)).unwrap();
}

#[tokio::test]
async fn secrets_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    drop(opened(folder.path()));
    for name in
        ["keys/master", "keys/ring", "log/meta", "log/decisions/0000000001.seg", "blobs/0000000001.seg"]
    {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn keys_of_another_log_are_refused() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(opened(one.path()));
    drop(opened(two.path()));
    for name in ["keys/ring", "keys/master"] {
        std::fs::copy(two.path().join(name), one.path().join(name)).unwrap();
    }
    assert!(matches!(try_open(one.path()), Err(OpenError::OtherRoot)));
    std::fs::remove_file(one.path().join("keys/ring")).unwrap();
    assert!(matches!(try_open(one.path()), Err(OpenError::OtherRoot)));
}

#[tokio::test]
async fn partitions_and_format_are_fixed() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::real();
    let partitions = |count| Options { partitions: Some(count), ..Options::default() };
    let store = open(&world, folder.path(), partitions(4)).unwrap();
    assert_eq!(store.log.partitions(), 4);
    drop(store);
    assert_eq!(opened(folder.path()).log.partitions(), 4);
    let refused = open(&world, folder.path(), partitions(8)).err().unwrap();
    assert_eq!(refused.to_string(), "the log was created with 4 partitions, which cannot change to 8");
    let meta = folder.path().join("log/meta");
    let text = std::fs::read_to_string(&meta).unwrap();
    std::fs::write(&meta, text.replace("\"format\": 1", "\"format\": 2")).unwrap();
    let refused = try_open(folder.path()).err().unwrap();
    assert!(refused.to_string().contains("format 2 is not 1"), "{refused}");
}

#[tokio::test]
async fn recorded_time_never_runs_backwards() {
    let folder = tempfile::tempdir().unwrap();
    let real = World::real();
    let at = |millis: i64| World { clock: std::sync::Arc::new(FixedClock(millis)), ..real.clone() };
    for (round, millis) in [5_000, 9_000, 2_000].into_iter().enumerate() {
        let store = open(&at(millis), folder.path(), Options::default()).unwrap();
        fill(&*store.log, "one", round as u64..round as u64 + 1).await;
    }
    let store = opened(folder.path());
    let (records, _) = read(&*store.log, &Position::start()).await;
    assert_eq!(
        records.iter().map(|record| record.recorded_at.0).collect::<Vec<_>>(),
        vec![5_000, 9_000, 9_000]
    );
}

struct FixedClock(i64);

#[async_trait::async_trait]
impl world::Clock for FixedClock {
    fn now_millis(&self) -> i64 {
        self.0
    }

    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    async fn sleep(&self, _: std::time::Duration) {
        std::future::pending().await
    }
}
