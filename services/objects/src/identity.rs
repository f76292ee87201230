//! Which object is meant.

use events::object::ObjectKey;
use serde_json::Value;

pub use events::object::ObjectIdentity as Identity;

/// Splits `apps/v1` into group and version; the core group is empty. `None` when there is more than one slash or
/// an empty part.
#[must_use]
pub fn split_api_version(api_version: &str) -> Option<(&str, &str)> {
    let (group, version) = match api_version.split_once('/') {
        Some((group, version)) if !group.is_empty() => (group, version),
        Some(_) => return None,
        None => ("", api_version),
    };
    (!version.is_empty() && !version.contains('/')).then_some((group, version))
}

/// The identity that an object states about itself: `apiVersion`, `kind`, `metadata.namespace`, `metadata.name`.
/// `None` when one of them is missing or not text (the namespace may be missing). Objects inside a list answer of
/// an API server lack `apiVersion` and `kind`: put them in first.
#[must_use]
pub fn identity_of(object: &Value) -> Option<Identity> {
    let (group, version) = split_api_version(object.get("apiVersion")?.as_str()?)?;
    let metadata = object.get("metadata")?;
    Some(Identity {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: object.get("kind")?.as_str().filter(|kind| !kind.is_empty())?.to_owned(),
        namespace: metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().to_owned(),
        name: metadata.get("name")?.as_str().filter(|name| !name.is_empty())?.to_owned(),
    })
}

/// The key of the object, with `default_namespace` where the identity has no namespace.
///
/// Only right for namespaced kinds, and for telling duplicates apart, where a cluster-scoped object merely gets
/// the same namespace each time.
#[must_use]
pub fn key_in(identity: &Identity, default_namespace: &str) -> ObjectKey {
    let mut key = identity.key();
    if key.namespace.is_empty() {
        default_namespace.clone_into(&mut key.namespace);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn api_versions_are_split() {
        let rows = [
            ("v1", Some(("", "v1"))),
            ("apps/v1", Some(("apps", "v1"))),
            ("a.b/v1", Some(("a.b", "v1"))),
            ("", None),
            ("/v1", None),
            ("apps/", None),
            ("a/b/c", None),
        ];
        for (text, expected) in rows {
            assert_eq!(split_api_version(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_object_states_its_identity() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"}});
        let identity = identity_of(&object).expect("complete");
        assert_eq!(identity.to_string(), "apps/v1 Deployment shop/web");
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        let identity = identity_of(&object).expect("complete");
        assert_eq!(identity.to_string(), "v1 Namespace shop");
        assert_eq!(key_in(&identity, "default").namespace, "default");
        for broken in [
            json!({"kind": "Namespace", "metadata": {"name": "shop"}}),
            json!({"apiVersion": "v1", "metadata": {"name": "shop"}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": 5}}),
            json!({"apiVersion": 1, "kind": "Namespace", "metadata": {"name": "shop"}}),
            json!([]),
        ] {
            assert_eq!(identity_of(&broken), None, "{broken}");
        }
    }
}
