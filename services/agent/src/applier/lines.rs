//! The lines of a watch's answer.

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;

use crate::kubernetes::{AnswerBody, ApiError};

/// Largest line of a watch: an object is at most a few MiB.
const LINE_MAXIMUM: usize = 16 << 20;

/// Reads an answer line by line.
pub(super) struct Lines {
    body: AnswerBody,
    buffer: BytesMut,
}

impl Lines {
    pub(super) fn of(body: AnswerBody) -> Self {
        Self { body, buffer: BytesMut::new() }
    }

    /// The next line; `None`: the answer ended.
    pub(super) async fn next(&mut self) -> Result<Option<BytesMut>, ApiError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                if self.buffer.is_empty() {
                    // A large event must not hold its memory until the next one.
                    self.buffer = BytesMut::new();
                }
                return Ok(Some(line));
            }
            if self.buffer.len() > LINE_MAXIMUM {
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
