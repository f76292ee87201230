use std::future::poll_fn;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::BoxError;
use crate::body::Coalesced;

/// Sends a body until its end, or until the other side wants no more of it.
pub(super) async fn send<B>(mut body: Coalesced<B>, mut stream: SendStream<Bytes>)
where
    B: Body<Data = Bytes, Error: Into<BoxError> + Unpin>,
{
    loop {
        let frame = tokio::select! {
            biased;
            _reset = poll_fn(|context| stream.poll_reset(context)) => return,
            frame = body.frame() => frame,
        };
        let sent = match frame.map(|frame| frame.map(|frame| frame.into_data())) {
            Some(Ok(Ok(data))) => {
                if !has_room(&mut stream).await {
                    return;
                }
                let is_last = body.is_end_stream();
                stream.send_data(data, is_last).map(|()| is_last)
            }
            Some(Ok(Err(rest))) => {
                let trailers = rest.into_trailers().unwrap_or_default();
                stream.send_trailers(trailers).map(|()| true)
            }
            Some(Err(error)) => {
                tracing::debug!(error = error.into(), "a body broke off");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return;
            }
            None => stream.send_data(Bytes::new(), true).map(|()| true),
        };
        match sent {
            Ok(false) => {}
            Ok(true) => return,
            // Such as trailers that may not be sent.
            Err(error) => {
                tracing::debug!(%error, "a body cannot be sent");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return;
            }
        }
    }
}

/// Waits until the stream takes a piece, of any size: what is over its window waits in it. Whether it takes one at all.
async fn has_room(stream: &mut SendStream<Bytes>) -> bool {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return false,
        }
    }
    true
}
