//! What must not leave a cluster: the values of Secrets.
//!
//! Keys stay, values go. So do the values of annotations: client-side `kubectl apply` and other tools keep the whole
//! object in one, values included, and only those that are known to hold no copy stay. Where Helm is configured to keep its
//! releases in ConfigMaps, what a release holds goes as well, as the manifests and values in it are those of Secrets,
//! too. Other kinds are left as they are.

use ring::hmac;
use serde_json::Value;

/// What stands where a value stood.
pub const REDACTED: &str = "redacted";
/// Annotations that hold a copy of the whole object: of kubectl and Argo CD, kapp, and Rancher.
pub(crate) const COPIES: [&str; 3] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
];

/// Kinds of which values are redacted.
pub(crate) const SECRETS: [&str; 2] = ["Secret", "SecretList"];
/// Kinds of which releases of Helm are redacted.
pub(crate) const CONFIG_MAPS: [&str; 2] = ["ConfigMap", "ConfigMapList"];

/// Annotations of Secrets that hold no value of theirs.
const HARMLESS: [&str; 4] = [
    "kubernetes.io/service-account.name",
    "kubernetes.io/service-account.uid",
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
];
/// How others of these begin.
const HARMLESS_OF: [&str; 2] = ["cert-manager.io/", "kasbah.dev/"];

/// Makes markers from which equal values can be told from different ones by whoever holds no key: the marker is a
/// keyed hash over the object's identity, the key inside it and the value. The key should be random per agent
/// process and never leave it.
#[derive(Debug)]
pub struct Redactor {
    key: hmac::Key,
}

impl Redactor {
    /// A redactor for one secret key, at best 32 random bytes.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// Replaces a Secret's values by `redacted:<16 hexadecimal digits>`, so that a change remains visible.
    pub fn redact(&self, object: &mut Value) {
        let context: Vec<String> = ["/metadata/uid", "/metadata/namespace", "/metadata/name"]
            .into_iter()
            .map(|path| object.pointer(path).map(Value::to_string).unwrap_or_default())
            .collect();
        let context = context.join("\u{0}");
        redact_with(object, &mut |key, value| {
            let text = format!("{context}\u{0}{key}\u{0}{value}");
            let tag = hmac::sign(&self.key, text.as_bytes());
            let short: String = hex::encode(tag.as_ref()).chars().take(16).collect();
            Value::String(format!("{REDACTED}:{short}"))
        });
    }
}

/// Replaces a Secret's values by the fixed text [`REDACTED`]: nothing can be told from it, not even a change.
pub fn redact_secret(object: &mut Value) {
    redact_with(object, &mut |_, _| Value::String(REDACTED.to_owned()));
}

/// Whether the object is a core Secret, or a list of them.
#[must_use]
pub fn is_secret(object: &Value) -> bool {
    is_of(&SECRETS, object) && is_core(object)
}

fn is_of(kinds: &[&str], object: &Value) -> bool {
    object.get("kind").and_then(Value::as_str).is_some_and(|kind| kinds.contains(&kind))
}

fn is_core(object: &Value) -> bool {
    let version = object.get("apiVersion").and_then(Value::as_str);
    version.is_some_and(|version| !version.contains('/'))
}

fn is_config_map(object: &Value) -> bool {
    is_of(&CONFIG_MAPS, object) && is_core(object)
}

fn redact_with(object: &mut Value, marker: &mut dyn FnMut(&str, &Value) -> Value) {
    let redact = match (is_secret(object), is_config_map(object)) {
        (true, _) => redact_body,
        (_, true) => redact_release,
        _ => return,
    };
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        for item in items {
            redact(item, marker);
        }
    }
    redact(object, marker);
}

/// A release of Helm that it keeps in a ConfigMap.
fn redact_release(object: &mut Value, marker: &mut dyn FnMut(&str, &Value) -> Value) {
    let owner = object.pointer("/metadata/labels/owner").and_then(Value::as_str);
    if owner == Some("helm")
        && let Some(release) = object.pointer_mut("/data/release")
    {
        *release = marker("release", release);
    }
}

