//! One page of a list, whose objects are read one by one.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::status::ApiError;

/// A page, as text of its objects.
#[derive(Debug)]
pub struct Page<'a> {
    /// Each object. They do not state their kind.
    pub items: Vec<&'a RawValue>,
    /// Where the next page begins; empty: this is the last one.
    pub next: String,
    /// The list's version, from which to follow.
    pub resource_version: String,
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(default)]
    metadata: Metadata,
    /// An empty list may say null.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default, rename = "continue")]
    next: String,
    #[serde(default)]
    resource_version: String,
}

impl<'a> Page<'a> {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is no list.
    pub fn read(body: &'a [u8]) -> Result<Self, ApiError> {
        let Read { metadata, items } = serde_json::from_slice(body)
            .map_err(|error| ApiError::Unreadable { detail: format!("a list: {error}") })?;
        Ok(Self {
            items: items.unwrap_or_default(),
            next: metadata.next,
            resource_version: metadata.resource_version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_with_and_without_objects() {
        let page =
            Page::read(br#"{"metadata":{"continue":"c","resourceVersion":"7"},"items":[{"a": 1},{}]}"#);
        let page = page.unwrap();
        assert_eq!((page.next.as_str(), page.resource_version.as_str()), ("c", "7"));
        assert_eq!(page.items.iter().map(|item| item.get()).collect::<Vec<_>>(), [r#"{"a": 1}"#, "{}"]);
        let empty = Page::read(br#"{"metadata":{"resourceVersion":"7"},"items":null}"#).unwrap();
        assert!(empty.items.is_empty() && empty.next.is_empty());
        assert!(matches!(Page::read(b"no"), Err(ApiError::Unreadable { .. })));
    }
}
