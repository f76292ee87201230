//! Round trips and fixed derivations.

use events::position::Stream;
use events::subject::{Subject, partition_of_organization};
use events::{AggregateKind, AggregateRef, OrganizationId, Position, SourceId, Timestamp};
use proptest::prelude::*;
use uuid::Uuid;

proptest! {
    #[test]
    fn a_position_survives_its_text(shards in proptest::collection::btree_map((0_usize..4, 0_u16..64), 1_u64.., 0..20)) {
        let mut position = Position::start();
        for ((stream, partition), sequence) in shards {
            position.advance((Stream::ALL[stream], partition), sequence);
        }
        prop_assert_eq!(position.to_string().parse::<Position>().unwrap(), position.clone());
        prop_assert_eq!(events::decode::<Position>(&events::encode(&position).unwrap()).unwrap(), position);
    }

    #[test]
    fn merging_positions_covers_both(a in 0_u64..9, b in 0_u64..9, c in 0_u64..9) {
        let mut left = Position::of(Stream::Decisions, 1, a);
        let mut right = Position::of(Stream::Decisions, 1, b);
        right.advance((Stream::Audit, 2), c);
        let before = left.clone();
        left.merge(&right);
        prop_assert!(left.covers(&right) && left.covers(&before));
    }

    #[test]
    fn a_timestamp_survives_its_text(millis in 0_i64..4_000_000_000_000) {
        prop_assert_eq!(Timestamp::parse(&Timestamp(millis).to_string()).unwrap(), Timestamp(millis));
    }
}

#[test]
fn partitions_and_derived_ids_never_change() {
    let organization = OrganizationId(Uuid::from_u128(7));
    assert_eq!(partition_of_organization(organization, 16), 7);
    let agent = events::AgentId(Uuid::from_u128(7));
    assert_eq!(SourceId::derive(agent, "shop").to_string(), "331ed7c8-97f1-850d-a02b-eaa7fc8a6b52");
}

#[test]
fn subjects_have_one_token_for_each_part() {
    let aggregate = AggregateRef::new(AggregateKind::Source, Uuid::from_u128(7));
    let subject = Subject::log(3, OrganizationId::SYSTEM, &aggregate);
    assert_eq!(
        subject.as_str(),
        "kasbah.log.3.00000000-0000-0000-0000-000000000000.source.00000000-0000-0000-0000-000000000007"
    );
}

#[test]
fn ids_are_text_for_people_and_bytes_in_the_log() {
    let agent = events::AgentId(Uuid::from_u128(7));
    assert_eq!(serde_json::to_string(&agent).unwrap(), "\"00000000-0000-0000-0000-000000000007\"");
    assert_eq!(events::encode(&agent).unwrap().len(), 18);
}