fn redact_body(object: &mut Value, marker: &mut dyn FnMut(&str, &Value) -> Value) {
    for field in ["data", "stringData"] {
        match object.get_mut(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(values)) => {
                for (key, value) in values.iter_mut() {
                    *value = marker(key, value);
                }
            }
            Some(malformed) => *malformed = marker(field, malformed),
        }
    }
    let annotations = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else { return };
    for (name, value) in annotations.iter_mut().filter(|(name, _)| !is_harmless(name)) {
        *value = marker(name, value);
    }
}

fn is_harmless(annotation: &str) -> bool {
    HARMLESS.contains(&annotation) || HARMLESS_OF.iter().any(|of| annotation.starts_with(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(password: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "db", "uid": "u", "annotations": {HARMLESS[0]: "stays", "cert-manager.io/issuer-name": "stays",
                "example.com/copy": password, COPIES[0]: password, COPIES[1]: password, COPIES[2]: password}},
            "data": {"password": password, "user": "cm9vdA=="}, "stringData": {"plain": password}})
    }

    #[test]
    fn no_value_is_left() {
        let mut object = secret("aHVudGVyMg==");
        redact_secret(&mut object);
        assert!(!object.to_string().contains("aHVudGVyMg=="), "{object}");
        assert_eq!(object["data"], json!({"password": REDACTED, "user": REDACTED}));
        assert_eq!(object["metadata"]["annotations"][HARMLESS[0]], "stays");
        assert_eq!(object["metadata"]["annotations"]["cert-manager.io/issuer-name"], "stays");
        assert_eq!(object["metadata"]["annotations"]["example.com/copy"], REDACTED);
        assert_eq!(object["type"], "Opaque");
        let mut list = json!({"apiVersion": "v1", "kind": "SecretList", "items": [secret("aHVudGVyMg==")]});
        redact_secret(&mut list);
        assert!(!list.to_string().contains("aHVudGVyMg=="), "{list}");
        let mut malformed =
            json!({"apiVersion": "v1", "kind": "Secret", "data": ["aHVudGVyMg=="], "stringData": null});
        redact_secret(&mut malformed);
        assert!(!malformed.to_string().contains("aHVudGVyMg=="), "{malformed}");
    }

    #[test]
    fn a_release_of_helm_goes_from_a_config_map_and_nothing_else() {
        let release = |owner: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"release": "H4sIA", "other": "stays"},
                "metadata": {"name": "sh.helm.release.v1.shop.v1", "labels": {"owner": owner, "name": "shop"}}})
        };
        let mut of_helm = release("helm");
        redact_secret(&mut of_helm);
        assert_eq!(of_helm["data"], json!({"release": REDACTED, "other": "stays"}));
        let mut list =
            json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": [release("helm"), release("me")]});
        redact_secret(&mut list);
        assert_eq!(list["items"][0]["data"]["release"], REDACTED);
        assert_eq!(list["items"][1], release("me"));
    }

    #[test]
    fn other_kinds_stay() {
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}),
            json!({"apiVersion": "example.com/v1", "kind": "Secret", "data": {"a": "b"}}),
            json!([1]),
        ] {
            let mut redacted = object.clone();
            redact_secret(&mut redacted);
            assert_eq!(redacted, object);
        }
    }

    #[test]
    fn keyed_markers_show_a_change_and_nothing_else() {
        let redactor = Redactor::new(b"a key of this process");
        let marked = |password: &str| {
            let mut object = secret(password);
            redactor.redact(&mut object);
            object
        };
        assert_eq!(marked("b25l"), marked("b25l"));
        assert_ne!(marked("b25l")["data"]["password"], marked("dHdv")["data"]["password"]);
        assert_eq!(marked("b25l")["data"]["user"], marked("dHdv")["data"]["user"]);
        // The same value under two keys, or for two processes, does not look the same.
        let one = marked("cm9vdA==");
        assert_ne!(one["data"]["password"], one["data"]["user"]);
        let mut other = secret("b25l");
        Redactor::new(b"another key").redact(&mut other);
        assert_ne!(other["data"]["password"], marked("b25l")["data"]["password"]);
    }
}
