//! Bodies that can be sent again from their beginning: whoever closes a connection in order (GOAWAY), an agent or an API server, names
//! the last request that it took, and whatever came later is to be sent on another connection (RFC 9113, section 6.8).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;

use super::{RequestBody, empty};
use crate::BoxError;

/// What is longer is sent once. Hardly any object of Kubernetes is longer.
const KEPT_BYTES: usize = 256 * 1024;

/// A body, and what was sent of it so far: 256 KiB are kept, until this is dropped. Nothing is nothing again.
pub struct Replay(Option<Arc<Mutex<Recording>>>);

struct Recording {
    /// What nobody has asked for yet; nothing once it has ended, at which it is dropped.
    rest: Option<RequestBody>,
    sent: Vec<Bytes>,
    kept_bytes: usize,
    is_whole: bool,
    /// How often it was begun.
    sendings: usize,
}

/// One sending of it. There is one at a time: what is still held of a former one does not take from the next.
struct Playing {
    recording: Arc<Mutex<Recording>>,
    sending: usize,
    next: usize,
}

/// The body is being sent again elsewhere.
#[derive(Debug, thiserror::Error)]
#[error("it is being sent again")]
struct SentAnew;

impl Replay {
    /// With the body as it is sent first.
    #[must_use]
    pub fn of(body: RequestBody) -> (Self, RequestBody) {
        if body.is_end_stream() {
            return (Self(None), body);
        }
        let recording =
            Recording { rest: Some(body), sent: Vec::new(), kept_bytes: 0, is_whole: true, sendings: 0 };
        let recording = Arc::new(Mutex::new(recording));
        let first = playing(&recording);
        (Self(Some(recording)), first)
    }

    /// The body from its beginning, unless it was too long to be kept or broke.
    #[must_use]
    pub fn again(&self) -> Option<RequestBody> {
        let Some(recording) = &self.0 else { return Some(empty()) };
        let is_whole = recording.lock().is_whole;
        is_whole.then(|| playing(recording))
    }
}

fn playing(recording: &Arc<Mutex<Recording>>) -> RequestBody {
    let mut begun = recording.lock();
    begun.sendings += 1;
    Playing { recording: Arc::clone(recording), sending: begun.sendings, next: 0 }.boxed_unsync()
}

impl Recording {
    fn keep(&mut self, frame: &Frame<Bytes>) {
        let data = frame.data_ref().filter(|data| self.kept_bytes + data.len() <= KEPT_BYTES);
        match data {
            Some(data) if self.is_whole => {
                self.kept_bytes += data.len();
                self.sent.push(data.clone());
            }
            _ => {
                self.is_whole = false;
                self.sent = Vec::new();
            }
        }
    }
}

impl Body for Playing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut recording = this.recording.lock();
        if recording.sendings != this.sending {
            return Poll::Ready(Some(Err(SentAnew.into())));
        }
        if let Some(piece) = recording.sent.get(this.next) {
            this.next += 1;
            return Poll::Ready(Some(Ok(Frame::data(piece.clone()))));
        }
        let Some(rest) = recording.rest.as_mut() else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *rest).poll_frame(context));
        let has_ended = rest.is_end_stream();
        match &frame {
            Some(Ok(frame)) => {
                recording.keep(frame);
                this.next = recording.sent.len();
            }
            Some(Err(_)) => recording.is_whole = false,
            None => {}
        }
        // Whoever sends it may not ask again once it has said so, and whoever waits for its end waits for it to be dropped.
        if has_ended || frame.is_none() {
            recording.rest = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let recording = self.recording.lock();
        let is_over = recording.rest.as_ref().is_none_or(Body::is_end_stream);
        is_over && self.next >= recording.sent.len()
    }

    fn size_hint(&self) -> SizeHint {
        let recording = self.recording.lock();
        let again: u64 = recording.sent.iter().skip(self.next).map(|piece| piece.len() as u64).sum();
        let rest = recording.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(again));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(again));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::StreamBody;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::body::Held;

    fn body(pieces: &[usize]) -> RequestBody {
        let frames: Vec<Result<_, Infallible>> =
            pieces.iter().map(|size| Ok(Frame::data(Bytes::from(vec![b'x'; *size])))).collect();
        StreamBody::new(futures::stream::iter(frames)).map_err(|never| match never {}).boxed_unsync()
    }

    async fn read(body: RequestBody) -> usize {
        body.collect().await.unwrap().to_bytes().len()
    }

    #[tokio::test]
    async fn what_was_sent_in_part_is_sent_again_from_its_beginning() {
        let (replay, mut first) = Replay::of(body(&[10, 20, 30]));
        first.frame().await.unwrap().unwrap();
        first.frame().await.unwrap().unwrap();
        let again = replay.again().unwrap();
        assert_eq!(again.size_hint().lower(), 30, "what is known of it");
        assert_eq!(read(again).await, 60);
        let after_its_end = replay.again().unwrap();
        assert_eq!(after_its_end.size_hint().exact(), Some(60));
        assert_eq!(read(after_its_end).await, 60);
    }

    #[tokio::test]
    async fn what_is_long_arrives_whole_and_once() {
        let (replay, first) = Replay::of(body(&[KEPT_BYTES, 1, 10]));
        assert_eq!(read(first).await, KEPT_BYTES + 11);
        assert!(replay.again().is_none());
    }

    #[test]
    fn nothing_is_nothing_again() {
        let nothing = http_body_util::Empty::new().map_err(|never: Infallible| match never {});
        let (replay, first) = Replay::of(nothing.boxed_unsync());
        assert!(first.is_end_stream() && replay.again().unwrap().is_end_stream());
    }

    #[tokio::test]
    async fn a_body_is_dropped_when_its_last_piece_is_taken() {
        let (held, mut dropped) = tokio::sync::oneshot::channel::<()>();
        let body = Held::new(crate::body::full("all of it"), held);
        let (replay, mut first) = Replay::of(body.boxed_unsync());
        first.frame().await.unwrap().unwrap();
        assert!(first.is_end_stream());
        assert_eq!(dropped.try_recv(), Err(TryRecvError::Closed), "nobody asks whether there is more");
        assert_eq!(read(replay.again().unwrap()).await, 9);
    }

    #[tokio::test]
    async fn a_former_sending_takes_nothing_from_the_next_one() {
        let (replay, mut first) = Replay::of(body(&[10, 20]));
        first.frame().await.unwrap().unwrap();
        let again = replay.again().unwrap();
        assert!(first.frame().await.unwrap().is_err());
        assert_eq!(read(again).await, 30);
    }

    #[tokio::test]
    async fn a_body_that_breaks_is_not_sent_again() {
        let broken = futures::stream::iter([Err::<Frame<Bytes>, BoxError>("broke".into())]);
        let (replay, first) = Replay::of(StreamBody::new(broken).boxed_unsync());
        assert!(first.collect().await.is_err());
        assert!(replay.again().is_none());
    }
}
