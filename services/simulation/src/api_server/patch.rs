//! Patches, and stating a field.

use serde_json::{Value, json};

use super::refusal::Refusal;

/// States a field, with the maps on the way to it.
pub(super) fn state(object: &mut Value, path: &[&str], value: Value) {
    let Some((name, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut() {
        state(map.entry(*name).or_insert(Value::Null), rest, value);
    }
}

/// RFC 7386.
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let Some(into) = into.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            into.remove(key);
        } else {
            merge(into.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// One operation of RFC 6902, of those that replace a field.
pub(super) fn edit(object: &mut Value, operation: &Value) -> Result<(), Refusal> {
    let field = |key: &str| operation.get(key).and_then(Value::as_str).unwrap_or_default();
    let path: Vec<&str> = field("path").trim_start_matches('/').split('/').collect();
    match field("op") {
        "replace" => {
            state(object, &path, operation.get("value").cloned().unwrap_or_default());
            Ok(())
        }
        other => Err(Refusal::not_simulated(other)),
    }
}
