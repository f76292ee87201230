//! From a manifest as it stands in Git to the body that is applied.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use events::ObjectIdentity;
use events::digest::Sha256;
use objects::controlled::leave_to_controllers;
use objects::ownership::{self, MarkError, OwnerMark, Policies, PolicyError};
use serde_json::{Map, Value};
use thiserror::Error;

/// Annotation with the digest of the manifest that was applied last, so that the next process can tell what is applied already. Not on
/// Secrets: short values could be guessed from it.
pub const APPLIED_ANNOTATION: &str = "kasbah.dev/applied";
/// Annotation on an object that existed before us and was taken over.
pub const ADOPTED_ANNOTATION: &str = "kasbah.dev/adopted";

/// A manifest, ready to be sent.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The marked object.
    pub object: Value,
    /// What its annotations ask for.
    pub policies: Policies,
}

impl Prepared {
    /// The body of the request.
    #[must_use]
    pub fn body(&self) -> Bytes {
        Bytes::from(self.object.to_string())
    }
}

/// A manifest cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PrepareError {
    /// Not JSON.
    #[error("the manifest cannot be read: {0}")]
    Unreadable(String),
    /// It cannot carry our mark.
    #[error(transparent)]
    Mark(#[from] MarkError),
    /// An annotation means nothing.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// Leaves out what controllers write, fills in the namespace, marks the object, and reads its annotations.
///
/// # Errors
/// When the manifest cannot carry the mark, or an annotation of ours has no meaning.
pub fn prepare(
    manifest: &[u8],
    identity: &ObjectIdentity,
    digest: Sha256,
    owner: &OwnerMark,
    adopted: bool,
) -> Result<Prepared, PrepareError> {
    let mut object: Value =
        serde_json::from_slice(manifest).map_err(|error| PrepareError::Unreadable(error.to_string()))?;
    let policies = ownership::policies_of(&object)?;
    leave_to_controllers(&mut object);
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).ok_or(MarkError::NoIdentity)?;
    if identity.namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), Value::String(identity.namespace.clone()));
    }
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    let annotations = annotations.as_object_mut().ok_or(MarkError::NotAMapping { field: "annotations" })?;
    if !is_secret(identity) {
        annotations.insert(APPLIED_ANNOTATION.to_owned(), Value::String(digest.to_string()));
    }
    if adopted {
        annotations.insert(ADOPTED_ANNOTATION.to_owned(), Value::String("true".to_owned()));
    }
    ownership::mark(&mut object, owner)?;
    if is_secret(identity) {
        // Last, as it reads values.
        text_becomes_data(&mut object);
    }
    Ok(Prepared { object, policies })
}

/// Writes a Secret's texts as data, as the API server would. Applied as texts they would be write-only: a key that Git removes would stay in the
/// cluster, and nobody would see a change by hand. What is no text stays, for the API server to refuse.
fn text_becomes_data(secret: &mut Value) {
    let Some(secret) = secret.as_object_mut() else { return };
    let texts = match secret.get("stringData") {
        None => return,
        Some(Value::Null) => Map::new(),
        Some(Value::Object(texts)) if texts.values().all(Value::is_string) => texts.clone(),
        Some(_) => return,
    };
    if secret.get("data").is_some_and(|data| !data.is_null() && !data.is_object()) {
        return;
    }
    secret.remove("stringData");
    if texts.is_empty() {
        return;
    }
    let data = secret.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    if let Some(data) = data.as_object_mut() {
        for (key, text) in texts {
            data.insert(key, Value::String(STANDARD.encode(text.as_str().unwrap_or_default())));
        }
    }
}

/// Whether an identity names a core Secret.
#[must_use]
pub fn is_secret(identity: &ObjectIdentity) -> bool {
    identity.group.is_empty() && identity.kind == "Secret"
}

/// What an object in the cluster says about itself; of answers that hold metadata only as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveMark {
    /// Whose it is, if its mark is its own.
    pub owner: Option<OwnerMark>,
    /// What was applied last.
    pub applied: Option<Sha256>,
    /// It was taken over.
    pub adopted: bool,
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub version: u64,
    /// It is being deleted.
    pub terminating: bool,
    /// Git asked to keep it.
    pub keep: bool,
}

/// Reads the marks of a live object; `identity` is what it was asked for as.
#[must_use]
pub fn live_mark(live: &Value, identity: &ObjectIdentity) -> LiveMark {
    let metadata = live.get("metadata");
    let text = |key: &str| metadata.and_then(|metadata| metadata.get(key)?.as_str()).unwrap_or_default();
    let annotation = |key: &str| live.pointer("/metadata/annotations")?.get(key)?.as_str();
    LiveMark {
        owner: ownership::mark_of_identity(live, identity),
        applied: annotation(APPLIED_ANNOTATION).and_then(|digest| digest.parse().ok()),
        adopted: annotation(ADOPTED_ANNOTATION) == Some("true"),
        uid: text("uid").to_owned(),
        version: version_of(live),
        terminating: metadata.is_some_and(|metadata| metadata.get("deletionTimestamp").is_some()),
        keep: annotation(ownership::PRUNE_ANNOTATION) == Some("disabled"),
    }
}

