//! Snapshots as they are stored: what they were folded from may have left the log, so that each version is read by the next one.
//!
//! `KASBAH_GOLDEN=add` writes the file of a new fold version. Files are only ever added.

use std::path::{Path, PathBuf};

use delivery::model::DeliveryState;
use events::delivery::{DeliveryEvent, SourcePinned, SourceSuspended, SyncOutcome};
use events::observation::Observed;
use events::requests::delivery::SourceView;
use events::{AggregateKind, BlobDigest, InstanceId, SourceId};
use store::Projection as _;
use uuid::Uuid;

use crate::given::{AGENT, Given, finished, owned, source, started, view};

fn golden(version: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_snapshots");
    folder.join(format!("{}.v{version}.snapshot", DeliveryState::NAME))
}

/// Something of everything: a synced source, one that is pinned and suspended, an applier, half a statement, an early batch.
fn sample() -> Given {
    let mut given = Given::agent_with(vec![source("shop"), source("bank")]);
    let (shop, bank) = (SourceId::derive(AGENT, "shop"), SourceId::derive(AGENT, "bank"));
    let instance = InstanceId(Uuid::from_u128(7));
    let named = events::delivery::ApplierNamed { agent: AGENT, instance };
    given.decided(AggregateKind::Applier, AGENT.to_string(), DeliveryEvent::ApplierNamed(named));
    given.advanced("shop", "aaa", 1, 2);
    given.desired("shop", "aaa", 1, 10, 2);
    given.applied("shop", 10, &["a", "b"], true);
    given.observed(1, vec![started(shop, 10), finished(shop, 10, SyncOutcome::Succeeded)]);
    let pinned =
        SourcePinned { source: bank, commit: "bbb".to_owned(), bundle: BlobDigest([3; 32]), objects: 1 };
    given.on_source(bank, DeliveryEvent::SourcePinned(pinned));
    let suspended = SourceSuspended { source: bank, reason: "migration".to_owned() };
    given.on_source(bank, DeliveryEvent::SourceSuspended(suspended));
    let stated = Observed::InventoryStated {
        objects: vec![owned(shop, "c", false)],
        last: false,
        unlisted: Vec::new(),
    };
    given.observed(1, vec![stated]);
    given.observed_at(1, 40, vec![started(bank, 12)]);
    given
}

fn read(version: u32) -> Vec<u8> {
    let stored = std::fs::read(golden(version));
    stored
        .unwrap_or_else(|_| panic!("no golden snapshot of version {version}: add it with KASBAH_GOLDEN=add"))
}

#[test]
fn snapshots_stay_as_they_are() {
    let (version, snapshot) = (DeliveryState::FOLD_VERSION, sample().state.snapshot().unwrap());
    if !golden(version).exists() && std::env::var("KASBAH_GOLDEN").as_deref() == Ok("add") {
        std::fs::write(golden(version), &snapshot).unwrap();
    }
    let is_same = read(version) == snapshot;
    assert!(
        is_same,
        "the shape or the fold changed: raise FOLD_VERSION, and read this version in the next one"
    );
}

#[test]
fn the_former_version_is_read_and_holds_what_it_held() {
    let former =
        DeliveryState::restore(DeliveryState::FOLD_VERSION - 1, &read(DeliveryState::FOLD_VERSION - 1));
    let (former, today) = (former.expect("the former version is read"), sample().state);
    for name in ["shop", "bank"] {
        let source = SourceId::derive(AGENT, name);
        let (held, expected) = (view(&former, source).unwrap(), view(&today, source).unwrap());
        // How objects and agents stand was not kept before version 9.
        let held = SourceView { status: expected.status.clone(), why: expected.why.clone(), ..held };
        assert_eq!(held, expected, "{name}");
    }
    assert_eq!(former.applier(AGENT), today.applier(AGENT));
}
