//! When two contents are the same: canonical JSON and SHA-256 over it.
//!
//! Canonical means keys sorted by their UTF-8 bytes, no white space between tokens, and one spelling per number:
//! a float without a fraction that an integer can hold exactly is written as that integer.

pub use events::digest::Sha256;
use serde_json::{Map, Number, Value};

use crate::yaml::int_as_number;

/// Sorts all keys and gives every number its one spelling, so that serializing the result is canonical.
#[must_use]
pub fn canonicalize(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> = map.into_iter().collect();
            entries.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(entries.into_iter().map(|(key, value)| (key, canonicalize(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(canonicalize).collect()),
        Value::Number(number) if number.is_f64() => {
            Value::Number(number.as_f64().and_then(int_as_number).unwrap_or(number))
        }
        other => other,
    }
}

/// The canonical encoding of a value.
#[must_use]
pub fn canonical_bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(value, &mut bytes);
    bytes
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<(&String, &Value)> = map.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| *key);
            out.push(b'{');
            for (index, (key, value)) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(key, out);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::String(text) => write_text(text, out),
        Value::Number(number) => write_number(number, out),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Null => out.extend_from_slice(b"null"),
    }
}

/// A number in its one spelling.
pub(crate) fn write_number(number: &Number, out: &mut Vec<u8>) {
    let whole = if number.is_f64() { number.as_f64().and_then(int_as_number) } else { None };
    out.extend_from_slice(whole.as_ref().unwrap_or(number).to_string().as_bytes());
}

/// A JSON string: the quote, the backslash and control characters escaped, everything else as it is.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    let is_escaped = |byte: &u8| matches!(byte, b'"' | b'\\' | 0x00..=0x1f);
    while let Some((plain, [byte, behind @ ..])) =
        rest.iter().position(is_escaped).and_then(|place| rest.split_at_checked(place))
    {
        out.extend_from_slice(plain);
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// SHA-256 over exact bytes.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Sha256 {
    Sha256::of(bytes)
}

/// SHA-256 over the canonical encoding.
#[must_use]
pub fn object_digest(object: &Value) -> Sha256 {
    digest_of(&canonical_bytes(object))
}

/// Whether a digest of a live object covers its `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// A change of the status changes the digest.
    Covered,
    /// The status does not count.
    Ignored,
}

/// A live object without what the API server changes on every write: `metadata.managedFields`, `resourceVersion`,
/// `generation`, and the status unless it is covered.
#[must_use]
pub fn pruned(object: &Value, status: Status) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let mut body = Map::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("status", _) if status == Status::Ignored => {}
            ("metadata", Value::Object(metadata)) => {
                let kept = metadata
                    .iter()
                    .filter(|(key, _)| {
                        !matches!(key.as_str(), "managedFields" | "resourceVersion" | "generation")
                    })
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                body.insert(key.clone(), Value::Object(kept));
            }
            _ => {
                body.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(body)
}

/// The digest of a live object's [`pruned`] body.
#[must_use]
pub fn pruned_digest(object: &Value, status: Status) -> Sha256 {
    object_digest(&pruned(object, status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_encoding_is_sorted_and_bare() {
        let value = json!({"b": [1, 2.0, 1.5, -0.0], "a": {"z": null, "é": true, "A": "x\"\\\n\u{1}/ü"}});
        let text = String::from_utf8(canonical_bytes(&value)).expect("text");
        assert_eq!(text, "{\"a\":{\"A\":\"x\\\"\\\\\\n\\u0001/ü\",\"z\":null,\"é\":true},\"b\":[1,2,1.5,0]}");
        assert_eq!(canonicalize(value.clone()).to_string(), text);
        let back: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(canonical_bytes(&back), text.as_bytes());
    }

    #[test]
    fn a_digest_is_the_known_one() {
        assert_eq!(
            object_digest(&json!({})).to_string(),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    #[test]
    fn server_side_bookkeeping_does_not_count() {
        let live = |version: &str, replicas: i64, ready: i64| {
            json!({"metadata": {"name": "web", "resourceVersion": version, "generation": ready,
                "managedFields": [{"manager": version}]},
                "spec": {"replicas": replicas}, "status": {"ready": ready}})
        };
        let digest = |object: &Value| pruned_digest(object, Status::Ignored);
        assert_eq!(digest(&live("1", 2, 0)), digest(&live("2", 2, 1)));
        assert_ne!(digest(&live("1", 2, 0)), digest(&live("1", 3, 0)));
        let covered = |object: &Value| pruned_digest(object, Status::Covered);
        assert_ne!(covered(&live("1", 2, 0)), covered(&live("1", 2, 1)));
    }
}
