//! A pass beside single look-ups.

use super::*;
use crate::delta::BodyBefore;
use crate::store::chain::Chain;

/// As many objects as changes are listed, each with so many of them; bodies are long, so that some have full rows.
fn with_changes(counts: &[u64]) -> Life {
    let life = in_memory();
    let most = counts.iter().copied().max().unwrap_or(0);
    for number in 1..=most {
        let objects = (0_u64..).zip(counts).filter(|(_, count)| number <= **count);
        let changes = objects.map(|(object, _)| Change {
            agent: AGENT,
            uid: uid(object),
            number,
            sequence: number,
            recorded_at: at(number),
            seen_at: at(number),
            not_before: None,
            what: if number == 1 { What::FirstSeen } else { What::Changed },
            writer: None,
            body: Some(Bytes::from(state(1_000 * object + number))),
            health: HealthState::None,
        });
        life.write(&Batch { changes: changes.collect(), ..Batch::default() }, &Standing::default());
    }
    life
}

/// Of some, UIDs are UUIDs.
fn uid(object: u64) -> Text {
    let uuid = events::id::derived_uuid(&[&object.to_be_bytes()]).to_string();
    let uid = if object.is_multiple_of(3) { format!("uid-{object}") } else { uuid };
    Text::from(uid.as_str())
}

/// What single look-ups find, and the body.
fn found_alone(reader: &Reader, uid: &str, until: u64, sequence: u64) -> Option<(u64, Option<Bytes>)> {
    let mut changes = reader.changes_back(AGENT, uid, until).unwrap().map(Result::unwrap);
    let found = changes.find(|change| change.sequence <= sequence)?;
    Some((found.number, reader.body_after(AGENT, uid, found.number).unwrap()))
}

fn agree(counts: &[u64], asked: &[(u64, u64, u64)]) {
    let life = with_changes(counts);
    let reader = life.store.reader().unwrap();
    let mut pass = reader.pass().unwrap();
    for (object, until, sequence) in asked {
        let uid = uid(*object);
        let place = Reader::place_in_pass(AGENT, &uid);
        let found = pass.newest(&place, *until, |told| told.sequence <= *sequence).unwrap();
        let found = found.map(|found| (found.change.number, found.body().unwrap()));
        assert_eq!(found, found_alone(&reader, &uid, *until, *sequence), "{object} {until} {sequence}");
    }
}

#[test]
fn a_pass_finds_what_single_look_ups_find_in_any_order() {
    let counts = [1, 90, 3, 0, 40, 200, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2];
    let mut in_order: Vec<(u64, u64, u64)> = Vec::new();
    for object in 0..counts.len() as u64 {
        in_order.extend([(object, 200, 200), (object, 60, 60), (object, 200, 1), (object, 5, 3)]);
    }
    agree(&counts, &in_order);
    in_order.sort_by_key(|(object, ..)| Reader::place_in_pass(AGENT, &uid(*object)));
    agree(&counts, &in_order);
    let few: Vec<_> = in_order.iter().copied().step_by(13).collect();
    agree(&counts, &few);
}

/// More than a page of what cannot be compressed.
fn noise() -> Bytes {
    (0..200_u64).flat_map(|number| Sha256::of(&number.to_be_bytes()).0).collect()
}

#[test]
fn what_does_not_fit_into_a_row_leaves_it_as_it_was() {
    let mut life = in_memory();
    for number in 1..=200 {
        life.is(Some(&state(number)));
    }
    let rows = {
        let writing = life.store.begin().unwrap();
        let table = writing.open_table(CHANGES).unwrap();
        let rows = table.iter().unwrap().map(|row| row.unwrap().1.value().to_vec());
        rows.collect::<Vec<_>>()
    };
    assert!(rows.len() > 1);
    for row in rows {
        let mut chain = Chain::read(&row).unwrap();
        let before = BodyBefore::Whole(noise());
        let last = chain.changes().unwrap().pop().unwrap();
        let change = StoredChange { number: chain.number() + 1, before, ..last };
        let body = Some(Bytes::from_static(b"{}"));
        let known = chain.clone();
        assert_eq!(chain.push(&change, body.as_ref()), None);
        assert_eq!(chain, known);
        assert_eq!(chain.row(), row);
    }
}

proptest! {
    #[test]
    fn a_pass_finds_what_single_look_ups_find(
        counts in prop::collection::vec(0..70_u64, 1..12),
        asked in prop::collection::vec((0..12_u64, 0..80_u64, 0..80_u64), 1..40),
    ) {
        agree(&counts, &asked);
    }
}
