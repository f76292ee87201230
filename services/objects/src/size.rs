//! How large an object may be: the limits of an API server, so that what is too large for it is known where the file is read.

use serde_json::Value as Json;

/// Most text of one object that is stored, in bytes: etcd's limit of one request as it ships. However the API server encodes an
/// object, it takes no less than its text.
pub const STORED_BYTES: usize = 1_572_864;

/// Largest object as JSON, in bytes: an API server reads 3 MiB of a request. The rest is for what the agent adds.
pub const REQUEST_BYTES: usize = (3 << 20) - (64 << 10);

/// Most data of a ConfigMap or Secret, in bytes.
const DATA_BYTES: usize = 1 << 20;

/// Most bytes of all annotations of an object, keys and values.
const ANNOTATION_BYTES: usize = 256 << 10;

/// Why an API server would refuse an object for its size. `json_bytes` is the length of its JSON, `stored_bytes` the most text that is
/// stored.
#[must_use]
pub fn too_large(object: &Json, json_bytes: usize, stored_bytes: usize) -> Option<String> {
    let annotations: usize =
        entries(object, &["metadata", "annotations"]).map(|(key, value)| key.len() + text(value)).sum();
    if annotations > ANNOTATION_BYTES {
        return Some(format!(
            "its annotations have {annotations} bytes, more than the {ANNOTATION_BYTES} that an API server takes"
        ));
    }
    let data = data_bytes(object);
    if let Some(data) = data.filter(|data| *data > DATA_BYTES) {
        return Some(format!(
            "its data has {data} bytes, more than the {DATA_BYTES} that an API server takes"
        ));
    }
    // No text is longer than the JSON, and data is counted by itself, as it is stored without base64.
    let stored = if json_bytes > stored_bytes && data.is_none() { text(object) } else { 0 };
    if stored > stored_bytes {
        return Some(format!(
            "it has {stored} bytes, more than the {stored_bytes} that are stored of one object"
        ));
    }
    (json_bytes > REQUEST_BYTES).then(|| {
        format!("it has {json_bytes} bytes as JSON, more than the {REQUEST_BYTES} that an API server reads of a request")
    })
}

/// Bytes of the data of a ConfigMap or Secret, as an API server counts them; `None` for other objects.
fn data_bytes(object: &Json) -> Option<usize> {
    let is = |name: &str, expected: &str| object.get(name).and_then(Json::as_str) == Some(expected);
    let sum = |field: &str, size: fn(&Json) -> usize| {
        entries(object, &[field]).map(|(_, value)| size(value)).sum::<usize>()
    };
    if !is("apiVersion", "v1") {
        return None;
    }
    if is("kind", "ConfigMap") {
        return Some(sum("data", text) + sum("binaryData", decoded));
    }
    if is("kind", "Secret") {
        let plain: Vec<&str> = entries(object, &["stringData"]).map(|(key, _)| key).collect();
        let kept = entries(object, &["data"]).filter(|(key, _)| !plain.contains(key));
        return Some(sum("stringData", text) + kept.map(|(_, value)| decoded(value)).sum::<usize>());
    }
    None
}

fn entries<'a>(object: &'a Json, path: &[&str]) -> impl Iterator<Item = (&'a str, &'a Json)> {
    let map = path.iter().try_fold(object, |value, key| value.get(key)).and_then(Json::as_object);
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// Bytes of base64 once it is decoded.
fn decoded(value: &Json) -> usize {
    let text = value.as_str().unwrap_or_default().bytes();
    text.filter(|byte| !matches!(byte, b'=' | b'\r' | b'\n')).count() * 3 / 4
}

/// Bytes of all keys and values, without quotes and escapes.
fn text(value: &Json) -> usize {
    match value {
        Json::String(value) => value.len(),
        Json::Array(items) => items.iter().map(text).sum(),
        Json::Object(map) => map.iter().map(|(key, value)| key.len() + text(value)).sum(),
        Json::Null | Json::Bool(_) | Json::Number(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why(object: &Json) -> Option<String> {
        too_large(object, object.to_string().len(), STORED_BYTES)
    }

    #[test]
    fn each_limit_of_an_api_server_is_known() {
        let long = |bytes: usize| "x".repeat(bytes);
        let map = |data: Json| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
        let secret = |data: Json, plain: Json| json!({"apiVersion": "v1", "kind": "Secret", "data": data, "stringData": plain});
        let custom = |spec: Json| json!({"apiVersion": "a.b/v1", "kind": "ConfigMap", "data": spec});
        let rows = [
            (map(json!({"a": long(DATA_BYTES)})), None),
            (map(json!({"a": long(DATA_BYTES), "b": "x"})), Some("its data has 1048577 bytes")),
            // Escaped it is twice as long, which is stored by nobody.
            (map(json!({"a": "\"".repeat(DATA_BYTES)})), None),
            (secret(json!({"a": long(DATA_BYTES / 3 * 4)}), json!({})), None),
            (secret(json!({"a": long(DATA_BYTES / 3 * 4 + 400)}), json!({})), Some("its data has")),
            (secret(json!({"a": long(DATA_BYTES)}), json!({"a": long(DATA_BYTES)})), None),
            (
                secret(json!({"b": "eHh4"}), json!({"a": long(DATA_BYTES)})),
                Some("its data has 1048579 bytes"),
            ),
            (custom(json!({"a": long(STORED_BYTES - 100)})), None),
            (custom(json!({"a": long(STORED_BYTES)})), Some("more than the 1572864 that are stored")),
            (custom(json!({"a": "\u{1}".repeat(STORED_BYTES / 3)})), Some("as JSON")),
            (
                json!({"metadata": {"annotations": {"a": long(ANNOTATION_BYTES)}}}),
                Some("its annotations have 262145 bytes"),
            ),
            (json!({"metadata": {"annotations": {"a": long(ANNOTATION_BYTES - 1)}}}), None),
        ];
        for (object, expected) in rows {
            let shown: String = object.to_string().chars().take(80).collect();
            match (why(&object), expected) {
                (None, None) => {}
                (Some(found), Some(expected)) => assert!(found.contains(expected), "{shown}: {found}"),
                (found, expected) => panic!("{shown}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
