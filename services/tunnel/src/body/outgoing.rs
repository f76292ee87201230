//! The agent's endless event response.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::sync::mpsc;

use crate::wire::{EventFrame, FrameError, encode_frame};

/// Event frames are joined into one DATA up to about this size, so that no peer sees many small ones.
const JOIN_BYTES: usize = 64 * 1024;

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

/// Body of the answer to `GET /v1/events`; joins what is waiting into larger pieces, and never gives an empty one.
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

    /// Returns once the gateway is gone or wants no more of this response.
    pub async fn ended(&self) {
        self.frames.closed().await;
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let first = match self.frames.poll_recv(context) {
            Poll::Ready(Some(first)) => first,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        };
        let mut joined = match self.frames.try_recv() {
            Err(_) => return Poll::Ready(Some(Ok(Frame::data(first)))),
            Ok(second) => {
                let mut joined = BytesMut::with_capacity(first.len().saturating_add(second.len()).max(4096));
                joined.extend_from_slice(&first);
                joined.extend_from_slice(&second);
                joined
            }
        };
        while joined.len() < JOIN_BYTES {
            let Ok(next) = self.frames.try_recv() else { break };
            joined.extend_from_slice(&next);
        }
        Poll::Ready(Some(Ok(Frame::data(joined.freeze()))))
    }
}
