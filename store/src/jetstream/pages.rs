//! Reading what is stored: in pages, some of them asked for ahead.

use std::sync::Arc;
use std::time::Duration;

use events::position::Shard;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use tokio::sync::mpsc;
use world::World;

use super::records::stream_name;
use super::server::{Page, Piece, Server, ServerError, Stored};

/// Messages of one request.
const MESSAGES: usize = 512;
/// From so many messages on a consumer is made to read them.
const LONG: u64 = 2 * MESSAGES as u64;
/// Requests under way at once.
const AHEAD: usize = 4;
/// How long a replica may lag, where nothing else explains that a message is missing.
const LAG_TIME: Duration = Duration::from_secs(10);
const LAG_PAUSE: Duration = Duration::from_millis(10);

/// A stretch of a stream, and how it is read.
#[derive(Clone)]
pub(super) struct SequenceRange {
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

impl SequenceRange {
    /// A stretch of a shard.
    pub(super) fn of_shard(
        server: &Arc<dyn Server>,
        world: &World,
        shard: Shard,
        from: u64,
        to: u64,
    ) -> Self {
        let (server, world, stream) = (Arc::clone(server), world.clone(), stream_name(shard));
        Self { server, world, stream, subject: None, from, to, patience: LAG_TIME }
    }

    /// Only a subject of it, whose last message is the one at its end.
    pub(super) fn of(self, subject: String) -> Self {
        Self { subject: Some(subject), ..self }
    }

    /// All of it.
    pub(super) async fn whole(mut self) -> Piece {
        let mut messages: Vec<Stored> = Vec::new();
        let mut lagging = Duration::ZERO;
        while self.from <= self.to {
            let got = self.some(MESSAGES, &mut lagging).await?;
            let to = self.to;
            self.from = got.last().map_or(to, |last| last.sequence) + 1;
            messages.extend(got.into_iter().take_while(|message| message.sequence <= to));
        }
        Ok(messages)
    }

    /// Its first message, or where that has left the first one behind it.
    pub(super) async fn first(&self) -> Result<Option<Stored>, ServerError> {
        let mut lagging = Duration::ZERO;
        Ok(self.some(1, &mut lagging).await?.into_iter().next())
    }

    /// The next messages, at least one: waits for a replica that lags.
    async fn some(&self, most: usize, lagging: &mut Duration) -> Piece {
        let (stream, subject) = (self.stream.clone(), self.subject.clone());
        let page = Page { stream, from: self.from, most, subject };
        loop {
            let got = self.server.page(&page).await?;
            if !got.is_empty() {
                return Ok(got);
            }
            if *lagging >= self.patience {
                return Err(ServerError(format!(
                    "{} has nothing at {} and behind it, though {} was stored",
                    self.stream, self.from, self.to
                )));
            }
            self.world.clock.sleep(LAG_PAUSE).await;
            *lagging += LAG_PAUSE;
        }
    }

    /// All of it, piece by piece.
    pub(super) fn pieces(self) -> Pieces {
        let long = self.to.saturating_sub(self.from) >= LONG;
        let way = if long { Way::NotBegun } else { Way::Pages(FuturesOrdered::new()) };
        Pieces { next: self.from, stretch: self, way }
    }
}

/// The pieces of a stretch, in order.
pub(super) struct Pieces {
    stretch: SequenceRange,
    next: u64,
    way: Way,
}

/// How a stretch is read.
enum Way {
    NotBegun,
    Replay(mpsc::Receiver<Piece>),
    Pages(FuturesOrdered<BoxFuture<'static, Piece>>),
}

impl Pieces {
    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Piece> {
        loop {
            match &mut self.way {
                Way::NotBegun => {
                    let SequenceRange { server, stream, from, to, .. } = &self.stretch;
                    match server.replay(stream, *from, *to).await {
                        Ok(replay) => self.way = Way::Replay(replay),
                        Err(error) => return Some(Err(error)),
                    }
                }
                Way::Replay(replay) => return replay.recv().await,
                Way::Pages(under_way) => {
                    while under_way.len() < AHEAD && self.next <= self.stretch.to {
                        let to = self.stretch.to.min(self.next.saturating_add(MESSAGES as u64 - 1));
                        let piece = SequenceRange { from: self.next, to, ..self.stretch.clone() };
                        under_way.push_back(Box::pin(piece.whole()));
                        self.next = to + 1;
                    }
                    return under_way.next().await;
                }
            }
        }
    }
}
