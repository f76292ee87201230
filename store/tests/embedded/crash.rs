//! kill -9 during concurrent appends: every acknowledged one is there, none is doubled, the chains are whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use events::position::Stream;
use events::{BlobDigest, CommitId};
use store::embedded::{EmbeddedStore, Options, open};
use store::{NewBatch, Record};
use world::World;

use crate::support::{ORGANIZATION, agent, all, commit};

const ROUNDS: usize = 200;
const WRITERS: usize = 6;

/// Small segments, so that processes die while segments change, too.
fn crashed_store(folder: &Path) -> EmbeddedStore {
    let options = Options { segment_bytes: 64 * 1024, ..Options::default() };
    open(&World::real(), folder, options).unwrap()
}

/// Run by the test below in processes of their own: appends until it is killed, and says what was acknowledged.
#[test]
fn writer() {
    let Ok(folder) = std::env::var("STORE_TEST_CRASH") else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(crashed_store(folder.as_ref()));
        let world = World::real();
        let writers = (0..WRITERS).map(|writer| {
            let (store, world) = (Arc::clone(&store), world.clone());
            let task = write_for_ever(Arc::clone(&store), world.clone(), writer);
            world.spawner.spawn("writer", Box::pin(task))
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.join().await.unwrap();
        }
    });
}

async fn write_for_ever(store: Arc<EmbeddedStore>, world: World, writer: usize) {
    let name = format!("w{writer}");
    let mut version = store.log.history(ORGANIZATION, &agent(&name)).await.unwrap().len() as u64;
    loop {
        let commit = commit(&world, &name, version);
        let id = commit.id;
        let appended = store.log.append(commit.clone()).await.unwrap();
        println!("commit {name} {} {id}", appended.version);
        version = appended.version;
        if version.is_multiple_of(5) {
            assert!(store.log.append(commit).await.unwrap().duplicate);
            let data = format!("{name} {version}").into_bytes();
            let batch = NewBatch {
                stream: Stream::Observations,
                organization: ORGANIZATION,
                writer: name.clone(),
                data,
            };
            store.log.append_batch(batch).await.unwrap();
            println!("batch {name} {version}");
            let content = Bytes::from(format!("{name} {version}"));
            let digest = store.blobs.put(ORGANIZATION, vec![content]).await.unwrap()[0];
            println!("blob {name} {version} {digest}");
        }
    }
}

/// What children said.
#[derive(Default)]
struct Acknowledged {
    commits: BTreeMap<CommitId, (String, u64)>,
    batches: BTreeSet<String>,
    blobs: BTreeMap<String, BlobDigest>,
}

impl Acknowledged {
    fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["commit", name, version, id] => {
                let before =
                    self.commits.insert(id.parse().unwrap(), ((*name).to_owned(), version.parse().unwrap()));
                assert_eq!(before, None, "a commit was acknowledged twice");
            }
            ["batch", name, version] => assert!(self.batches.insert(format!("{name} {version}"))),
            ["blob", name, version, digest] => {
                self.blobs.insert(format!("{name} {version}"), digest.parse().unwrap());
            }
            _ => {}
        }
    }

    async fn is_all_in(&self, store: &EmbeddedStore, newest_blobs: usize) {
        let stored = all(&*store.log).await;
        let commits: BTreeMap<CommitId, (String, u64)> = stored.iter().map(identity).collect();
        assert_eq!(commits.len(), stored.len(), "a commit is stored twice");
        for (id, acknowledged) in &self.commits {
            assert_eq!(commits.get(id), Some(acknowledged), "an acknowledged commit is lost");
        }
        let filter =
            store::ReadFilter { streams: vec![Stream::Observations], ..store::ReadFilter::decisions(&[]) };
        let mut reader = store.log.read(&events::Position::start(), &filter).await.unwrap();
        let mut batches = BTreeSet::new();
        while let Some(record) = reader.recv().await {
            let text = String::from_utf8(record.unwrap().bytes.to_vec()).unwrap();
            assert!(batches.insert(text), "a batch is stored twice");
        }
        assert!(self.batches.is_subset(&batches), "an acknowledged batch is lost");
        for (content, digest) in self.blobs.iter().rev().take(newest_blobs) {
            let found = store.blobs.get(ORGANIZATION, *digest).await.unwrap();
            assert_eq!(found, content.as_bytes());
        }
    }
}

fn identity(record: &Record) -> (CommitId, (String, u64)) {
    let commit = record.commit().unwrap();
    (commit.id, (commit.aggregate.id.clone(), commit.version))
}

/// Lets a child write until it acknowledged `lines` times, and kills it.
fn one_life(folder: &Path, lines: usize, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writer", "--nocapture"])
        .env("STORE_TEST_CRASH", folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut count = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The test harness begins a line before the child's first one.
        let line = line.rsplit_once("... ").map_or(line.as_str(), |(_, rest)| rest);
        acknowledged.note(line);
        count += 1;
        if count == lines {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success());
    assert!(count >= lines, "the child ended by itself");
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_or_doubled_when_killed_200_times() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 0..ROUNDS {
        one_life(folder.path(), 3 + round * 7 % 41, &mut acknowledged);
        let store = crashed_store(folder.path());
        assert!(store.torn.len() <= 5, "at most each chain's tail is torn");
        acknowledged.is_all_in(&store, 5).await;
        store.log.verify().await.unwrap();
    }
    let store = crashed_store(folder.path());
    acknowledged.is_all_in(&store, usize::MAX).await;
    assert!(store.verify_blobs().unwrap() >= acknowledged.blobs.len() as u64);
    let report = store.log.verify().await.unwrap();
    assert!(report.streams[0].segments > 3, "{report:?}");
    println!(
        "{} commits, {} batches, {} blobs",
        acknowledged.commits.len(),
        acknowledged.batches.len(),
        acknowledged.blobs.len()
    );
}
