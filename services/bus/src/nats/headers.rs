//! What travels in the headers of requests.

use events::request::RequestContext;

use super::wire::HeaderMap;
use crate::contract::RequestError;

/// The context as JSON, so that a person who watches the subjects can read it.
const CONTEXT: &str = "kasbah-context";
/// As every tool for traces knows it.
const TRACEPARENT: &str = "traceparent";
/// Set on the answer of one who left: another one is to be asked.
const LEFT: &str = "kasbah-left";
/// Set on the word of one who has not finished yet: where the answer is to be had.
const AT_WORK: &str = "kasbah-at-work";
const STREAM: &str = "kasbah-stream";
const WINDOW: &str = "kasbah-window";
/// Set where nothing comes behind what goes with an opening or its answer.
const ALL: &str = "kasbah-all";

pub(super) fn of(context: &RequestContext) -> Result<HeaderMap, RequestError> {
    let text = serde_json::to_string(context)
        .map_err(|error| RequestError::Away { detail: format!("the context cannot be encoded: {error}") })?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTEXT, text);
    let plain = |text: &&String| text.bytes().all(|byte| byte.is_ascii_graphic());
    if let Some(traceparent) = context.traceparent.as_ref().filter(plain) {
        headers.insert(TRACEPARENT, traceparent.as_str());
    }
    Ok(headers)
}

/// `None`, and a word in the log, where somebody sent what is none.
pub(super) fn context(headers: Option<&HeaderMap>) -> Option<RequestContext> {
    let text = headers.and_then(|headers| headers.get(CONTEXT)).map(|value| value.as_str())?;
    let context = serde_json::from_str(text);
    context.inspect_err(|error| tracing::warn!(%error, "request without a context that can be read")).ok()
}

pub(super) fn for_opening(headers: &mut HeaderMap, inbox: &str, window: u32, is_all: bool) {
    headers.insert(WINDOW, window.to_string());
    for_answer(headers, Some(inbox), is_all);
}

/// For the answer to an opening; without an inbox where that is all of the stream.
pub(super) fn for_answer(headers: &mut HeaderMap, inbox: Option<&str>, is_all: bool) {
    if let Some(inbox) = inbox {
        headers.insert(STREAM, inbox);
    }
    if is_all {
        headers.insert(ALL, "1");
    }
}

/// Where the other side of a stream listens.
pub(super) fn inbox(headers: Option<&HeaderMap>) -> Option<String> {
    Some(headers?.get(STREAM)?.as_str().to_owned())
}

pub(super) fn window(headers: Option<&HeaderMap>) -> Option<u32> {
    headers?.get(WINDOW)?.as_str().parse().ok()
}

pub(super) fn is_complete(headers: Option<&HeaderMap>) -> bool {
    headers.is_some_and(|headers| headers.get(ALL).is_some())
}

pub(super) fn leaving() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(LEFT, "1");
    headers
}

pub(super) fn has_left(headers: Option<&HeaderMap>) -> bool {
    headers.is_some_and(|headers| headers.get(LEFT).is_some())
}

/// For the word that a request is being worked on; its answer is given to whoever asks under `inbox`.
pub(super) fn working(inbox: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AT_WORK, inbox);
    headers
}

pub(super) fn working_inbox(headers: Option<&HeaderMap>) -> Option<String> {
    headers.and_then(|headers| headers.get(AT_WORK)).map(|inbox| inbox.as_str().to_owned())
}

/// Bytes of the headers on the wire, which count towards the limit of a message.
pub(super) fn length(headers: &HeaderMap) -> usize {
    let lines = headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    let lines: usize =
        lines.map(|(name, value)| AsRef::<str>::as_ref(name).len() + value.as_str().len() + 4).sum();
    "NATS/1.0\r\n\r\n".len() + lines
}
