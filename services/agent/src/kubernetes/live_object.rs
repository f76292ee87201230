//! An object as the API server sent it: its text, and what names it. A reader that needs more decodes the text.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::status::ApiError;
use crate::model::known::Head;

/// See the module. Items of lists do not state their kind.
#[derive(Debug, Clone)]
pub struct LiveObject {
    /// Empty where the object does not say it.
    pub head: Head,
    /// JSON.
    pub text: Bytes,
}

impl LiveObject {
    /// Reads the head of an object.
    #[must_use]
    pub fn of(text: Bytes) -> Self {
        let item: Item = serde_json::from_slice(&text).unwrap_or_default();
        let Metadata { uid, namespace, name, resource_version: version } = item.metadata;
        Self { head: Head { uid, namespace, name, version }, text }
    }

    /// The whole object.
    ///
    /// # Errors
    /// When it is no JSON.
    pub fn value(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.text).map_err(unreadable)
    }

    /// Its metadata alone, as `PartialObjectMetadata` has them.
    ///
    /// # Errors
    /// When it has none.
    pub fn metadata(&self) -> Result<Value, ApiError> {
        let OfMetadata { metadata } = serde_json::from_slice(&self.text).map_err(unreadable)?;
        Ok(Value::from_iter([("metadata", metadata)]))
    }

    /// A label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<String> {
        let OfLabels { metadata } = serde_json::from_slice(&self.text).ok()?;
        metadata.labels.get(name)?.as_str().map(str::to_owned)
    }
}

fn unreadable(error: serde_json::Error) -> ApiError {
    ApiError::Unreadable { detail: format!("an object: {error}") }
}

#[derive(Deserialize, Default)]
struct Item {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
struct OfMetadata {
    metadata: Value,
}

#[derive(Deserialize)]
struct OfLabels {
    metadata: Labels,
}

#[derive(Deserialize)]
struct Labels {
    #[serde(default)]
    labels: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_head_and_its_labels_are_read_without_the_rest() {
        let text = r#"{"metadata":{"uid":"u","name":"a\n","namespace":"shop","resourceVersion":"7",
            "labels":{"app":"web \"1\"","none":null}},"data":{"secret":"x"}}"#;
        let object = LiveObject::of(Bytes::from(text));
        let [uid, namespace, name, version] = ["u", "shop", "a\n", "7"].map(str::to_owned);
        assert_eq!(object.head, Head { uid, namespace, name, version });
        assert_eq!(object.label("app").as_deref(), Some("web \"1\""));
        assert_eq!((object.label("none"), object.label("other")), (None, None));
        let metadata = object.metadata().unwrap();
        assert!(metadata.pointer("/metadata/labels/app").is_some() && metadata.get("data").is_none());
        let nothing = LiveObject::of(Bytes::from("{}"));
        assert!(
            nothing.head.name.is_empty() && nothing.label("app").is_none() && nothing.metadata().is_err()
        );
    }
}
