//! The agent's endless event response.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;

use crate::wire::{EventFrame, FrameError, encode_frame};

/// A frame could not be put into an event response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The gateway is gone, or wants no more of this response.
    #[error("the event response has ended")]
    Ended,
    /// The frame itself cannot be sent.
    #[error("the frame cannot be sent")]
    Frame(#[source] FrameError),
}

/// Writes into an [`EventBody`]. Dropping all of them ends the response in order.
#[derive(Debug, Clone)]
pub struct EventSender {
    frames: mpsc::Sender<Bytes>,
}

/// Body of the answer to `GET /v1/events`.
#[derive(Debug)]
pub struct EventBody {
    frames: mpsc::Receiver<Bytes>,
}

/// An event response with room for `capacity` frames that the gateway has not taken yet.
#[must_use]
pub fn event_body(capacity: usize) -> (EventSender, EventBody) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    (EventSender { frames: sender }, EventBody { frames: receiver })
}

impl EventSender {
    /// Sends a frame, waiting while the gateway reads too slowly. Gives its size on the wire in bytes.
    ///
    /// # Errors
    /// When the response ended, or the frame is over its limits: then nothing was sent.
    pub async fn send(&self, frame: &EventFrame) -> Result<usize, SendError> {
        let bytes = encode_frame(frame).map_err(SendError::Frame)?;
        let size = bytes.len();
        self.frames.send(bytes).await.map_err(|_| SendError::Ended)?;
        Ok(size)
    }

    /// Sends bytes that were encoded before, such as frames kept until they are acknowledged.
    ///
    /// # Errors
    /// When the response ended.
    pub async fn send_raw(&self, frames: Bytes) -> Result<(), SendError> {
        self.frames.send(frames).await.map_err(|_| SendError::Ended)
    }

    /// Returns once the gateway is gone or wants no more of this response.
    pub async fn ended(&self) {
        self.frames.closed().await;
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.frames.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
