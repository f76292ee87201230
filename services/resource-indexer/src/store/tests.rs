mod few_bytes;
mod load;
mod pass;
mod timeline;

use std::collections::BTreeMap;

use bytes::Bytes;
use events::Sha256;
use events::position::Stream;
use events::requests::index::HealthState;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::{Index, What};

const AGENT: AgentId = AgentId(uuid::Uuid::from_u128(10));

/// One object's states, each recorded in a record of its own, a second apart.
struct Life {
    store: Store,
    index: Index,
    observed: BTreeMap<AgentId, Observed>,
    number: u64,
}

fn at(number: u64) -> Timestamp {
    Timestamp(1_000 * i64::try_from(number).unwrap())
}

impl Life {
    fn new(store: Store) -> Self {
        Self { store, index: Index::default(), observed: BTreeMap::new(), number: 0 }
    }

    fn record(&self, gone: bool) -> Record {
        let identity = events::ObjectIdentity {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "shop".to_owned(),
            name: "a".to_owned(),
        };
        let mut record = Record::named(AGENT, &identity, "u");
        (record.changed_at, record.sequence) = (at(self.number), self.number);
        (record.told, record.stated) = ((1, self.number), (1, self.number));
        record.set_gone_at(gone.then(|| at(self.number)));
        record.set_changes(self.number);
        record
    }

    /// The object has this body now; without one it is gone.
    fn is(&mut self, body: Option<&[u8]>) {
        self.number += 1;
        let what = match body {
            None => What::Deleted,
            Some(_) if self.number == 1 => What::FirstSeen,
            Some(_) => What::Changed,
        };
        let record = self.record(body.is_none());
        let change = Change {
            agent: AGENT,
            uid: record.uid.clone(),
            number: self.number,
            sequence: self.number,
            recorded_at: at(self.number),
            seen_at: at(self.number),
            not_before: None,
            what,
            writer: None,
            body: body.map(Bytes::copy_from_slice),
            health: HealthState::None,
        };
        self.index.put(record);
        let known = std::collections::BTreeSet::from([(AGENT, Text::from("u"))]);
        let batch =
            Batch { changes: vec![change], records: known.clone(), stated: known, ..Batch::default() };
        let shard = self.store.reader().unwrap().partitions().of(AGENT);
        let position = Position::of(Stream::Objects, shard, self.number);
        self.write(&batch, &Standing { position, ..Standing::default() });
    }

    fn write(&self, batch: &Batch, standing: &Standing) {
        let (directory, tunnels) = (Directory::default(), Tunnels::default());
        let (index, observed) = (&self.index, &self.observed);
        let memory = Memory { index, observed, directory: &directory, tunnels: &tunnels, standing };
        self.store.write(batch, &memory).unwrap();
    }

    fn body_after(&self, number: u64) -> Option<Vec<u8>> {
        self.store.reader().unwrap().body_after(AGENT, "u", number).unwrap().map(Vec::from)
    }

    fn numbers(&self) -> Vec<u64> {
        let reader = self.store.reader().unwrap();
        reader.changes_back(AGENT, "u", u64::MAX).unwrap().map(|change| change.unwrap().number).collect()
    }

    fn listed(&self) -> usize {
        let reader = self.store.reader().unwrap();
        reader.timeline_back(AGENT, None).unwrap().count()
    }
}

/// Much of it is another in each state, so that a row has few.
fn state(number: u64) -> Vec<u8> {
    let digest = Sha256::of(&number.to_be_bytes()).to_string();
    let body: Value =
        json!({"kind": "ConfigMap", "data": {"digest": digest, "long": "x".repeat(500), "n": number}});
    body.to_string().into_bytes()
}

fn in_memory() -> Life {
    Life::new(Store::in_memory(16).unwrap())
}

#[test]
fn every_body_of_a_long_history_is_given_back() {
    let mut life = in_memory();
    for number in 1..=300 {
        life.is(Some(&state(number)));
    }
    for number in 1..=300 {
        assert_eq!(life.body_after(number), Some(state(number)), "{number}");
    }
    let reader = life.store.reader().unwrap();
    assert_eq!(reader.body(AGENT, "u").unwrap().map(Vec::from), Some(state(300)));
    assert!(rows(&life.store, CHANGES) > 1, "rows are full after some changes");
}

