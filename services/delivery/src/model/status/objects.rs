//! The objects of a source: in numbers, the first that are not well, and page by page.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;

use events::SourceId;
use events::object::ObjectKey;
use events::requests::status::{
    Condition, ObjectCounts, ObjectDrift, ObjectHealth, ObjectStatus, ObjectTrouble, Reason, State,
};

use super::{condition, since};
use crate::model::seen::{HealthSeen, ObjectSeen};
use crate::model::{DeliveryState, Owned, SourceState};

/// What is wrong with one object, the worst first.
fn reason_of(seen: &ObjectSeen) -> (State, Reason) {
    if seen.failure.is_some() {
        return (State::OutOfSync, Reason::CorrectionFailed);
    }
    if seen.drift.is_some() {
        return (State::OutOfSync, Reason::Drift);
    }
    seen.health.as_ref().map_or((State::InSync, Reason::InSync), reason_of_health)
}

fn reason_of_health(health: &HealthSeen) -> (State, Reason) {
    match health.status.as_str() {
        "suspended" => (State::InSync, Reason::ObjectSuspended),
        // What nobody waits for is not on its way.
        "progressing" if health.optional => (State::InSync, Reason::ObjectProgressing),
        "progressing" => (State::Progressing, Reason::ObjectProgressing),
        "degraded" | "missing" => (State::Degraded, Reason::ObjectDegraded),
        _ => (State::Degraded, Reason::ObjectUnknown),
    }
}

/// All in numbers, and the first that are not well.
pub(super) fn roll_up(source: &SourceState, most: usize) -> (ObjectCounts, Vec<ObjectStatus>) {
    let mut counts = ObjectCounts {
        owned: u32::try_from(source.inventory.len()).unwrap_or(u32::MAX),
        ..ObjectCounts::default()
    };
    let mut not_well: Vec<(&ObjectKey, &ObjectSeen, State)> = Vec::new();
    for (key, seen) in &source.known.objects {
        let (state, reason) = reason_of(seen);
        let counter = match (state, reason) {
            (_, Reason::CorrectionFailed) => &mut counts.failed,
            (_, Reason::Drift) => &mut counts.drifted,
            (_, Reason::ObjectSuspended) => &mut counts.suspended,
            (_, Reason::ObjectProgressing) => &mut counts.progressing,
            _ => &mut counts.degraded,
        };
        *counter = counter.saturating_add(1);
        let holds = |health: &HealthSeen| !health.optional && health.status != "suspended";
        if seen.health.as_ref().is_some_and(holds) {
            counts.holding = counts.holding.saturating_add(1);
        }
        not_well.push((key, seen, state));
    }
    not_well.sort_by_key(|(key, _, state)| (Reverse(*state), *key));
    let first = not_well.into_iter().take(most);
    let first = first.filter_map(|(key, seen, _)| of_both(source.inventory.get(key), Some(seen))).collect();
    (counts, first)
}

/// `None`: neither knows it.
fn of_both(owned: Option<&Owned>, seen: Option<&ObjectSeen>) -> Option<ObjectStatus> {
    let identity = owned.map(|owned| &owned.identity).or(seen.map(|seen| &seen.identity))?;
    let drift = seen.and_then(|seen| seen.drift.as_ref());
    let failure = seen.and_then(|seen| seen.failure.as_ref());
    let health = seen.and_then(|seen| seen.health.as_ref());
    Some(ObjectStatus {
        identity: identity.clone(),
        state: seen.map_or(State::InSync, |seen| reason_of(seen).0),
        health: health.map(|health| ObjectHealth {
            status: health.status.clone(),
            message: health.message.clone(),
            since: health.since,
            optional: health.optional,
        }),
        drift: drift.map(|drift| ObjectDrift {
            since: drift.since,
            deleted: drift.deleted,
            fields: drift.fields.clone(),
        }),
        failure: failure.map(|seen| ObjectTrouble {
            message: seen.failure.message.clone(),
            file: seen.failure.file.clone(),
            line: seen.failure.line,
            since: seen.since,
            retry_at: seen.retry_at,
        }),
        written: owned.and_then(|owned| owned.written),
        owned: owned.is_some(),
        adopted: owned.is_some_and(|owned| owned.adopted),
        kept: owned.and_then(|owned| owned.kept.clone()),
        extra: Vec::new(),
    })
}

