use std::sync::atomic::{AtomicBool, Ordering};

use events::{AggregateKind, Event};
use futures::FutureExt as _;
use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::oneshot;

use super::*;
use crate::Parts;
use crate::conformance::{DEADLINE, commit, fill};
use crate::embedded::{Options, open};
use crate::reading::Fact;

/// Snapshots may be encoded to their end.
static IS_OPEN: AtomicBool = AtomicBool::new(false);
static IS_ENCODING: AtomicBool = AtomicBool::new(false);

/// Counts commits; its encoding takes as long as the test wants.
#[derive(Debug, Default, Deserialize)]
struct Slow {
    folded: u64,
}

impl Serialize for Slow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        IS_ENCODING.store(true, Ordering::SeqCst);
        while !IS_OPEN.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        std::collections::BTreeMap::from([("folded", self.folded)]).serialize(serializer)
    }
}

/// Cannot be encoded.
#[derive(Debug, Default, Deserialize)]
struct Stubborn {
    folded: u64,
}

impl Serialize for Stubborn {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("not today"))
    }
}

macro_rules! counts {
    ($type:ty, $name:literal) => {
        impl Projection for $type {
            const NAME: &'static str = $name;
            const FOLD_VERSION: u32 = 1;
            const SNAPSHOT_EVERY: u64 = 5;

            type Event = Event;

            fn filter() -> ReadFilter {
                ReadFilter::decisions(&[AggregateKind::Agent])
            }

            fn start() -> Self {
                Self::default()
            }

            fn apply(&mut self, _: Fact<'_, Event>) {
                self.folded += 1;
            }
        }
    };
}

counts!(Slow, "slow");
counts!(Stubborn, "stubborn");

struct Running<P> {
    parts: Parts,
    world: World,
    following: Following<P>,
    stop: oneshot::Sender<()>,
    driven: oneshot::Receiver<Result<(), FollowError>>,
    _folder: tempfile::TempDir,
}

async fn running<P: Projection>() -> Running<P> {
    let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
    let parts = open(&world, folder.path(), Options::default()).unwrap().parts();
    let (log, snapshots) = (Arc::clone(&parts.log), Arc::clone(&parts.snapshots));
    let following = follow_projection::<P>(log, snapshots, world.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let (end, driven) = oneshot::channel();
    let drive = following.clone().drive(stopped.map(drop));
    let task = async move {
        assert!(end.send(drive.await).is_ok(), "nobody waits");
    };
    world.spawner.spawn("following", Box::pin(task));
    following.caught_up().await.unwrap();
    Running { parts, world, following, stop, driven, _folder: folder }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_snapshot_to_be_encoded() {
    let running = running::<Slow>().await;
    fill(&running.world, &*running.parts.log, "one", 0..5).await;
    let encoding = async {
        while !IS_ENCODING.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, encoding).await.expect("a snapshot is due");
    let appended = running.parts.log.append(commit(&running.world, "one", 5)).await.unwrap();
    running.following.wait_for(&appended.position, DEADLINE / 6).await.expect("the fold goes on");
    assert_eq!(running.following.read(|state| state.folded), 6);
    IS_OPEN.store(true, Ordering::SeqCst);
    drop(running.stop);
    running.driven.await.unwrap().unwrap();
    let saved = running.parts.snapshots.load("slow").await.unwrap().unwrap();
    assert_eq!(Slow::restore(1, &saved.state).unwrap().folded, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_cannot_be_encoded_leaves_no_snapshot() {
    let running = running::<Stubborn>().await;
    fill(&running.world, &*running.parts.log, "one", 0..7).await;
    running.following.catch_up(DEADLINE).await.unwrap();
    drop(running.stop);
    running.driven.await.unwrap().unwrap();
    assert_eq!(running.parts.snapshots.load("stubborn").await.unwrap(), None);
}
