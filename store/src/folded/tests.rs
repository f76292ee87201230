use events::position::Stream;
use events::{AggregateKind, CorrelationId, Event, OrganizationId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use world::World;

use super::*;
use crate::conformance::{ORGANIZATION, commit};
use crate::reading::Fact;

/// Counts what it folds.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Count(u64);

impl Projection for Count {
    const NAME: &'static str = "count";
    const FOLD_VERSION: u32 = 1;
    const SNAPSHOT_EVERY: u64 = 10;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[AggregateKind::Agent]).and(Stream::Observations)
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, _: Fact<'_, Event>) {
        self.0 += 1;
    }
}

fn decision(sequence: u64, id: &str, version: u64) -> Record {
    let bytes = commit(&World::real(), id, version - 1).encode(events::ChainHash::default()).unwrap();
    Record::new((Stream::Decisions, 1), sequence, Timestamp(1), ORGANIZATION, bytes.into())
}

fn observed(partition: u16, sequence: u64) -> Record {
    Record::new((Stream::Observations, partition), sequence, Timestamp(1), ORGANIZATION, Vec::new().into())
}

/// Which of the records are folded.
fn folded(records: &[Record]) -> Vec<bool> {
    let mut folded = Folded::<Count>::start();
    records.iter().map(|record| folded.fold(record).is_ok()).collect()
}

#[test]
fn an_aggregate_is_folded_version_by_version() {
    let of = |versions: &[(u64, &str, u64)]| {
        let records: Vec<Record> =
            versions.iter().map(|(sequence, id, version)| decision(*sequence, id, *version)).collect();
        folded(&records)
    };
    assert_eq!(of(&[(1, "a", 1), (5, "b", 1), (9, "a", 2), (10, "a", 3)]), [true; 4]);
    assert_eq!(of(&[(1, "a", 1), (2, "a", 2), (4, "a", 4), (3, "a", 3)]), [true, true, false, true]);
    assert_eq!(of(&[(1, "a", 1), (2, "a", 3)]), [true, false], "a version is missing");
    assert_eq!(of(&[(1, "a", 1), (2, "a", 2), (3, "a", 2)]), [true, true, false], "a version twice");
    assert_eq!(of(&[(2, "a", 1), (1, "b", 1)]), [true, false], "one was overtaken");
    assert_eq!(of(&[(1, "a", 1), (1, "a", 1)]), [true, false], "a record twice");
}

#[test]
fn observations_are_folded_one_after_the_other() {
    let of = |sequences: &[(u16, u64)]| {
        let records: Vec<Record> =
            sequences.iter().map(|(partition, sequence)| observed(*partition, *sequence)).collect();
        folded(&records)
    };
    assert_eq!(of(&[(1, 1), (1, 2), (2, 1), (1, 3)]), [true; 4]);
    assert_eq!(of(&[(1, 1), (1, 3), (1, 2), (1, 3)]), [true, false, true, true], "one overtook another");
    assert_eq!(of(&[(1, 2)]), [false], "the first is missing");
    assert_eq!(of(&[(1, 1), (1, 1)]), [true, false], "a record twice");
}

#[test]
fn nothing_is_decided_on_organizations_with_commits_that_cannot_be_read_at_all() {
    let mut folded = Folded::<Count>::start();
    let bytes = events::encode(&CorrelationId(Uuid::nil())).unwrap();
    let record = Record::new((Stream::Decisions, 1), 1, Timestamp(1), ORGANIZATION, bytes.into());
    folded.fold(&record).unwrap();
    let of = |organization: OrganizationId| {
        let aggregate = crate::conformance::agent("a");
        folded.heads.grounds(&(), crate::ReadSet::default(), organization, &aggregate, Vec::new)
    };
    assert!(of(ORGANIZATION).is_err() && of(OrganizationId::SYSTEM).is_ok());
    folded.fold(&decision(2, "a", 7)).unwrap();
}
