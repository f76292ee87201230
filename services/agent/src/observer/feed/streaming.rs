//! The first list of a kind as a stream: each object is reported and forgotten as it comes, and no page of them is ever held.

use std::sync::Arc;
use std::time::Duration;

use super::Feed;
use crate::kubernetes::{ApiError, InitialEvent, WatchEvents};

/// An API server that is silent for so long before the last object does not stream.
const SILENT: Duration = Duration::from_secs(30);
/// Longer than any list takes.
const TIMEOUT_SECONDS: u32 = 3_600;

impl Feed {
    /// Takes everything there is as the API server streams it; gives the version of it. `None` where it does not stream this kind: an older one, or
    /// one behind it that does not know how, or one that broke off, as it may with a reader that is slow. There are pages then.
    pub(super) async fn stream(&mut self) -> Result<Option<String>, ApiError> {
        let query = format!(
            "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={TIMEOUT_SECONDS}"
        );
        let opened = self.observer.shared.kube.feed(&self.call(&query)?, self.lane).await;
        let answer = match opened {
            Ok(answer) => answer,
            Err(error @ ApiError::Unreachable { .. }) => return Err(error),
            Err(error) => return Ok(self.streams_no_more(&error.to_string())),
        };
        let mut events = WatchEvents::of(answer.into_body());
        let clock = Arc::clone(&self.observer.shared.world.clock);
        loop {
            let event = tokio::select! {
                biased;
                event = events.next_initial() => event,
                () = clock.sleep(SILENT) => return Ok(self.streams_no_more("it is silent")),
            };
            match event {
                Ok(Some(InitialEvent::There(object))) => self.listed(&object).await?,
                Ok(Some(InitialEvent::Gone(object))) => {
                    while !self.deleted(&object)? {
                        self.observer.outbox.room().await;
                    }
                }
                Ok(Some(InitialEvent::End(version))) => return Ok(Some(version)),
                Ok(None) => return Ok(self.streams_no_more("the stream ended")),
                Err(error) => return Ok(self.streams_no_more(&error.to_string())),
            }
        }
    }

    fn streams_no_more(&mut self, why: &str) -> Option<String> {
        tracing::debug!(kind = %self.of, why, "a kind is listed page by page");
        self.streams = false;
        None
    }
}
