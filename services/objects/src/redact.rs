//! What must not leave a cluster: the values of Secrets.
//!
//! Keys stay, values go. So do the annotations in which client-side `kubectl apply` and other tools keep the
//! whole object, values included. Other kinds are left as they are.

use ring::hmac;
use serde_json::Value;

/// What stands where a value stood.
pub const REDACTED: &str = "redacted";
/// Annotations that hold a copy of the whole object: of kubectl and Argo CD, kapp, and Rancher.
const COPIES: [&str; 3] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
];

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
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    matches!(text("kind"), Some("Secret" | "SecretList"))
        && text("apiVersion").is_some_and(|v| !v.contains('/'))
}

fn redact_with(object: &mut Value, marker: &mut dyn FnMut(&str, &Value) -> Value) {
    if !is_secret(object) {
        return;
    }
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        for item in items {
            redact_body(item, marker);
        }
    }
    redact_body(object, marker);
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
    for name in COPIES {
        if let Some(value) = annotations.get_mut(name) {
            *value = marker(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(password: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "db", "uid": "u", "annotations": {"a": "stays", COPIES[0]: password, COPIES[1]: password, COPIES[2]: password}},
            "data": {"password": password, "user": "cm9vdA=="}, "stringData": {"plain": password}})
    }

    #[test]
    fn no_value_is_left() {
        let mut object = secret("aHVudGVyMg==");
        redact_secret(&mut object);
        assert!(!object.to_string().contains("aHVudGVyMg=="), "{object}");
        assert_eq!(object["data"], json!({"password": REDACTED, "user": REDACTED}));
        assert_eq!(object["metadata"]["annotations"]["a"], "stays");
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
