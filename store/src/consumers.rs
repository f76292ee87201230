//! Durable consumers of exported events, from which programs outside fetch. Only NATS has them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use events::export::TypePattern;
use events::{ConsumerName, Position, Timestamp};

/// The consumers of exports that the servers keep.
///
/// Laws:
/// 1. A consumer gives the exported events of its organization and its types behind its position, each again until it is acknowledged, and of
///    no other organization.
/// 2. Consumers whose names are not of [`ConsumerName`] are neither listed nor touched.
/// 3. A paused consumer gives nothing, keeps where it is, and takes acknowledgements of what it gave before.
#[async_trait]
pub trait ExportConsumers: Send + Sync {
    /// All consumers of exports, by name.
    async fn list(&self) -> Result<BTreeMap<ConsumerName, Consumer>, ConsumerError>;

    /// A consumer; `None` when there is no such one.
    async fn find(&self, name: ConsumerName) -> Result<Option<Consumer>, ConsumerError>;

    /// When the oldest event was exported that a consumer wants and that was not acknowledged; `None` when there is no such event or consumer.
    async fn oldest(&self, name: ConsumerName) -> Result<Option<Timestamp>, ConsumerError>;

    /// Makes a consumer. One of the same name is replaced.
    async fn make(&self, wanted: &NewConsumer) -> Result<(), ConsumerError>;

    /// Pauses a consumer, or lets it go on; nothing happens where there is no such one.
    async fn pause(&self, name: ConsumerName, pause: bool) -> Result<(), ConsumerError>;

    /// Deletes a consumer; one that is not there is deleted already.
    async fn delete(&self, name: ConsumerName) -> Result<(), ConsumerError>;
}

/// A consumer that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewConsumer {
    /// Its name.
    pub name: ConsumerName,
    /// Only events of these types; of all, if empty.
    pub types: Vec<TypePattern>,
    /// It begins behind this position of the exports.
    pub behind: Position,
    /// What it was made for; kept with it.
    pub purpose: String,
    /// It gives nothing before somebody lets it go on.
    pub paused: bool,
}

/// A consumer, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Consumer {
    /// The name of the stream on the servers.
    pub stream: String,
    /// What it was made for.
    pub purpose: String,
    /// It gives nothing now.
    pub paused: bool,
    /// Events that were not given out yet.
    pub pending: u64,
    /// Events that were given out and not acknowledged yet.
    pub unacknowledged: u64,
    /// Of those, how many were given out more than once.
    pub redelivered: u64,
    /// When an event was last given out.
    pub fetched_at: Option<Timestamp>,
    /// When an event was last acknowledged.
    pub acknowledged_at: Option<Timestamp>,
}

impl Consumer {
    /// Events that it wants and that were not acknowledged.
    #[must_use]
    pub const fn behind(&self) -> u64 {
        self.pending.saturating_add(self.unacknowledged)
    }
}

/// The servers did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot reach the consumers of exports: {detail}")]
pub struct ConsumerError {
    /// What happened.
    pub detail: String,
}