/// What single objects make of their source: one condition for each kind of trouble, which names the first.
pub(super) fn conditions(source: &SourceState) -> Vec<Condition> {
    let objects = || source.known.objects.values();
    let mut conditions = Vec::new();
    let corrections: Vec<&ObjectSeen> =
        objects().filter(|seen| seen.failure.as_ref().is_some_and(|failure| failure.run.is_none())).collect();
    if let Some(first) = corrections.first().and_then(|seen| seen.failure.as_ref()) {
        let message = format!(
            "{} cannot be corrected: {}{}",
            first.failure.identity,
            first.failure.message,
            more(corrections.len())
        );
        let failures = || corrections.iter().filter_map(|seen| seen.failure.as_ref());
        let out = condition(State::OutOfSync, Reason::CorrectionFailed, message);
        let retry_at = failures().filter_map(|failure| failure.retry_at).min();
        let began = failures().map(|failure| failure.since).min();
        conditions.push(Condition { retry_at, ..since(began, out) });
    }
    let drifted: Vec<&ObjectSeen> = objects().filter(|seen| seen.drift.is_some()).collect();
    if let Some((first, drift)) = drifted.first().and_then(|seen| Some((seen, seen.drift.as_ref()?))) {
        let what = if drift.deleted { "was deleted" } else { "was changed" };
        let by = drift.fields.first().map(|field| format!(" by {}", field.manager)).unwrap_or_default();
        let message = format!("{} {what}{by}{}", first.identity, more(drifted.len()));
        let began = drifted.iter().filter_map(|seen| seen.drift.as_ref()).map(|drift| drift.since).min();
        conditions.push(since(began, condition(State::OutOfSync, Reason::Drift, message)));
    }
    for reason in [Reason::ObjectDegraded, Reason::ObjectUnknown, Reason::ObjectProgressing] {
        conditions.extend(of_health(source, reason));
    }
    conditions
}

/// The health of objects, whatever else is wrong with them.
fn of_health(source: &SourceState, reason: Reason) -> Option<Condition> {
    let mut those: Vec<(&ObjectSeen, &HealthSeen, State)> = source
        .known
        .objects
        .values()
        .filter_map(|seen| Some((seen, seen.health.as_ref()?)))
        .map(|(seen, health)| (seen, health, reason_of_health(health)))
        .filter(|(.., (state, of))| *of == reason && *state != State::InSync)
        .map(|(seen, health, (state, _))| (seen, health, state))
        .collect();
    those.sort_by_key(|(_, health, _)| health.optional);
    let (first, health, state) = those.first()?;
    let why = if health.message.is_empty() { &health.status } else { &health.message };
    let message = format!("{}: {why}{}", first.identity, more(those.len()));
    let began = those.iter().map(|(_, health, _)| health.since).min();
    Some(since(began, condition(*state, reason, message)))
}

fn more(all: usize) -> String {
    if all > 1 { format!(" (and {} more)", all - 1) } else { String::new() }
}

/// The objects of a source behind a key, owned and not, so many at most, in the order of their keys; `None` when there is no such source.
#[must_use]
pub fn objects_behind(
    state: &DeliveryState,
    source: SourceId,
    after: Option<&ObjectKey>,
    most: usize,
) -> Option<Vec<(ObjectKey, ObjectStatus)>> {
    let known = state.sources.get(&source)?;
    let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let mut keys: BTreeSet<&ObjectKey> =
        known.inventory.range::<ObjectKey, _>(range).map(|(key, _)| key).take(most).collect();
    keys.extend(known.known.objects.range::<ObjectKey, _>(range).map(|(key, _)| key).take(most));
    let objects = keys.into_iter().take(most).filter_map(|key| {
        let status = of_both(known.inventory.get(key), known.known.objects.get(key))?;
        let extra = known.known.extra.get(key).cloned().unwrap_or_default();
        Some((key.clone(), ObjectStatus { extra, ..status }))
    });
    Some(objects.collect())
}
