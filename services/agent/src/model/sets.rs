//! Sets of fields as `managedFields` has them (`FieldsV1`), as far as they are worked with here.

use serde_json::{Map, Value};

/// Adds all that is in `from`.
pub fn union(into: &mut Value, from: &Value) {
    let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) else { return };
    for (name, below) in from {
        match into.get_mut(name) {
            Some(known) => union(known, below),
            None => {
                into.insert(name.clone(), below.clone());
            }
        }
    }
}

/// Whether nothing is in a set.
#[must_use]
pub fn is_empty(set: &Value) -> bool {
    set.as_object().is_none_or(Map::is_empty)
}

/// What of a set an object has, and what it lacks.
#[must_use]
pub fn split(set: &Value, object: &Value) -> (Value, Value) {
    let (mut inside, mut outside) = (Map::new(), Map::new());
    for (name, below) in set.as_object().into_iter().flatten() {
        if name == "." {
            inside.insert(name.clone(), below.clone());
            continue;
        }
        let Some(value) = step(object, name) else {
            outside.insert(name.clone(), below.clone());
            continue;
        };
        if is_empty(below) {
            inside.insert(name.clone(), below.clone());
            continue;
        }
        let (within, without) = split(below, value);
        if !is_empty(&within) {
            inside.insert(name.clone(), within);
        }
        if !is_empty(&without) {
            outside.insert(name.clone(), without);
        }
    }
    (Value::Object(inside), Value::Object(outside))
}

/// What of a set another one lacks.
#[must_use]
pub fn minus(set: &Value, other: &Value) -> Value {
    let mut left = Map::new();
    for (name, below) in set.as_object().into_iter().flatten() {
        match other.get(name) {
            None => drop(left.insert(name.clone(), below.clone())),
            // Who has a field as a whole has all that is in it.
            Some(other) if is_empty(below) || is_empty(other) => {}
            Some(other) => {
                let below = minus(below, other);
                if !is_empty(&below) {
                    left.insert(name.clone(), below);
                }
            }
        }
    }
    Value::Object(left)
}

/// Takes what is in a set out of an object.
pub fn remove(object: &mut Value, set: &Value) {
    for (name, below) in set.as_object().into_iter().flatten() {
        let Some((form, told)) = name.split_at_checked(2) else { continue };
        let whole = is_empty(below) || below.get(".").is_some();
        match (form, object.as_object_mut()) {
            ("f:", Some(map)) if whole => drop(map.remove(told)),
            ("f:", Some(map)) => {
                if let Some(value) = map.get_mut(told) {
                    remove(value, below);
                }
            }
            _ => {
                let Some(items) = object.as_array_mut() else { continue };
                let Ok(told) = serde_json::from_str::<Value>(told) else { continue };
                match form {
                    "v:" => items.retain(|item| *item != told),
                    "k:" if whole => items.retain(|item| !has_keys(item, &told)),
                    "k:" => items
                        .iter_mut()
                        .filter(|item| has_keys(item, &told))
                        .for_each(|item| remove(item, below)),
                    _ => {}
                }
            }
        }
    }
}

/// The part of an object that one name of a set is about.
fn step<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let (form, told) = name.split_at_checked(2)?;
    if form == "f:" {
        return object.get(told);
    }
    let told: Value = serde_json::from_str(told).ok()?;
    let mut items = object.as_array()?.iter();
    match form {
        "k:" => items.find(|item| has_keys(item, &told)),
        "v:" => items.find(|item| **item == told),
        _ => None,
    }
}

/// Whether an item of a list has these key fields; one that it leaves out was defaulted.
fn has_keys(item: &Value, keys: &Value) -> bool {
    let Some(keys) = keys.as_object() else { return false };
    keys.iter().all(|(key, value)| item.get(key).is_none_or(|own| own == value))
        && keys.keys().any(|key| item.get(key).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> Value {
        json!({"f:spec": {"f:replicas": {}, "f:strategy": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}},
                "k:{\"containerPort\":81,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
            "f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}}})
    }

    #[test]
    fn a_set_is_split_by_what_an_object_has() {
        let object = json!({"spec": {"replicas": 2, "ports": [{"containerPort": 80}], "finalizers": ["a"]}});
        let (inside, outside) = split(&set(), &object);
        assert_eq!(
            inside,
            json!({"f:spec": {"f:replicas": {}, "f:finalizers": {"v:\"a\"": {}},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}})
        );
        assert_eq!(
            outside,
            json!({"f:spec": {"f:strategy": {}, "f:finalizers": {"v:\"b\"": {}},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {"f:protocol": {}},
                    "k:{\"containerPort\":81,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}})
        );
    }

    #[test]
    fn what_is_outside_is_taken_out_and_what_others_have_is_not() {
        let mut object = json!({"spec": {"replicas": 2, "strategy": {"type": "x"}, "finalizers": ["a", "b"],
            "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "protocol": "TCP"}]}});
        let theirs = json!({"f:spec": {"f:strategy": {"f:type": {}}, "f:replicas": {}}});
        remove(&mut object, &minus(&set(), &theirs));
        assert_eq!(
            object,
            json!({"spec": {"replicas": 2, "strategy": {"type": "x"}, "finalizers": [], "ports": []}})
        );
    }

    #[test]
    fn a_union_has_both() {
        let mut one = json!({"f:data": {"f:a": {}}});
        union(&mut one, &json!({"f:data": {"f:b": {}}, "f:x": {}}));
        assert_eq!(one, json!({"f:data": {"f:a": {}, "f:b": {}}, "f:x": {}}));
    }
}
