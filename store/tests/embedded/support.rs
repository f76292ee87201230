//! What these tests share.

use std::path::{Path, PathBuf};

use events::directory::{DirectoryEvent, TokenUsed};
use events::{
    Actor, AggregateKind, AggregateRef, CommitId, CorrelationId, Event, OrganizationId, Position, Timestamp,
    TokenId,
};
use store::embedded::{EmbeddedStore, OpenError, Options, open};
use store::{EventLog, NewCommit, ReadError, ReadFilter, Record};
use uuid::Uuid;
use world::World;

pub(crate) const ORGANIZATION: OrganizationId = OrganizationId(Uuid::from_u128(1));

pub(crate) fn try_open(folder: &Path) -> Result<EmbeddedStore, OpenError> {
    open(&World::real(), folder, Options::default())
}

pub(crate) fn opened(folder: &Path) -> EmbeddedStore {
    try_open(folder).unwrap()
}

pub(crate) fn agent(id: &str) -> AggregateRef {
    AggregateRef::new(AggregateKind::Agent, id)
}

pub(crate) fn commit(world: &World, id: &str, expected: u64) -> NewCommit {
    let used = TokenUsed { token: TokenId(Uuid::from_u128(7)), at: Timestamp(1_800_000_000_000) };
    NewCommit {
        id: CommitId(world.new_uuid()),
        organization: ORGANIZATION,
        aggregate: agent(id),
        expected,
        actor: Actor::service("test"),
        correlation_id: CorrelationId(world.new_uuid()),
        causation_id: None,
        traceparent: None,
        occurred_at: Timestamp(5),
        command: None,
        grounds: None,
        events: store::new_events(world, [Event::from(DirectoryEvent::TokenUsed(used))]).unwrap(),
    }
}

pub(crate) async fn fill(log: &dyn EventLog, id: &str, versions: std::ops::Range<u64>) {
    let world = World::real();
    for expected in versions {
        log.append(commit(&world, id, expected)).await.unwrap();
    }
}

/// Records up to the end, or up to the first error.
pub(crate) async fn read(log: &dyn EventLog, from: &Position) -> (Vec<Record>, Option<ReadError>) {
    let mut reader = log.read(from, &ReadFilter::decisions(&[])).await.unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.recv().await {
        match record {
            Ok(record) => records.push(record),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

pub(crate) async fn all(log: &dyn EventLog) -> Vec<Record> {
    let (records, error) = read(log, &Position::start()).await;
    assert_eq!(error, None);
    records
}

pub(crate) fn first_segment(folder: &Path) -> PathBuf {
    folder.join("log/decisions/0000000001.seg")
}

/// Offsets of the records of a segment's bytes and its end, by the layout that the frames document: magic `KB`, kind, length
/// of the head, length of the payload.
pub(crate) fn record_offsets(bytes: &[u8]) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut at = 16;
    while bytes.get(at..at + 2) == Some(b"KB") {
        let payload = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        if bytes[at + 2] != 3 {
            offsets.push(at);
        }
        at += 16 + usize::from(bytes[at + 3]) + payload;
    }
    offsets.push(at);
    offsets
}

/// Names in a folder that begin with `torn-`.
pub(crate) fn torn_files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("torn-"))
        .collect();
    found.sort();
    found
}