fn rows(store: &Store, table: Table) -> usize {
    let writing = store.begin().unwrap();
    let table = writing.open_table(table).unwrap();
    table.iter().unwrap().count()
}

#[test]
fn what_is_before_the_horizon_leaves_but_for_the_newest_state() {
    let mut life = in_memory();
    for number in 1..=40 {
        life.is(Some(&state(number)));
    }
    let shard = life.store.reader().unwrap().partitions().of(AGENT);
    let pruned = life.store.prune(&Position::of(Stream::Objects, shard, 30), &life.index, None).unwrap();
    assert_eq!((pruned.changes, pruned.until, pruned.has_more), (30, Some(at(30)), false));
    assert!(pruned.objects.is_empty(), "it is there");
    assert_eq!(life.numbers(), (30..=40).rev().collect::<Vec<_>>());
    assert_eq!(life.listed(), 10, "the base is not listed");
    for number in 30..=40 {
        assert_eq!(life.body_after(number), Some(state(number)), "{number}");
    }
    life.is(Some(&state(41)));
    let again = life.store.prune(&Position::of(Stream::Objects, shard, 35), &life.index, None).unwrap();
    assert_eq!((again.changes, life.numbers().len(), life.listed()), (5, 7, 6));
    assert_eq!(life.body_after(41), Some(state(41)));
}

#[test]
fn an_object_that_was_gone_before_the_horizon_leaves_with_all_that_is_kept_of_it() {
    let mut life = in_memory();
    life.is(Some(&state(1)));
    life.is(None);
    let shard = life.store.reader().unwrap().partitions().of(AGENT);
    let before = life.store.prune(&Position::of(Stream::Objects, shard, 1), &life.index, None).unwrap();
    assert!(before.objects.is_empty(), "its end is not past yet");
    let pruned = life.store.prune(&Position::of(Stream::Objects, shard, 2), &life.index, None).unwrap();
    assert_eq!(pruned.objects, [(AGENT, Text::from("u"))]);
    assert_eq!((life.numbers().len(), life.listed()), (0, 0));
    assert!(life.store.reader().unwrap().load().unwrap().fold.index.is_empty());
}

#[test]
fn an_agent_that_is_forgotten_leaves_nothing() {
    let mut life = in_memory();
    life.is(Some(&state(1)));
    life.is(Some(&state(2)));
    life.observed.insert(AGENT, Observed::new(events::OrganizationId::SYSTEM));
    let agents = std::collections::BTreeSet::from([AGENT]);
    life.write(&Batch { agents: agents.clone(), ..Batch::default() }, &Standing::default());
    assert_eq!(life.store.reader().unwrap().load().unwrap().fold.observed.len(), 1);
    life.observed.clear();
    let standing = Standing { leaving: agents.clone(), ..Standing::default() };
    life.write(&Batch { agents, ..Batch::default() }, &standing);
    let loaded = life.store.reader().unwrap().load().unwrap();
    assert!(
        loaded.fold.index.is_empty() && loaded.fold.observed.is_empty(),
        "its rows are left, and count for nothing"
    );
    assert_eq!(life.numbers().len(), 2);
    assert!(!life.store.forget_some(AGENT).unwrap(), "all of it at once, as it is little");
    assert_eq!((life.numbers().len(), life.listed()), (0, 0));
}

#[test]
fn an_agent_with_many_rows_leaves_in_pieces() {
    let mut life = in_memory();
    let writing = life.store.begin().unwrap();
    for number in 1..=6_000 {
        put(&writing, OBJECTS, &object_key(AGENT, &number.to_string()), b"").unwrap();
    }
    writing.commit().unwrap();
    life.is(Some(&state(1)));
    let mut pieces = 1;
    while life.store.forget_some(AGENT).unwrap() {
        pieces += 1;
    }
    assert_eq!((pieces, rows(&life.store, OBJECTS), life.numbers().len(), life.listed()), (2, 0, 0, 0));
}

