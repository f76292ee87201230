//! One collection of the API server: listed page by page, and followed event by event.

use std::sync::Arc;

use events::configuration::ServiceAccount;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Shared;
use super::lines::Lines;
use crate::kubernetes::{Accept, ApiError, ApiStatus, Call, Resource, path};

/// Objects of one page.
const PAGE: usize = 200;

/// What is listed and followed, and as whom.
pub(super) struct Collection {
    pub(super) shared: Arc<Shared>,
    pub(super) resource: Arc<Resource>,
    /// Empty: all namespaces.
    pub(super) namespace: String,
    pub(super) account: Option<ServiceAccount>,
    /// A label selector, escaped; empty: all objects.
    pub(super) selector: String,
    /// Whole objects, not only their metadata.
    pub(super) whole: bool,
    /// The connections of watches on which it is followed.
    pub(super) lane: usize,
}

/// An object as a watch tells of it.
pub(super) enum Event {
    /// It was created or changed.
    Seen(Value),
    /// It is gone; this is its last state.
    Deleted(Value),
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    /// An empty list may say null.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl Collection {
    fn path(&self) -> Result<String, ApiError> {
        path::collection(&self.resource, &self.namespace)
            .ok_or_else(|| ApiError::Impossible { detail: "no path".to_owned() })
    }

    fn call(&self, query: String, accept: Accept) -> Call {
        let query =
            if self.selector.is_empty() { query } else { format!("{query}&labelSelector={}", self.selector) };
        let accept = if self.whole { Accept::Whole } else { accept };
        Call::get(query).accept(accept).as_account(self.account.as_ref())
    }

    /// Gives every object to `each`; the version from which to follow.
    pub(super) async fn list(&self, mut each: impl FnMut(Value) + Send) -> Result<String, ApiError> {
        let path = self.path()?;
        let mut next = String::new();
        loop {
            let query = format!("{path}?limit={PAGE}&continue={}", path::escape(&next));
            let answer = self.shared.kube.read(self.call(query, Accept::MetadataList)).await?;
            let page: Page<'_> = serde_json::from_slice(&answer.body).map_err(|error| {
                ApiError::Unreadable { detail: format!("list of {}: {error}", self.resource.plural) }
            })?;
            for item in page.items.into_iter().flatten() {
                each(
                    serde_json::from_str(item.get())
                        .map_err(|error| ApiError::Unreadable { detail: error.to_string() })?,
                );
            }
            if page.metadata.next.is_empty() {
                return Ok(page.metadata.resource_version);
            }
            next = page.metadata.next;
        }
    }

    /// Begins to follow behind a version.
    pub(super) async fn follow(&self, version: &str) -> Result<Events, ApiError> {
        // Half an hour to an hour, so that many watches do not end together.
        let timeout = 1_800 + self.shared.world.random.below(1_800);
        let query = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={timeout}&resourceVersion={}",
            self.path()?,
            path::escape(version)
        );
        let answer = self.shared.kube.watch(&self.call(query, Accept::Metadata), self.lane).await?;
        Ok(Events { lines: Lines::of(answer.into_body()) })
    }
}

/// What comes of following.
pub(super) struct Events {
    lines: Lines,
}

impl Events {
    /// The next event, `version` being that of the newest one; `None`: the watch ended in order. An error of the code 410 asks for a new
    /// list.
    pub(super) async fn next(&mut self, version: &mut String) -> Result<Option<Event>, ApiError> {
        while let Some(line) = self.lines.next().await? {
            if let Some(event) = read(&line, version)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

/// `None`: only the version is new.
fn read(line: &[u8], version: &mut String) -> Result<Option<Event>, ApiError> {
    let unreadable =
        |error: serde_json::Error| ApiError::Unreadable { detail: format!("event of a watch: {error}") };
    let line: Line<'_> = serde_json::from_slice(line).map_err(unreadable)?;
    if line.r#type == "ERROR" {
        let status: ApiStatus = serde_json::from_str(line.object.get()).map_err(unreadable)?;
        return Err(ApiError::Refused(Box::new(status)));
    }
    let object: Value = serde_json::from_str(line.object.get()).map_err(unreadable)?;
    if let Some(newest) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
        newest.clone_into(version);
    }
    Ok(match line.r#type {
        "ADDED" | "MODIFIED" => Some(Event::Seen(object)),
        "DELETED" => Some(Event::Deleted(object)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_move_the_version_and_errors_keep_it() {
        let mut version = "1".to_owned();
        let line = |text: &str| text.as_bytes().to_vec();
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        assert!(read(&line(bookmark), &mut version).unwrap().is_none());
        assert_eq!(version, "7");
        let deleted = r#"{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"9"}}}"#;
        assert!(matches!(read(&line(deleted), &mut version), Ok(Some(Event::Deleted(_)))));
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        assert_eq!(read(&line(gone), &mut version).err().map(|error| error.code()), Some(410));
        assert!(matches!(read(b"no", &mut version), Err(ApiError::Unreadable { .. })));
        assert_eq!(version, "9");
    }
}
