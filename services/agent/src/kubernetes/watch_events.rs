//! What a watch says, event by event.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connections::AnswerBody;
use super::lines::Lines;
use super::live_object::LiveObject;
use super::status::{ApiError, ApiStatus};

/// An object as a watch tells of it.
#[derive(Debug)]
pub enum WatchEvent {
    /// It was created or changed.
    Seen(LiveObject),
    /// It is gone; this is its last state.
    Deleted(LiveObject),
}

impl WatchEvent {
    /// The object.
    #[must_use]
    pub const fn object(&self) -> &LiveObject {
        match self {
            Self::Seen(object) | Self::Deleted(object) => object,
        }
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// An event of a watch that begins with all existing objects.
pub enum InitialEvent {
    /// An object that exists.
    There(LiveObject),
    /// One that was deleted since it was sent.
    Gone(LiveObject),
    /// All were sent, as of this version.
    End(String),
}

/// Marks the bookmark behind the last existing object.
const INITIAL_EVENTS_END: &str = "/metadata/annotations/k8s.io~1initial-events-end";

/// What comes of following.
pub struct WatchEvents {
    lines: Lines,
}

impl WatchEvents {
    /// The events of an answer.
    #[must_use]
    pub fn of(body: AnswerBody) -> Self {
        Self { lines: Lines::of(body) }
    }

    /// The next event, `version` being that of the newest one; `None`: the watch ended in order. An error of the code 410 asks for a new
    /// list.
    ///
    /// # Errors
    /// When the answer breaks off, cannot be read, or says that the watch cannot go on.
    pub async fn next(&mut self, version: &mut String) -> Result<Option<WatchEvent>, ApiError> {
        while let Some(line) = self.lines.next().await? {
            if let Some(event) = read(&line, version)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The next event of a watch that begins with all existing objects; `None`: it ended before all were sent.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_initial(&mut self) -> Result<Option<InitialEvent>, ApiError> {
        while let Some(line) = self.lines.next().await? {
            if let Some(event) = read_initial(&line)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

impl Line<'_> {
    /// What the line, which this was read from, says; the object shares its memory. `None`: only the version is new.
    fn event(&self, line: &Bytes, version: &mut String) -> Result<Option<WatchEvent>, ApiError> {
        if self.r#type == "ERROR" {
            let status: ApiStatus = serde_json::from_str(self.object.get()).map_err(unreadable)?;
            return Err(ApiError::Refused(Box::new(status)));
        }
        let object = LiveObject::of(line.slice_ref(self.object.get().as_bytes()));
        if !object.head.version.is_empty() {
            object.head.version.clone_into(version);
        }
        Ok(match self.r#type {
            "ADDED" | "MODIFIED" => Some(WatchEvent::Seen(object)),
            "DELETED" => Some(WatchEvent::Deleted(object)),
            _ => None,
        })
    }
}

fn read_initial(line: &Bytes) -> Result<Option<InitialEvent>, ApiError> {
    let parsed: Line<'_> = serde_json::from_slice(line).map_err(unreadable)?;
    if parsed.r#type == "BOOKMARK" {
        let object: Value = serde_json::from_str(parsed.object.get()).map_err(unreadable)?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let is_end = text(INITIAL_EVENTS_END) == Some("true");
        let version = text("/metadata/resourceVersion").filter(|_| is_end);
        return Ok(version.map(|version| InitialEvent::End(version.to_owned())));
    }
    Ok(match parsed.event(line, &mut String::new())? {
        Some(WatchEvent::Seen(object)) => Some(InitialEvent::There(object)),
        Some(WatchEvent::Deleted(object)) => Some(InitialEvent::Gone(object)),
        None => None,
    })
}

fn unreadable(error: serde_json::Error) -> ApiError {
    ApiError::Unreadable { detail: format!("event of a watch: {error}") }
}

fn read(line: &Bytes, version: &mut String) -> Result<Option<WatchEvent>, ApiError> {
    let parsed: Line<'_> = serde_json::from_slice(line).map_err(unreadable)?;
    parsed.event(line, version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_move_the_version_and_errors_keep_it() {
        let mut version = "1".to_owned();
        let line = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        assert!(read(&line(bookmark), &mut version).unwrap().is_none());
        assert_eq!(version, "7");
        let deleted = r#"{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"9"}}}"#;
        assert!(matches!(read(&line(deleted), &mut version), Ok(Some(WatchEvent::Deleted(_)))));
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        assert_eq!(read(&line(gone), &mut version).err().map(|error| error.code()), Some(410));
        assert!(matches!(read(&line("no"), &mut version), Err(ApiError::Unreadable { .. })));
        assert_eq!(version, "9");
    }

    #[test]
    fn everything_there_is_ends_with_a_bookmark_that_says_so() {
        let there = br#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#;
        let read = |line: &'static [u8]| read_initial(&Bytes::from_static(line)).unwrap();
        assert!(matches!(read(there), Some(InitialEvent::There(object)) if object.head.name == "a"));
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        assert!(read(bookmark).is_none(), "any other bookmark is none");
        let end = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8",
            "annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert!(matches!(read(end), Some(InitialEvent::End(version)) if version == "8"));
        let gone = br#"{"type":"DELETED","object":{"metadata":{"name":"a"}}}"#;
        assert!(matches!(read(gone), Some(InitialEvent::Gone(_))));
        let refused = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        assert_eq!(read_initial(&Bytes::from_static(refused)).err().map(|error| error.code()), Some(410));
    }
}
