//! Rows of changes by time.

use std::collections::BTreeSet;

use events::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::store::timeline::{self, Entry};

const OTHER: AgentId = AgentId(uuid::Uuid::from_u128(11));

fn uid(number: u64) -> Text {
    Text::from(uuid::Uuid::from_u128(number.into()).to_string().as_str())
}

/// The change of an object that was recorded at a second.
fn entry(agent: AgentId, second: u64, object: u64) -> Entry {
    Entry { recorded_at: at(second), sequence: second, agent, uid: uid(object), number: second + 1 }
}

fn add(store: &Store, entries: Vec<Entry>) {
    let writing = store.begin().unwrap();
    timeline::add(&writing, entries).unwrap();
    writing.commit().unwrap();
}

/// Sorted, as the order within a moment says nothing.
fn listed(store: &Store, agent: AgentId, until: Option<Timestamp>) -> Vec<Entry> {
    let found: Vec<Entry> =
        store.reader().unwrap().timeline_back(agent, until).unwrap().map(Result::unwrap).collect();
    assert!(found.is_sorted_by(|one, next| one.recorded_at >= next.recorded_at), "the newest come first");
    let mut found = found;
    found.sort();
    found
}

#[test]
fn changes_of_one_agent_fill_rows() {
    let store = Store::in_memory(16).unwrap();
    for second in 0..1_000 {
        add(&store, (0..2).map(|object| entry(AGENT, second, object)).collect());
    }
    add(&store, vec![entry(OTHER, 5, 1)]);
    let bytes: usize = {
        let writing = store.begin().unwrap();
        let table = writing.open_table(TIMELINE).unwrap();
        let sizes = table.iter().unwrap().map(|row| row.unwrap().1.value().len());
        let sizes: Vec<usize> = sizes.collect();
        assert!(sizes.iter().all(|size| *size < 4096 - 48), "{sizes:?}");
        assert!(sizes.len() < 17, "{} rows are full", sizes.len());
        sizes.iter().sum()
    };
    assert!(bytes < 2_000 * 24, "{bytes}");
    assert_eq!(listed(&store, AGENT, None).len(), 2_000);
    assert_eq!(listed(&store, AGENT, Some(at(9))).len(), 20);
    assert_eq!(listed(&store, OTHER, None), [entry(OTHER, 5, 1)]);
}

#[test]
fn many_gaps_may_be_recorded_at_one_moment_of_the_past() {
    let store = Store::in_memory(16).unwrap();
    let mut all: Vec<Entry> = (0..1_000).map(|second| entry(AGENT, second, 0)).collect();
    add(&store, all.clone());
    for some in 0..10 {
        let gaps: Vec<Entry> = (0..100).map(|number| entry(AGENT, 500, 1 + some * 100 + number)).collect();
        add(&store, gaps.clone());
        all.extend(gaps);
    }
    all.sort();
    assert_eq!(listed(&store, AGENT, None), all);
    let writing = store.begin().unwrap();
    let objects = (1..=500).map(uid).collect();
    timeline::take_away(&writing, AGENT, &objects, BTreeSet::from([(at(500), 500)])).unwrap();
    writing.commit().unwrap();
    all.retain(|entry| !objects.contains(&entry.uid));
    assert_eq!(listed(&store, AGENT, None), all);
}

proptest! {
    #[test]
    fn the_timeline_is_what_a_sorted_list_is(
        records in prop::collection::vec((prop::bool::weighted(0.8), 0..400_u64, 1..120_u64), 1..40),
        erased in prop::collection::btree_set(0..120_u64, 0..20),
        horizon in 0..50_u64,
    ) {
        let store = Store::in_memory(16).unwrap();
        let mut all: Vec<Entry> = Vec::new();
        for (second, (is_now, past, count)) in (0..).zip(records) {
            let second = if is_now { second } else { past.min(second) };
            let entries: Vec<Entry> = (0..count).map(|object| entry(AGENT, second, object)).collect();
            add(&store, entries.clone());
            all.extend(entries);
        }
        all.sort();
        prop_assert_eq!(listed(&store, AGENT, None), all.clone());
        let objects: BTreeSet<Text> = erased.into_iter().map(uid).collect();
        let of_them = all.iter().filter(|entry| objects.contains(&entry.uid));
        let moments = of_them.map(|entry| (entry.recorded_at, entry.sequence)).collect();
        let writing = store.begin().unwrap();
        timeline::take_away(&writing, AGENT, &objects, moments).unwrap();
        all.retain(|entry| !objects.contains(&entry.uid));
        let mut taken = Vec::new();
        loop {
            let some = timeline::take_oldest(&writing, AGENT, horizon, 200).unwrap();
            if some.is_empty() {
                break;
            }
            taken.extend(some);
        }
        writing.commit().unwrap();
        taken.sort();
        let rest = all.split_off(all.partition_point(|entry| entry.sequence <= horizon));
        prop_assert_eq!(taken, all);
        prop_assert_eq!(listed(&store, AGENT, None), rest);
    }
}
