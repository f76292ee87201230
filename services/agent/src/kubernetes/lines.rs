//! The lines of a watch's answer.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;

use super::connections::AnswerBody;
use super::status::ApiError;

/// Largest line of a watch: an object is at most a few MiB.
const LINE_MAXIMUM: usize = 16 << 20;

/// Reads an answer line by line.
pub(super) struct Lines {
    body: AnswerBody,
    buffer: BytesMut,
    /// So much of the buffer has no end of a line: a large object comes in many pieces.
    searched: usize,
}

impl Lines {
    pub(super) fn of(body: AnswerBody) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line; `None`: the answer ended.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                if self.buffer.is_empty() {
                    // A large event must not hold its memory until the next one.
                    self.buffer = BytesMut::new();
                }
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.searched > LINE_MAXIMUM {
                return Err(ApiError::Unreadable { detail: "a line of a watch is too long".to_owned() });
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| ApiError::Unreachable { detail: error.to_string() })?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}
