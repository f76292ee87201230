//! Snapshots as they are stored: each version is read by the next one.
//!
//! `KASBAH_GOLDEN=add` writes the file of a new fold version. Files are only ever added.

use std::path::{Path, PathBuf};

use delivery::environments::Environments;
use events::delivery::SyncOutcome;
use store::Projection as _;

use super::given::{Log, SHOP, production, source};
use super::{create, finish, plain, start};

fn golden(version: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_snapshots");
    folder.join(format!("{}.v{version}.snapshot", Environments::NAME))
}

/// A source that deploys, a deployment by hand that ended, and one that runs.
fn sample() -> Log {
    let mut log = Log::start();
    log.configured(vec![source(production(None))]);
    log.desired(1, "aaa", 1);
    log.began(1, 1);
    log.ended(1, 1, SyncOutcome::Succeeded);
    log.follow();
    log.decide(&create("review/login", plain())).unwrap();
    log.decide(&start(1, SHOP)).unwrap();
    log.decide(&finish(1)).unwrap();
    log.decide(&start(2, SHOP)).unwrap();
    log.desired(2, "bbb", 2);
    log.began(2, 1);
    log
}

#[test]
fn snapshots_stay_as_they_are_and_hold_everything() {
    let (version, log) = (Environments::FOLD_VERSION, sample());
    let snapshot = log.state.snapshot().unwrap();
    if !golden(version).exists() && std::env::var("KASBAH_GOLDEN").as_deref() == Ok("add") {
        std::fs::write(golden(version), &snapshot).unwrap();
    }
    let stored = std::fs::read(golden(version)).expect("no golden snapshot: add it with KASBAH_GOLDEN=add");
    let is_same = stored == snapshot;
    assert!(
        is_same,
        "the shape or the fold changed: raise FOLD_VERSION, and read this version in the next one"
    );
    let restored = Environments::restore(version, &stored).unwrap();
    assert_eq!(restored, log.state);
    assert_eq!(restored.undone().count(), 1, "what is to be done is known again");
}

#[test]
fn snapshots_of_the_former_version_are_read() {
    let restored = Environments::restore(1, &std::fs::read(golden(1)).unwrap()).expect("is read");
    assert_eq!(restored.undone().count(), 1);
    assert!(Environments::restore(0, &[]).is_none());
}
