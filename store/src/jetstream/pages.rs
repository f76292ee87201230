//! Reading what is stored: in pages, some of them asked for ahead.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use world::World;

use super::server::{Page, Server, ServerError, Stored};

/// Messages of one request.
const MESSAGES: usize = 512;
/// Requests under way at once.
const AHEAD: usize = 4;
/// How long a replica may lag, where nothing else explains that a message is missing.
pub(super) const LAG_TIME: Duration = Duration::from_secs(10);
const LAG_PAUSE: Duration = Duration::from_millis(10);

/// A stretch of a stream, and how it is read.
#[derive(Clone)]
pub(super) struct Stretch {
    pub(super) server: Arc<dyn Server>,
    pub(super) world: World,
    pub(super) stream: String,
    /// Only subjects that this one or this filter names; the last of their messages is then the one at `to`.
    pub(super) subject: Option<String>,
    pub(super) from: u64,
    /// The last sequence, known to be stored.
    pub(super) to: u64,
    /// How long a replica may lag behind what another one acknowledged.
    pub(super) patience: Duration,
}

impl Stretch {
    /// All of it.
    pub(super) async fn whole(mut self) -> Result<Vec<Stored>, ServerError> {
        let mut messages: Vec<Stored> = Vec::new();
        let mut lagging = Duration::ZERO;
        while self.from <= self.to {
            let page = Page {
                stream: self.stream.clone(),
                from: self.from,
                most: MESSAGES,
                subject: self.subject.clone(),
            };
            let got = self.server.page(&page).await?;
            match got.last() {
                Some(last) => {
                    self.from = last.sequence + 1;
                    let to = self.to;
                    messages.extend(got.into_iter().take_while(|message| message.sequence <= to));
                }
                None if lagging < self.patience => {
                    self.world.clock.sleep(LAG_PAUSE).await;
                    lagging += LAG_PAUSE;
                }
                None => {
                    return Err(ServerError(format!(
                        "{} has nothing at {} and behind it, though {} was stored",
                        self.stream, self.from, self.to
                    )));
                }
            }
        }
        Ok(messages)
    }

    /// All of it, piece by piece.
    pub(super) fn pieces(self) -> Pieces {
        Pieces { next: self.from, stretch: self, under_way: FuturesOrdered::new() }
    }
}

/// The pieces of a stretch, in order.
pub(super) struct Pieces {
    stretch: Stretch,
    next: u64,
    under_way: FuturesOrdered<BoxFuture<'static, Result<Vec<Stored>, ServerError>>>,
}

impl Pieces {
    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Vec<Stored>, ServerError>> {
        while self.under_way.len() < AHEAD && self.next <= self.stretch.to {
            let to = self.stretch.to.min(self.next.saturating_add(MESSAGES as u64 - 1));
            let piece = Stretch { from: self.next, to, ..self.stretch.clone() };
            self.under_way.push_back(Box::pin(piece.whole()));
            self.next = to + 1;
        }
        self.under_way.next().await
    }
}
