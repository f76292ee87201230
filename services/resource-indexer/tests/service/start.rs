//! How long it takes to load what is on disk. It prints and compares nothing:
//! `KASBAH_LONG_TESTS=1 cargo test -p resource-indexer --test service a_start -- --nocapture`. With a folder in `KASBAH_START_FOLDER` what
//! is there is loaded, or filled and left there, so that a profiler sees loading alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use events::observation::{Observation, ObservationBatch};
use events::{AgentId, OrganizationId, Timestamp};
use resource_indexer::model::{Bodies, Directory, Fold, RecordedAt, Tunnels, asks_pods};
use resource_indexer::store::{Batch, Memory, Standing, Store};
use uuid::Uuid;
use world::World;

use super::running::seen;
use super::timing::App;

const OBJECTS: usize = 300_000;
const AGENTS: usize = 100;
/// Applications of ten objects each of one record.
const OF_RECORD: usize = 10;
/// Records of one transaction.
const AT_ONCE: usize = 50;

fn open(folder: &Path) -> Store {
    Store::open(folder, Uuid::nil(), 1).unwrap()
}

fn batch_of(agent: usize, first_app: usize) -> (AgentId, ObservationBatch) {
    let apps = (first_app..first_app + OF_RECORD).map(|number| App {
        cluster: agent,
        namespace: ["shop-0", "shop-1", "shop-2", "shop-3"][number / 100 % 4],
        name: format!("app-{number:05}"),
    });
    let words = apps.flat_map(|app| app.objects(0)).map(|body| seen(&body));
    let observations =
        words.map(|what| Observation { at: Timestamp(1_000), what }).collect::<Vec<Observation>>();
    let id = AgentId(events::id::derived_uuid(&[b"agent", &agent.to_be_bytes()]));
    let writer = ObservationBatch::agent_writer(id);
    let first = 1 + 10 * first_app as u64;
    (
        id,
        ObservationBatch { organization: OrganizationId(Uuid::nil()), writer, epoch: 1, first, observations },
    )
}

/// As records come: of one agent after the other.
fn fill(folder: &Path) {
    let store = open(folder);
    let mut fold = Fold::default();
    let mut batch = Batch::default();
    let (directory, tunnels, standing) = (Directory::default(), Tunnels::default(), Standing::default());
    for number in 0..OBJECTS / OF_RECORD / 10 {
        let (agent, said) = batch_of(number % AGENTS, number / AGENTS * OF_RECORD);
        let (sequence, at) = (number as u64 + 1, Timestamp(2_000));
        let at = RecordedAt { sequence, recorded_at: at, now: at, misses_beginning: false };
        let folded = fold.apply(at, agent, said, &mut Bodies::default());
        batch.changes.extend(folded.changes);
        batch.stated.extend(folded.stated);
        batch.records.extend(folded.records);
        batch.agents.insert(agent);
        if number % AT_ONCE == AT_ONCE - 1 {
            let memory = Memory {
                index: &fold.index,
                observed: &fold.observed,
                directory: &directory,
                tunnels: &tunnels,
                standing: &standing,
            };
            store.write(&std::mem::take(&mut batch), &memory).unwrap();
        }
    }
    assert_eq!(fold.index.len(), OBJECTS);
    store.sync().unwrap();
}

/// Prints how long a start takes, where tests may take long.
#[test]
fn a_start_with_many_objects() {
    if !testkit::tests_are_long() {
        return;
    }
    let world = World::real();
    let since = |begun: Duration| world.clock.monotonic().saturating_sub(begun);
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("KASBAH_START_FOLDER").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(temporary.path());
    if !folder.join("objects.redb").exists() {
        let begun = world.clock.monotonic();
        fill(folder);
        println!("{OBJECTS} objects on disk after {:.1?}", since(begun));
    }
    let begun = world.clock.monotonic();
    let store = open(folder);
    println!("opened after {:.2?}", since(begun));
    let loaded = store.reader().unwrap().load().unwrap();
    println!("loaded after {:.2?}", since(begun));
    let index = &loaded.fold.index;
    let open = index.slots().filter(|slot| index.get(*slot).is_some_and(asks_pods)).collect::<Vec<_>>().len();
    println!("{open} open workloads found after {:.2?}", since(begun));
    assert_eq!(index.len(), OBJECTS);
}
