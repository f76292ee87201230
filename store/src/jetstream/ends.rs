//! Where the shards end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use events::Position;
use events::position::{Shard, Stream};
use parking_lot::Mutex;

use super::records::stream_name;
use super::server::{Server, ServerError};

/// Asks for the ends of a stream's shards, once for all who want to know at the same time.
pub(super) struct Ends {
    partitions: u16,
    /// What was seen for sure: a leader that was just elected may not have said it yet.
    seen: Mutex<Position>,
    moments: AtomicU64,
    /// What each stream's leaders said, and from which moment on that holds.
    said: BTreeMap<Stream, tokio::sync::Mutex<Said>>,
}

/// From which moment on it holds, and what was said; a failure is shared as well, so that nobody waits for many of them.
type Said = (u64, Result<Arc<Position>, ServerError>);

impl Ends {
    pub(super) fn new(partitions: u16) -> Self {
        Self {
            partitions,
            seen: Mutex::default(),
            moments: AtomicU64::new(1),
            said: Stream::ALL
                .iter()
                .map(|stream| (*stream, tokio::sync::Mutex::new((0, Ok(Arc::default())))))
                .collect(),
        }
    }

    /// A record was stored, or read.
    pub(super) fn saw(&self, shard: Shard, sequence: u64) {
        self.seen.lock().advance(shard, sequence);
    }

    /// The ends of some streams as of now or later.
    pub(super) async fn now(&self, server: &dyn Server, streams: &[Stream]) -> Result<Position, ServerError> {
        let asked = self.said.iter().filter(|(stream, _)| streams.contains(stream));
        let asked = asked.map(|(stream, said)| self.of_stream(server, *stream, said));
        let mut position = Position::start();
        for ends in futures::future::try_join_all(asked).await? {
            position.merge(&ends);
        }
        let seen = self.seen.lock();
        for (shard, sequence) in seen.0.iter().filter(|((stream, _), _)| streams.contains(stream)) {
            position.advance(*shard, *sequence);
        }
        Ok(position)
    }

    async fn of_stream(
        &self,
        server: &dyn Server,
        stream: Stream,
        said: &tokio::sync::Mutex<Said>,
    ) -> Result<Arc<Position>, ServerError> {
        let came = self.moments.fetch_add(1, Ordering::Relaxed);
        let mut said = said.lock().await;
        if said.0 < came {
            let began = self.moments.fetch_add(1, Ordering::Relaxed);
            *said = (began, self.ask(server, stream).await.map(Arc::new));
        }
        said.1.clone()
    }

    async fn ask(&self, server: &dyn Server, stream: Stream) -> Result<Position, ServerError> {
        let mut position = Position::start();
        for (shard, end) in ask_each(server, stream, self.partitions).await {
            let end = end?;
            if end > 0 {
                position.advance(shard, end);
            }
        }
        Ok(position)
    }
}

/// Asks the leader of each shard of a stream where it ends.
pub(super) async fn ask_each(
    server: &dyn Server,
    stream: Stream,
    partitions: u16,
) -> Vec<(Shard, Result<u64, ServerError>)> {
    let asked = (0..partitions).map(|partition| async move {
        let shard = (stream, partition);
        (shard, server.end(&stream_name(shard)).await)
    });
    futures::future::join_all(asked).await
}
