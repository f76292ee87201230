//! The embedded store as its users see it: opening, closing, reading back.

use std::path::Path;

use events::directory::{DirectoryEvent, TokenUsed};
use events::{
    Actor, AggregateKind, AggregateRef, CommitId, CorrelationId, Event, OrganizationId, Position, Timestamp, TokenId,
};
use store::embedded::{EmbeddedStore, OpenError, Options, open};
use store::{NewCommit, ReadFilter, Record};
use uuid::Uuid;
use world::World;

const ORGANIZATION: OrganizationId = OrganizationId(Uuid::from_u128(1));

fn opened(world: &World, folder: &Path) -> EmbeddedStore {
    open(world, folder, Options::default()).unwrap()
}

fn commit(world: &World, aggregate: &str, expected: u64) -> NewCommit {
    let used = TokenUsed { token: TokenId(Uuid::from_u128(7)), at: Timestamp(1_800_000_000_000) };
    NewCommit {
        id: CommitId(world.new_uuid()),
        organization: ORGANIZATION,
        aggregate: AggregateRef::new(AggregateKind::Agent, aggregate),
        expected,
        actor: Actor::service("test"),
        correlation_id: CorrelationId(world.new_uuid()),
        causation_id: None,
        traceparent: None,
        occurred_at: Timestamp(5),
        command: None,
        events: store::new_events(world, [Event::from(DirectoryEvent::TokenUsed(used))]).unwrap(),
    }
}

async fn all(store: &EmbeddedStore, from: &Position) -> Vec<Record> {
    let mut reader = store.log.read(from, &ReadFilter::decisions(&[])).await.unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.recv().await {
        records.push(record.unwrap());
    }
    records
}

#[tokio::test]
async fn what_was_appended_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::real();
    let store = opened(&world, folder.path());
    for expected in 0..3000 {
        store.log.append(commit(&world, "one", expected)).await.unwrap();
    }
    let before = all(&store, &Position::start()).await;
    let position = store.log.position();
    drop(store);
    let store = opened(&world, folder.path());
    assert_eq!(all(&store, &Position::start()).await, before);
    assert_eq!(store.log.position(), position);
    assert_eq!(before.len(), 3000);
    let report = store.verify(true).unwrap();
    assert_eq!(report.streams[0].records, 3000);
    assert!(report.streams[0].checkpoints >= 2);
    store.log.append(commit(&world, "one", 3000)).await.unwrap();
    assert_eq!(all(&store, &position).await.len(), 1);
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::real();
    let store = opened(&world, folder.path());
    let second = open(&world, folder.path(), Options::default()).err().unwrap();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    drop(store);
    opened(&world, folder.path());
}
