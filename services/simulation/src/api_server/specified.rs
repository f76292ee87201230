//! Kinds with a spec and a status: whoever writes the one leaves the other alone, and a generation counts what was wanted. A Deployment's
//! annotations are wanted as well, as its controller hands them on.

use serde_json::{Value, json};

use super::asked::Place;
use super::patch::state;

/// The part that controllers write.
pub(super) const STATUS: &str = "status";

/// What is set where a manifest leaves it out, as far as anybody here looks at it.
const DEFAULTS: [(&str, u64); 2] = [("replicas", 1), ("progressDeadlineSeconds", 600)];

/// A write to the object itself: its status stays as it is, whatever the writer says of it.
pub(super) fn keep_status(place: &Place, live: Option<&Value>, new: &mut Value) {
    let Some(object) = new.as_object_mut().filter(|_| place.kind.has_status()) else { return };
    match live.and_then(|live| live.get(STATUS)) {
        Some(status) => object.insert(STATUS.to_owned(), status.clone()),
        None => object.remove(STATUS),
    };
}

/// A write to the status: all else stays as it is.
pub(super) fn with_status(live: &Value, status: Value) -> Value {
    let mut new = live.clone();
    state(&mut new, &[STATUS], status);
    new
}

/// States the defaults, and which spec this is.
pub(super) fn count_generation(place: &Place, live: Option<&Value>, new: &mut Value) {
    if !place.kind.has_status() {
        return;
    }
    for (field, value) in DEFAULTS {
        if new.pointer(&format!("/spec/{field}")).is_none_or(Value::is_null) {
            state(new, &["spec", field], json!(value));
        }
    }
    let generation = match live {
        None => {
            state(new, &[STATUS], json!({}));
            1
        }
        Some(live) => {
            let before = live.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or(0);
            let differs = |path: &str| live.pointer(path) != new.pointer(path);
            before + u64::from(differs("/spec") || differs("/metadata/annotations"))
        }
    };
    state(new, &["metadata", "generation"], json!(generation));
}
