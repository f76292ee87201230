use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Body, Frame};

/// The body of an answer, as it comes. Dropped before its end, it resets its stream.
pub struct Received(RecvStream);

impl Received {
    /// What a stream brings.
    #[must_use]
    pub const fn new(stream: RecvStream) -> Self {
        Self(stream)
    }

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        Poll::Ready(match ready!(self.0.poll_data(context)) {
            Some(Ok(data)) => Some(self.0.flow_control().release_capacity(data.len()).map(|()| data)),
            // All of it was sent; only the request's rest is not wanted (RFC 9113, section 8.1).
            Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) && error.is_reset() => None,
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn poll_trailers(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let trailers = match ready!(self.0.poll_trailers(context)) {
            Err(error) if error.reason() == Some(Reason::NO_ERROR) && error.is_reset() => Ok(None),
            trailers => trailers,
        };
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)).transpose())
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        match ready!(this.poll_data(context)) {
            Some(data) => Poll::Ready(Some(data.map(Frame::data))),
            None => this.poll_trailers(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
