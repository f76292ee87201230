//! Whose an object is, and what its author asks for.
//!
//! The owner mark is a label, so that an agent can watch what it owns with a selector, and an annotation that
//! names organization, agent, source **and the object itself**. Controllers and people copy labels and
//! annotations to other objects (a Service's labels to its EndpointSlices, a Deployment's annotations to its
//! ReplicaSets); a mark counts only on the object that it names, so a copy owns nothing.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::identity::{Identity, identity_of};

/// Label with the id of the manifest source; at most 63 characters, as every label's value.
pub const SOURCE_LABEL: &str = "kasbah.dev/source";
/// Annotation with the full mark: `<organization>/<agent>/<source>/<group>/<kind>/<namespace>/<name>`.
pub const OWNER_ANNOTATION: &str = "kasbah.dev/owner";
/// Annotation in Git: `disabled` keeps the object in the cluster after it left the source. Default `enabled`.
pub const PRUNE_ANNOTATION: &str = "kasbah.dev/prune";
/// Annotation in Git: `on-immutable` lets the agent delete and create the object again when a change touches an
/// immutable field. Default `never`.
pub const REPLACE_ANNOTATION: &str = "kasbah.dev/replace";
/// Annotation in Git: who may own the object before it is taken: `must_match`, `adopt_if_no_inventory` or
/// `adopt_all`. Overrides the source's policy.
pub const ADOPT_ANNOTATION: &str = "kasbah.dev/adopt";

/// Which source of which agent an object belongs to. Ids, none of which holds a slash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerMark {
    /// The organization's id.
    pub organization: String,
    /// The agent's id.
    pub agent: String,
    /// The manifest source's id.
    pub source: String,
}

/// Marks an object as owned. Call it last: the mark names the object, so its namespace must be settled.
///
/// # Errors
/// When the object does not state its identity, or its labels or annotations are not mappings.
pub fn mark(object: &mut Value, owner: &OwnerMark) -> Result<(), MarkError> {
    let identity = identity_of(object).ok_or(MarkError::NoIdentity)?;
    let text = mark_text(owner, &identity);
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).ok_or(MarkError::NoIdentity)?;
    set(metadata, "labels", SOURCE_LABEL, owner.source.clone())?;
    set(metadata, "annotations", OWNER_ANNOTATION, text)
}

/// An object cannot carry a mark.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MarkError {
    /// `apiVersion`, `kind` or `metadata.name` is missing.
    #[error("the object does not state apiVersion, kind and name")]
    NoIdentity,
    /// Labels or annotations are something else than a mapping.
    #[error("metadata.{field} is not a mapping")]
    NotAMapping {
        /// `labels` or `annotations`.
        field: &'static str,
    },
}

fn set(
    metadata: &mut Map<String, Value>,
    field: &'static str,
    key: &str,
    value: String,
) -> Result<(), MarkError> {
    let slot = metadata.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    let map = slot.as_object_mut().ok_or(MarkError::NotAMapping { field })?;
    map.insert(key.to_owned(), Value::String(value));
    Ok(())
}

/// Takes the mark off an object, as when a source is removed and its objects stay.
pub fn unmark(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata") else { return };
    for (field, key) in [("labels", SOURCE_LABEL), ("annotations", OWNER_ANNOTATION)] {
        if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            map.remove(key);
        }
    }
}

/// The owner of a live object that states its `apiVersion` and `kind`; see [`mark_of_identity`].
#[must_use]
pub fn mark_of(object: &Value) -> Option<OwnerMark> {
    mark_of_identity(object, &identity_of(object)?)
}

/// The owner of a live object, for objects of a list answer, which lack `apiVersion` and `kind`.
///
/// `None` when there is no mark, when label and annotation disagree, or when the mark was copied from another
/// object. The API version does not take part.
#[must_use]
pub fn mark_of_identity(object: &Value, identity: &Identity) -> Option<OwnerMark> {
    let label = object.pointer("/metadata/labels")?.get(SOURCE_LABEL)?.as_str()?;
    let text = annotation(object, OWNER_ANNOTATION)?.as_str()?;
    let mut parts = text.splitn(4, '/');
    let mut next = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
    let owner = OwnerMark { organization: next()?, agent: next()?, source: next()? };
    (owner.source == label && mark_text(&owner, identity) == text).then_some(owner)
}

fn mark_text(owner: &OwnerMark, of: &Identity) -> String {
    let OwnerMark { organization, agent, source } = owner;
    format!("{organization}/{agent}/{source}/{}/{}/{}/{}", of.group, of.kind, of.namespace, of.name)
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.pointer("/metadata/annotations")?.get(key)
}

/// Whether an object may be pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prune {
    /// Pruned when it leaves the source.
    #[default]
    Enabled,
    /// Stays in the cluster.
    Disabled,
}

/// Whether an object may be deleted and created again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replace {
    /// A change of an immutable field is an error.
    #[default]
    Never,
    /// A change of an immutable field replaces the object.
    OnImmutable,
}

/// Whose objects may be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopt {
    /// Only an object that is marked as this source's already.
    MustMatch,
    /// Also one that nobody has marked.
    IfNoInventory,
    /// Any object, another owner's included.
    All,
}

/// What the annotations of an object in Git ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policies {
    /// From [`PRUNE_ANNOTATION`].
    pub prune: Prune,
    /// From [`REPLACE_ANNOTATION`].
    pub replace: Replace,
    /// From [`ADOPT_ANNOTATION`]; `None`: the source's policy.
    pub adopt: Option<Adopt>,
}

