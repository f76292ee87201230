//! Writing what happened to objects.

use std::collections::BTreeMap;

use bytes::Bytes;
use events::AgentId;
use redb::WriteTransaction;

use super::chain::{Chain, StoredChange};
use super::keys::{change_key, object_key};
use super::timeline::{self, Entry};
use super::{CHANGES, RECENT, StoreError, get, put};
use crate::delta::BodyBefore;
use crate::model::{Change, Text, What};

/// Writes changes, in their order.
pub(super) fn write_changes(writing: &WriteTransaction, changes: &[Change]) -> Result<(), StoreError> {
    let mut of_objects: BTreeMap<(AgentId, &Text), Vec<&Change>> = BTreeMap::new();
    let mut of_agents: BTreeMap<AgentId, Vec<Entry>> = BTreeMap::new();
    for change in changes {
        of_objects.entry((change.agent, &change.uid)).or_default().push(change);
        of_agents.entry(change.agent).or_default().push(Entry {
            recorded_at: change.recorded_at,
            sequence: change.sequence,
            agent: change.agent,
            uid: change.uid.clone(),
            number: change.number,
        });
    }
    for ((agent, uid), changes) in of_objects {
        add_to_object(writing, &object_key(agent, uid), &changes)?;
    }
    of_agents.into_values().try_for_each(|entries| timeline::add(writing, entries))
}

/// Adds changes to an object's newest row. One that is full is kept as it is under its last number, and another one begins.
fn add_to_object(writing: &WriteTransaction, object: &[u8], changes: &[&Change]) -> Result<(), StoreError> {
    let row = get(writing, RECENT, object)?;
    let mut newest = row.map(|row| Ok::<_, StoreError>((Chain::read(&row)?, row))).transpose()?;
    for change in changes {
        let (stored, body) = next(newest.as_ref().and_then(|(chain, _)| chain.body.as_ref()), change);
        let Some((chain, row)) = &mut newest else {
            newest = Some(begun(&stored, body));
            continue;
        };
        match chain.push(&stored, body.as_ref()) {
            Some(longer) => *row = longer,
            None => {
                put(writing, CHANGES, &change_key(object, chain.number()), row)?;
                newest = Some(begun(&stored, body));
            }
        }
    }
    newest.map(|(_, row)| put(writing, RECENT, object, &row)).transpose()?;
    Ok(())
}

/// A row of one change.
fn begun(change: &StoredChange, body: Option<Bytes>) -> (Chain, Vec<u8>) {
    let chain = Chain::of(std::slice::from_ref(change), body);
    let row = chain.row();
    (chain, row)
}

/// A change as it is stored behind a state, and the body after it.
fn next(before: Option<&Bytes>, change: &Change) -> (StoredChange, Option<Bytes>) {
    let is_other = matches!(change.what, What::FirstSeen | What::Created | What::Changed);
    let (kept, body) = match (before, &change.body) {
        (Some(before), Some(body)) => (BodyBefore::delta(before, body), Some(body.clone())),
        (None, Some(body)) => (BodyBefore::Unknown, Some(body.clone())),
        (Some(before), None) if is_other => (BodyBefore::Whole(before.clone()), None),
        (before, None) => (BodyBefore::Same, before.cloned()),
    };
    let stored = StoredChange {
        number: change.number,
        sequence: change.sequence,
        recorded_at: change.recorded_at,
        seen_at: change.seen_at,
        not_before: change.not_before,
        what: change.what,
        writer: change.writer.clone(),
        health: change.health,
        is_listed: true,
        before: kept,
    };
    (stored, body)
}
