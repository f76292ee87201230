//! Reading `metadata.managedFields`: what is still ours, and what others took.
//!
//! Whoever changes or removes a field of ours takes it out of our set of fields, and whoever writes in our name changes the time of
//! our entry. So our entry as a whole tells whether anything of ours was touched, without a schema and without keeping values.

use events::digest::Sha256;
use events::observation::TakenField;
use objects::digest::canonical_bytes;
use objects::fields::{FieldPath, Segment};
use serde_json::{Map, Value, json};

use super::sets::union;
use crate::FIELD_MANAGER;

pub(super) fn entries(object: &Value) -> &[Value] {
    object.pointer("/metadata/managedFields").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn is_ours(entry: &Value) -> bool {
    text(entry, "manager") == FIELD_MANAGER
        && text(entry, "operation") == "Apply"
        && text(entry, "subresource").is_empty()
}

fn our_fields(object: &Value) -> Option<&Value> {
    entries(object).iter().find(|entry| is_ours(entry))?.get("fieldsV1")
}

/// Digest over our entries: changes exactly when a field of ours was touched.
#[must_use]
pub fn touch_mark(object: &Value) -> Option<Sha256> {
    let ours: Vec<Value> = entries(object).iter().filter(|entry| is_ours(entry)).cloned().collect();
    (!ours.is_empty()).then(|| Sha256::of(&canonical_bytes(&Value::Array(ours))))
}

/// Whether each field of a manifest, as we would apply it, is still ours in the live object. `false` also when that cannot be told.
#[must_use]
pub fn covers(live: &Value, manifest: &Value) -> bool {
    let Some(fields) = our_fields(live) else { return false };
    let mut lost = Vec::new();
    missing(fields, manifest, &FieldPath::default(), &mut lost);
    lost.iter().all(is_identity) && !exceeds(fields, manifest)
}

/// What every object states and nobody manages.
fn is_identity(path: &FieldPath) -> bool {
    let names: Vec<&str> = path
        .0
        .iter()
        .map(|segment| match segment {
            Segment::Field(name) => name.as_str(),
            Segment::Key(_) | Segment::Index(_) => "",
        })
        .collect();
    matches!(names.as_slice(), ["apiVersion" | "kind"] | ["metadata", "name" | "namespace"])
}

/// Whether a set of fields holds one that a manifest lacks.
fn exceeds(fields: &Value, manifest: &Value) -> bool {
    fields.as_object().into_iter().flatten().filter(|(name, _)| *name != ".").any(|(name, below)| {
        let Some((form, told)) = name.split_at_checked(2) else { return true };
        if form == "f:" {
            return manifest.get(told).is_none_or(|value| exceeds(below, value));
        }
        let Some(items) = manifest.as_array() else { return true };
        let set = Map::from_iter([(name.clone(), below.clone())]);
        !items.iter().any(|item| {
            item_fields(&set, item).is_some_and(|(_, below)| form == "v:" || !exceeds(below, item))
        })
    })
}

/// Paths of a manifest that a set of fields lacks.
fn missing(fields: &Value, manifest: &Value, path: &FieldPath, lost: &mut Vec<FieldPath>) {
    let Some(set) = fields.as_object() else { return lost.push(path.clone()) };
    // An empty set stands for the whole value.
    if set.is_empty() {
        return;
    }
    match manifest {
        Value::Object(map) => {
            for (name, value) in map {
                let path = path.child(Segment::Field(name.clone()));
                match set.get(&format!("f:{name}")) {
                    Some(below) => missing(below, value, &path, lost),
                    None => leaves(value, path, lost),
                }
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                match item_fields(set, item) {
                    Some((segment, below)) => missing(below, item, &path.child(segment), lost),
                    None => lost.push(path.child(Segment::Index(place))),
                }
            }
        }
        _ => {}
    }
}

/// A value that is not in a set at all, down to what has a value of its own.
fn leaves(value: &Value, path: FieldPath, lost: &mut Vec<FieldPath>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, below) in map {
                leaves(below, path.child(Segment::Field(name.clone())), lost);
            }
        }
        _ => lost.push(path),
    }
}

/// The set of fields of one list item, by its key fields or its value.
fn item_fields<'a>(set: &'a Map<String, Value>, item: &Value) -> Option<(Segment, &'a Value)> {
    set.iter().find_map(|(name, below)| {
        let (form, told) = name.split_at_checked(2)?;
        let told: Value = serde_json::from_str(told).ok()?;
        match form {
            "k:" => {
                let keys = told.as_object()?;
                // A key field that the manifest leaves out was defaulted.
                let fits = keys.iter().all(|(key, value)| item.get(key).is_none_or(|own| own == value));
                let pairs = keys.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                (fits && keys.keys().any(|key| item.get(key).is_some()))
                    .then_some((Segment::Key(pairs), below))
            }
            "v:" => (told == *item).then(|| (Segment::Key(vec![(String::new(), told)]), below)),
            _ => None,
        }
    })
}

/// Which fields of a manifest are not ours any more, and who has them: nobody where the field is gone and nobody says so.
#[must_use]
pub fn lost_fields(live: &Value, manifest: &Value) -> Vec<TakenField> {
    let mut lost = Vec::new();
    match our_fields(live) {
        Some(fields) => missing(fields, manifest, &FieldPath::default(), &mut lost),
        None => missing(&json!({".": {}}), manifest, &FieldPath::default(), &mut lost),
    }
    lost.retain(|path| !is_identity(path));
    let newest = newest_other(live);
    lost.into_iter()
        .map(|path| {
            let manager = objects::fields::managers_of(live, &path)
                .into_iter()
                // An autoscaler writes through the subresource `scale`.
                .find(|manager| {
                    manager.subresource != "status"
                        && !(manager.name == FIELD_MANAGER && manager.operation == "Apply")
                })
                .map(|manager| manager.name)
                .or_else(|| newest.clone())
                .unwrap_or_default();
            TakenField { path: path.to_string(), manager }
        })
        .collect()
}

/// Who wrote last, besides us.
fn newest_other(live: &Value) -> Option<String> {
    entries(live)
        .iter()
        .filter(|entry| !is_ours(entry) && text(entry, "subresource").is_empty())
        .max_by_key(|entry| text(entry, "time"))
        .map(|entry| text(entry, "manager").to_owned())
}

/// `managedFields` in which all fields are stated in one version of the object's API: the API server converts the whole object into the version
/// of each entry, which fails once that version lacks a field or is not served any more. `None` when all of them are.
#[must_use]
pub fn in_version(live: &Value, api_version: &str) -> Option<Value> {
    let group = |version: &str| version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    let is_older = |entry: &Value| {
        let version = text(entry, "apiVersion");
        version != api_version && group(version) == group(api_version)
    };
    if !entries(live).iter().any(is_older) {
        return None;
    }
    let mut all: Vec<Value> = Vec::new();
    for entry in entries(live) {
        let mut entry = entry.clone();
        if is_older(&entry)
            && let Some(entry) = entry.as_object_mut()
        {
            entry.insert("apiVersion".to_owned(), Value::from(api_version));
        }
        let same = |other: &&mut Value| {
            ["manager", "operation", "subresource", "apiVersion"]
                .into_iter()
                .all(|key| text(other, key) == text(&entry, key))
        };
        match all.iter_mut().find(same).and_then(|other| other.get_mut("fieldsV1")) {
            Some(fields) => union(fields, entry.get("fieldsV1").unwrap_or(&Value::Null)),
            None => all.push(entry),
        }
    }
    Some(Value::Array(all))
}

#[cfg(test)]
mod tests;