/// A policy annotation has a value that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the annotation {annotation} is {value}, allowed: {allowed}")]
pub struct PolicyError {
    /// The annotation's key.
    pub annotation: &'static str,
    /// Its value, as JSON.
    pub value: String,
    /// The values that it may have.
    pub allowed: &'static str,
}

/// Reads the policy annotations of an object.
///
/// # Errors
/// The first annotation whose value is not among the allowed ones.
pub fn policies_of(object: &Value) -> Result<Policies, PolicyError> {
    let mut policies = Policies::default();
    let wrong =
        |annotation, value: &Value, allowed| PolicyError { annotation, value: value.to_string(), allowed };
    if let Some(value) = annotation(object, PRUNE_ANNOTATION) {
        policies.prune = match value.as_str() {
            Some("enabled") => Prune::Enabled,
            Some("disabled") => Prune::Disabled,
            _ => return Err(wrong(PRUNE_ANNOTATION, value, "enabled, disabled")),
        };
    }
    if let Some(value) = annotation(object, REPLACE_ANNOTATION) {
        policies.replace = match value.as_str() {
            Some("never") => Replace::Never,
            Some("on-immutable") => Replace::OnImmutable,
            _ => return Err(wrong(REPLACE_ANNOTATION, value, "never, on-immutable")),
        };
    }
    if let Some(value) = annotation(object, ADOPT_ANNOTATION) {
        policies.adopt = Some(match value.as_str() {
            Some("must_match") => Adopt::MustMatch,
            Some("adopt_if_no_inventory") => Adopt::IfNoInventory,
            Some("adopt_all") => Adopt::All,
            _ => return Err(wrong(ADOPT_ANNOTATION, value, "must_match, adopt_if_no_inventory, adopt_all")),
        });
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owner() -> OwnerMark {
        OwnerMark { organization: "org".into(), agent: "agent".into(), source: "source".into() }
    }

    fn config_map() -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "labels": null}})
    }

    #[test]
    fn a_mark_is_read_back() {
        let mut object = config_map();
        mark(&mut object, &owner()).expect("marked");
        assert_eq!(object["metadata"]["labels"][SOURCE_LABEL], "source");
        assert_eq!(object["metadata"]["annotations"][OWNER_ANNOTATION], "org/agent/source//ConfigMap/shop/a");
        assert_eq!(mark_of(&object), Some(owner()));
        let again = object.clone();
        mark(&mut object, &owner()).expect("marked");
        assert_eq!(object, again);
        unmark(&mut object);
        assert_eq!(mark_of(&object), None);
    }

    #[test]
    fn another_version_of_the_api_keeps_the_mark() {
        let mut object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a", "namespace": "shop"}});
        mark(&mut object, &owner()).expect("marked");
        object["apiVersion"] = json!("autoscaling/v2");
        assert_eq!(mark_of(&object), Some(owner()));
    }

    #[test]
    fn a_copied_mark_owns_nothing() {
        let mut object = config_map();
        mark(&mut object, &owner()).expect("marked");
        for (path, value) in [
            ("/metadata/name", json!("b")),
            ("/metadata/namespace", json!("other")),
            ("/kind", json!("Secret")),
            ("/apiVersion", json!("example.com/v1")),
        ] {
            let mut copy = object.clone();
            *copy.pointer_mut(path).expect("there") = value;
            assert_eq!(mark_of(&copy), None, "{path}");
        }
        let mut half = object.clone();
        half["metadata"]["labels"] = json!({SOURCE_LABEL: "another"});
        assert_eq!(mark_of(&half), None);
        half["metadata"]["labels"] = json!({});
        assert_eq!(mark_of(&half), None);
        half = object;
        half["metadata"]["annotations"] = json!({OWNER_ANNOTATION: "org/agent"});
        assert_eq!(mark_of(&half), None);
    }

    #[test]
    fn what_cannot_be_marked_is_an_error() {
        assert_eq!(mark(&mut json!({"kind": "X"}), &owner()), Err(MarkError::NoIdentity));
        let mut object = config_map();
        object["metadata"]["annotations"] = json!("text");
        assert_eq!(mark(&mut object, &owner()), Err(MarkError::NotAMapping { field: "annotations" }));
    }

    #[test]
    fn policies_are_read_or_named() {
        let with = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        assert_eq!(policies_of(&json!({})), Ok(Policies::default()));
        assert_eq!(policies_of(&with(Value::Null)), Ok(Policies::default()));
        let all = with(json!({PRUNE_ANNOTATION: "disabled", REPLACE_ANNOTATION: "on-immutable",
            ADOPT_ANNOTATION: "adopt_all"}));
        let expected =
            Policies { prune: Prune::Disabled, replace: Replace::OnImmutable, adopt: Some(Adopt::All) };
        assert_eq!(policies_of(&all), Ok(expected));
        for annotation in [PRUNE_ANNOTATION, REPLACE_ANNOTATION, ADOPT_ANNOTATION] {
            for value in [json!("yes"), json!(true), Value::Null] {
                let error = policies_of(&with(json!({annotation: value}))).expect_err("refused");
                assert_eq!(error.annotation, annotation);
                assert!(error.to_string().contains("allowed: "), "{error}");
            }
        }
    }
}