#[test]
fn an_object_that_is_erased_leaves_nothing_and_may_come_again() {
    let mut life = in_memory();
    life.is(Some(&state(1)));
    life.is(Some(&state(2)));
    let slot = life.index.by_uid(AGENT, "u").unwrap();
    life.index.remove(slot);
    let known = std::collections::BTreeSet::from([(AGENT, Text::from("u"))]);
    let batch = Batch { erased: known.clone(), records: known, ..Batch::default() };
    life.write(&batch, &Standing::default());
    assert_eq!((life.numbers().len(), life.listed()), (0, 0));
    life.number = 0;
    life.is(Some(&state(3)));
    assert_eq!(life.body_after(1), Some(state(3)));
}

#[test]
fn a_file_that_is_open_is_left_alone_and_one_that_is_made_anew_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let log = uuid::Uuid::from_u128(1);
    let mut life = Life::new(Store::open(folder.path(), log, 16).unwrap());
    life.is(Some(&state(1)));
    assert_eq!(Store::open(folder.path(), log, 16).map(|_| ()).unwrap_err(), StoreError::AlreadyOpen);
    let made = Store::make(folder.path(), log, 16).unwrap();
    assert!(made.reader().unwrap().load().unwrap().fold.index.is_empty());
    assert_eq!(life.body_after(1), Some(state(1)), "whoever reads the former one goes on");
}

#[test]
fn a_row_that_cannot_be_decoded_is_damage() {
    let life = in_memory();
    let writing = life.store.begin().unwrap();
    put(&writing, OBJECTS, &object_key(AGENT, "u"), b"nonsense").unwrap();
    writing.commit().unwrap();
    assert!(matches!(life.store.reader().unwrap().load(), Err(StoreError::Broken(_))));
}

#[test]
fn a_file_is_opened_again_as_it_was_and_made_anew_for_another_log() {
    let folder = tempfile::tempdir().unwrap();
    let (log, other) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    let open = |log| Store::open(folder.path(), log, 16).unwrap();
    {
        let mut life = Life::new(open(log));
        life.is(Some(&state(1)));
        life.store.sync().unwrap();
    }
    {
        let loaded = open(log).reader().unwrap().load().unwrap();
        let slot = loaded.fold.index.by_uid(AGENT, "u").unwrap();
        assert_eq!(loaded.fold.index.get(slot).unwrap().stated, (1, 1));
        assert!(loaded.standing.position != Position::start());
    }
    assert!(open(other).reader().unwrap().load().unwrap().fold.index.is_empty());
    std::fs::write(folder.path().join("objects.redb"), b"not a database").unwrap();
    assert!(open(log).reader().unwrap().load().unwrap().fold.index.is_empty(), "damage is no end");
}

#[test]
fn a_cleared_store_is_empty_and_goes_on() {
    let mut life = in_memory();
    life.is(Some(&state(1)));
    life.store.clear().unwrap();
    assert_eq!((life.listed(), life.store.reader().unwrap().standing().unwrap()), (0, Standing::default()));
    life.number = 0;
    life.is(Some(&state(1)));
    assert_eq!(life.body_after(1), Some(state(1)));
}

proptest! {
    #[test]
    fn the_store_gives_what_a_list_of_all_states_gives(
        states in prop::collection::vec(prop::option::weighted(0.9, ".{0,200}"), 1..60),
        horizon in 0..60_u64,
    ) {
        let mut life = in_memory();
        for state in &states {
            life.is(state.as_ref().map(String::as_bytes));
        }
        let shard = life.store.reader().unwrap().partitions().of(AGENT);
        life.store.prune(&Position::of(Stream::Objects, shard, horizon), &life.index, None).unwrap();
        let kept = life.numbers();
        let last = states.len() as u64;
        let is_over = states.last().unwrap().is_none() && horizon >= last;
        let first = if is_over { last + 1 } else { horizon.clamp(1, last) };
        prop_assert_eq!(&kept, &(first..=last).rev().collect::<Vec<_>>());
        let mut newest: Option<&String> = None;
        for (number, state) in (1_u64..).zip(&states) {
            newest = state.as_ref().or(newest);
            if kept.contains(&number) {
                prop_assert_eq!(life.body_after(number), newest.map(|body| body.clone().into_bytes()));
            }
        }
    }
}
