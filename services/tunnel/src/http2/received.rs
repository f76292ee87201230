use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame};

/// The body of an answer, as it comes. One that is reset before its end is broken, whatever the reason; one that is reset behind it, because the
/// request's rest is not wanted (RFC 9113, section 8.1), is whole. Dropped before its end, it resets its stream.
pub struct Received(RecvStream);

impl Received {
    /// What a stream brings.
    #[must_use]
    pub const fn new(stream: RecvStream) -> Self {
        Self(stream)
    }

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let data = ready!(self.0.poll_data(context));
        let taken = |data: Bytes| self.0.flow_control().release_capacity(data.len()).map(|()| data);
        Poll::Ready(data.map(|data| data.and_then(taken)))
    }

    fn poll_trailers(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let trailers = ready!(self.0.poll_trailers(context));
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