/// The resource version as a number, by which versions of one object compare; 0 when there is none.
#[must_use]
pub fn version_of(live: &Value) -> u64 {
    let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owner() -> OwnerMark {
        OwnerMark { organization: "o".into(), agent: "a".into(), source: "s".into() }
    }

    fn identity(kind: &str, namespace: &str) -> ObjectIdentity {
        ObjectIdentity {
            group: String::new(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: "x".into(),
        }
    }

    #[test]
    fn what_is_applied_is_read_back() {
        let manifest =
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":null}}"#;
        let digest = Sha256::of(manifest);
        let prepared =
            prepare(manifest, &identity("ConfigMap", "shop"), digest, &owner(), true).expect("prepared");
        let mut live = prepared.object;
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["resourceVersion"] = json!("17");
        let mark = live_mark(&live, &identity("ConfigMap", "shop"));
        assert_eq!(mark.owner, Some(owner()));
        assert_eq!(
            (mark.applied, mark.adopted, mark.uid.as_str(), mark.version),
            (Some(digest), true, "u", 17)
        );
        assert!(!mark.terminating);
    }

    #[test]
    fn a_secret_carries_no_digest() {
        let manifest = br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"shop"}}"#;
        let prepared = prepare(manifest, &identity("Secret", "shop"), Sha256::of(manifest), &owner(), false)
            .expect("prepared");
        assert!(!prepared.object.to_string().contains(APPLIED_ANNOTATION));
    }

    #[test]
    fn a_secrets_texts_are_applied_as_data() {
        let prepared = |mut secret: Value| {
            let more = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
            secret.as_object_mut().expect("map").extend(more.as_object().cloned().expect("map"));
            let bytes = secret.to_string();
            let id = identity("Secret", "shop");
            let object = prepare(bytes.as_bytes(), &id, Sha256::of(bytes.as_bytes()), &owner(), false);
            let mut object = object.expect("prepared").object;
            let map = object.as_object_mut().expect("map");
            map.retain(|key, _| key.contains("ata") && key != "metadata");
            object
        };
        let both =
            json!({"data": {"user": "aGFyYm91cg==", "code": "bG9zZXM="}, "stringData": {"code": "wins"}});
        let merged = json!({"data": {"user": "aGFyYm91cg==", "code": "d2lucw=="}});
        assert_eq!(prepared(both), merged, "texts win");
        for data in [json!({}), json!({"data": null})] {
            let mut secret = data;
            secret["stringData"] = json!({"code": "wins", "none": ""});
            assert_eq!(prepared(secret), json!({"data": {"code": "d2lucw==", "none": ""}}));
        }
        for without in [json!(null), json!({})] {
            let plain = json!({"data": {"code": "d2lucw=="}});
            let mut secret = plain.clone();
            secret["stringData"] = without;
            assert_eq!(prepared(secret), plain);
        }
        for refused in [
            json!({"stringData": {"pin": 918_273}}),
            json!({"stringData": ["a"]}),
            json!({"data": "a", "stringData": {"a": "b"}}),
        ] {
            assert_eq!(prepared(refused.clone()), refused, "the API server has the words for it");
        }
        // Another group's kind of that name has fields of its own.
        let other = br#"{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"x"},"stringData":{"a":"b"}}"#;
        let id = ObjectIdentity { group: "example.com".into(), ..identity("Secret", "shop") };
        let object = prepare(other, &id, Sha256::of(other), &owner(), false).expect("prepared").object;
        assert_eq!(object["stringData"], json!({"a": "b"}));
    }

    #[test]
    fn a_cluster_object_loses_a_namespace_that_it_cannot_have() {
        let manifest =
            br#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","namespace":"shop"}}"#;
        let prepared = prepare(manifest, &identity("Namespace", ""), Sha256::of(manifest), &owner(), false)
            .expect("prepared");
        assert_eq!(prepared.object.pointer("/metadata/namespace"), None);
        assert!(live_mark(&prepared.object, &identity("Namespace", "")).owner.is_some());
    }

    #[test]
    fn what_cannot_be_prepared_says_why() {
        let digest = Sha256::of(b"");
        let id = identity("ConfigMap", "shop");
        let refused = |text: &str| {
            prepare(text.as_bytes(), &id, digest, &owner(), false).expect_err("refused").to_string()
        };
        assert!(refused("{").contains("cannot be read"));
        assert!(refused(r#"{"metadata":{"annotations":[1]}}"#).contains("metadata.annotations"));
        let text = refused(
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":{"kasbah.dev/prune":"no"}}}"#,
        );
        assert!(text.contains("allowed"), "{text}");
    }
}
