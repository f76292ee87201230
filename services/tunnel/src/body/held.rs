//! A body with what has to live as long as it does.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Passes a body on as it comes; drops `T` with it.
pub struct Held<B, T> {
    body: B,
    _held: T,
}

impl<B, T> Held<B, T> {
    /// `held` lives as long as `body`.
    #[must_use]
    pub const fn new(body: B, held: T) -> Self {
        Self { body, _held: held }
    }
}

impl<B, T> Body for Held<B, T>
where
    B: Body<Data = Bytes> + Unpin,
    T: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
