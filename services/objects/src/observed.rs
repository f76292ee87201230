//! What an agent tells of a live object: its body without what must not leave the cluster and what only costs, the digest of that, and
//! who wrote to the object.

use std::cmp::Reverse;

use events::Timestamp;
use events::observation::{FieldWriter, SeenObject};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::digest::{Sha256, canonical_bytes, digest_of};
use crate::redact::{COPIES, redact_secret};

mod text;

pub use text::observe_text;

/// A live object as it is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Canonical JSON.
    pub body: String,
    /// SHA-256 over exactly the bytes of `body`.
    pub digest: Sha256,
    /// Who wrote to it, the newest first.
    pub writers: Vec<FieldWriter>,
}

/// Prunes a live object that states its kind: without `metadata.managedFields`, `metadata.resourceVersion`, values of Secrets, and
/// annotations that hold a copy of the object.
#[must_use]
pub fn observe(mut object: Value) -> Observed {
    redact_secret(&mut object);
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let writers = metadata.and_then(|metadata| {
        metadata.remove("resourceVersion");
        leave_copies_out(metadata);
        let entries = metadata.remove("managedFields")?;
        let read = |entry| Writer::deserialize(entry).unwrap_or_default();
        Some(newest_first(entries.as_array()?.iter().map(read).collect()))
    });
    let bytes = canonical_bytes(&object);
    let digest = digest_of(&bytes);
    // What JSON text was read from is UTF-8, and stays so.
    let body = String::from_utf8_lossy(&bytes).into_owned();
    Observed { body, digest, writers: writers.unwrap_or_default() }
}

fn leave_copies_out(metadata: &mut Map<String, Value>) {
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.retain(|name, _| !COPIES.contains(&name.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// An entry of managed fields; one that is not as the API server writes it says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Writer {
    manager: String,
    operation: String,
    subresource: String,
    time: Option<String>,
}

/// The entries of managed fields, the newest first; of two of the same time the later one in the list.
fn newest_first(entries: Vec<Writer>) -> Vec<FieldWriter> {
    let writer = |Writer { manager, operation, subresource, time }: Writer| {
        let at = time.and_then(|time| Timestamp::parse(&time).ok());
        FieldWriter { manager, operation, subresource, at }
    };
    let mut writers: Vec<_> = entries.into_iter().rev().map(writer).collect();
    writers.sort_by_key(|writer| Reverse(writer.at));
    writers.truncate(SeenObject::<String>::WRITERS);
    writers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::redact::REDACTED;

    #[test]
    fn what_only_costs_is_left_out_and_the_rest_stays() {
        let live = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"b": "1", "a": "ü"},
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "generation": 3,
                "annotations": {COPIES[0]: "{}", "mine": "stays"}, "managedFields": [{"manager": "kubectl"}]}});
        let observed = observe(live);
        assert_eq!(
            observed.body,
            "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"ü\",\"b\":\"1\"},\"kind\":\"ConfigMap\",\
             \"metadata\":{\"annotations\":{\"mine\":\"stays\"},\"generation\":3,\"name\":\"a\",\"uid\":\"u\"}}"
        );
        assert_eq!(observed.digest, digest_of(observed.body.as_bytes()));
    }

    #[test]
    fn a_write_that_changes_nothing_but_bookkeeping_keeps_the_digest() {
        let live = |version: &str, copy: &str, value: &str| {
            observe(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value},
                "metadata": {"name": "a", "resourceVersion": version, "annotations": {COPIES[1]: copy},
                    "managedFields": [{"manager": copy, "time": "2026-01-01T00:00:00Z"}]}}))
        };
        assert_eq!(live("1", "x", "v").digest, live("2", "y", "v").digest);
        assert_ne!(live("1", "x", "v").digest, live("1", "x", "w").digest);
        let bare = observe(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "v"}, "metadata": {"name": "a"}}),
        );
        assert_eq!(live("1", "x", "v").digest, bare.digest);
    }

    #[test]
    fn no_value_of_a_secret_is_left() {
        let secret = "aHVudGVyMg==";
        let observed = observe(json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "db", "annotations": {COPIES[0]: secret, COPIES[1]: secret, COPIES[2]: secret},
                "managedFields": [{"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z"}]},
            "data": {"password": secret}, "stringData": {"plain": secret}}));
        assert!(!observed.body.contains(secret), "{}", observed.body);
        let body: Value = serde_json::from_str(&observed.body).unwrap();
        assert_eq!(body["data"], json!({"password": REDACTED}));
        assert_eq!(body["metadata"], json!({"name": "db"}));
    }

    #[test]
    fn writers_are_told_from_the_newest_on() {
        let entry = |manager: &str, subresource: &str, time: &str| json!({"manager": manager, "operation": "Update", "subresource": subresource, "time": time});
        let writers = |entries: Vec<Value>| observe(json!({"metadata": {"managedFields": entries}})).writers;
        let told = writers(vec![
            entry("kubectl", "", "2026-01-01T00:00:00Z"),
            entry("kubelet", "status", "2026-01-01T00:00:02Z"),
            entry("kube-controller-manager", "", "2026-01-01T00:00:01Z"),
        ]);
        let managers: Vec<&str> = told.iter().map(|writer| writer.manager.as_str()).collect();
        assert_eq!(managers, ["kubelet", "kube-controller-manager", "kubectl"]);
        let newest = &told[0];
        assert_eq!((newest.manager.as_str(), newest.subresource.as_str()), ("kubelet", "status"));
        assert_eq!(newest.at, Some(Timestamp::parse("2026-01-01T00:00:02Z").unwrap()));
        let same = "2026-01-01T00:00:00Z";
        let later = writers(vec![entry("a", "", same), entry("b", "", same)]);
        assert_eq!(later[0].manager, "b");
        let timeless = writers(vec![json!({"manager": "old"})]);
        assert_eq!((timeless[0].manager.as_str(), timeless[0].at), ("old", None));
        assert_eq!(writers(vec![]), []);
        assert_eq!(observe(json!({"metadata": {}})).writers, []);
        let many = (0..20).map(|_| entry("a", "", same)).collect();
        assert_eq!(writers(many).len(), SeenObject::<String>::WRITERS);
    }
}
