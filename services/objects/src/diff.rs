//! What differs between two states of an object, field by field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::digest::Status;
use crate::fields::{FieldPath, Manager, Segment, managers_of};

/// One field that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    /// Where, such as `spec.template.spec.containers[name=web].image`.
    pub path: FieldPath,
    /// What was there, `None` if nothing.
    pub before: Option<Value>,
    /// What is there now, `None` if nothing.
    pub after: Option<Value>,
}

/// Metadata that the API server writes by itself.
const BOOKKEEPING: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// Fields by which the items of a list are told apart, the first that fits all items of both sides.
const KEYS: &[&[&str]] = &[
    &["name"],
    &["containerPort", "protocol"],
    &["port", "protocol"],
    &["containerPort"],
    &["port"],
    &["type"],
    &["key"],
    &["mountPath"],
    &["devicePath"],
    &["ip"],
    &["uid"],
    &["host"],
    &["path"],
    &["topologyKey", "whenUnsatisfiable"],
];

/// All fields that differ, in the order of `before`, then what is new. A whole value that appears or disappears is
/// one change. Leaves out what the API server writes by itself (`managedFields`, `resourceVersion`, `generation`,
/// `uid`, `creationTimestamp`) and, unless covered, the status.
#[must_use]
pub fn diff(before: &Value, after: &Value, status: Status) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(&FieldPath::default(), before, after, &mut changes);
    changes.retain(|change| counts(&change.path, status));
    changes
}

fn counts(path: &FieldPath, status: Status) -> bool {
    match path.0.as_slice() {
        [Segment::Field(top), ..] if top == "status" => status == Status::Covered,
        [Segment::Field(top), Segment::Field(field), ..] if top == "metadata" => {
            !BOOKKEEPING.contains(&field.as_str())
        }
        _ => true,
    }
}

fn compare(path: &FieldPath, before: &Value, after: &Value, changes: &mut Vec<FieldChange>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => compare_maps(path, before, after, changes),
        (Value::Array(before), Value::Array(after)) => compare_lists(path, before, after, changes),
        _ if same(before, after) => {}
        _ => changes.push(FieldChange {
            path: path.clone(),
            before: Some(before.clone()),
            after: Some(after.clone()),
        }),
    }
}

/// Equal, where `1` and `1.0` are the same number.
fn same(left: &Value, right: &Value) -> bool {
    left == right || (left.is_number() && right.is_number() && left.as_f64() == right.as_f64())
}

fn compare_maps(
    path: &FieldPath,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    changes: &mut Vec<FieldChange>,
) {
    for (key, old) in before {
        let path = path.child(Segment::Field(key.clone()));
        match after.get(key) {
            Some(new) => compare(&path, old, new, changes),
            None => changes.push(FieldChange { path, before: Some(old.clone()), after: None }),
        }
    }
    for (key, new) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        let path = path.child(Segment::Field(key.clone()));
        changes.push(FieldChange { path, before: None, after: Some(new.clone()) });
    }
}

fn compare_lists(path: &FieldPath, before: &[Value], after: &[Value], changes: &mut Vec<FieldChange>) {
    let keyed = KEYS.iter().find_map(|keys| Some((index_by(before, keys)?, index_by(after, keys)?)));
    let Some((before, after)) = keyed.filter(|_| !before.is_empty() && !after.is_empty()) else {
        return compare_places(path, before, after, changes);
    };
    for (key, (segment, old)) in &before {
        let path = path.child(segment.clone());
        match after.get(key) {
            Some((_, new)) => compare(&path, old, new, changes),
            None => changes.push(FieldChange { path, before: Some((*old).clone()), after: None }),
        }
    }
    for (_, (segment, new)) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        let path = path.child(segment.clone());
        changes.push(FieldChange { path, before: None, after: Some((*new).clone()) });
    }
}

fn compare_places(path: &FieldPath, before: &[Value], after: &[Value], changes: &mut Vec<FieldChange>) {
    for place in 0..before.len().max(after.len()) {
        let path = path.child(Segment::Index(place));
        match (before.get(place), after.get(place)) {
            (Some(old), Some(new)) => compare(&path, old, new, changes),
            (old, new) => changes.push(FieldChange { path, before: old.cloned(), after: new.cloned() }),
        }
    }
}

/// The items by their key fields, if every item has them as scalars and no two are alike.
fn index_by<'a>(items: &'a [Value], keys: &[&str]) -> Option<BTreeMap<String, (Segment, &'a Value)>> {
    let mut index = BTreeMap::new();
    for item in items {
        let pairs = keys
            .iter()
            .map(|key| {
                let value = item.as_object()?.get(*key)?;
                (value.is_string() || value.is_number()).then(|| ((*key).to_owned(), value.clone()))
            })
            .collect::<Option<Vec<_>>>()?;
        let text = pairs.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(",");
        if index.insert(text, (Segment::Key(pairs), item)).is_some() {
            return None;
        }
    }
    Some(index)
}

/// A field that a forced apply takes from another manager because the values differ.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenField {
    /// Where.
    pub path: FieldPath,
    /// The other manager that wrote it last.
    pub former: Manager,
    /// The value that it had.
    pub before: Value,
    /// The value that it gets.
    pub after: Value,
}

/// The fields of `desired` that another manager than `manager` holds at another value in `live`.
#[must_use]
pub fn taken_over(live: &Value, desired: &Value, manager: &str) -> Vec<TakenField> {
    diff(live, desired, Status::Ignored)
        .into_iter()
        .filter_map(|change| {
            let (before, after) = (change.before?, change.after?);
            let former = managers_of(live, &change.path)
                .into_iter()
                .find(|owner| owner.name != manager && owner.subresource.is_empty())?;
            Some(TakenField { path: change.path, former, before, after })
        })
        .collect()
}

#[cfg(test)]
mod tests;
