//! What the parts of the store need of a JetStream server: few operations, each with what it may and may not promise.
//!
//! The rest of this module knows nothing of connections, so that it runs over a simulated server as well.

use async_trait::async_trait;
use bytes::Bytes;
use events::Timestamp;
use tokio::sync::mpsc;

/// A JetStream server, or a cluster of them.
#[async_trait]
pub trait Server: Send + Sync {
    /// Publishes once and waits for the acknowledgement. What is asked for first is sent first.
    async fn publish(&self, message: &Publish) -> Result<Ack, PublishError>;

    /// The newest message of a subject, as the stream's leader has it.
    async fn newest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, ServerError>;

    /// The newest message of a subject, as any replica has it: one that lags may know of none yet.
    async fn nearest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, ServerError>;

    /// Messages of a stream in order, as any replica has them: one that lags may give fewer than there are.
    async fn page(&self, page: &Page) -> Piece;

    /// The messages from a sequence to another that is known to be stored, for long stretches. What is wrong comes as the last thing.
    async fn replay(&self, stream: &str, from: u64, to: u64) -> Result<mpsc::Receiver<Piece>, ServerError>;

    /// What a stream holds, as its leader knows.
    async fn extent(&self, stream: &str) -> Result<Extent, ServerError>;

    /// The sequence of the last message that a stream ever stored, 0 for none, as its leader knows.
    async fn end(&self, stream: &str) -> Result<u64, ServerError> {
        Ok(self.extent(stream).await?.last)
    }

    /// Removes the messages before a sequence whose subjects a filter names.
    async fn purge(&self, stream: &str, filter: &str, before: u64) -> Result<(), ServerError>;

    /// What is stored from now on under a filter, soon after it is stored. Nothing is promised: what was lost on the way is
    /// said where it is known.
    async fn stored(&self, filter: &str) -> Result<mpsc::Receiver<Live>, ServerError>;

    /// Whether there is a connection. Without one everything ends at once.
    fn is_connected(&self) -> bool;
}

/// What a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The sequence of the oldest message that is kept; at most 1 as long as none has left.
    pub first: u64,
    /// The sequence of the last message that it ever stored, 0 for none.
    pub last: u64,
    /// Bytes of what is kept.
    pub bytes: u64,
}

/// A message on its way into a stream.
#[derive(Debug, Clone)]
pub struct Publish {
    /// The stream that must take it.
    pub stream: String,
    /// Under which subject.
    pub subject: String,
    /// By which the server drops a second one for some minutes.
    pub id: Option<String>,
    /// Sequence of the subject's last message, 0 for none; unchecked when absent.
    pub expected: Option<u64>,
    /// Of a record of another log: where it must lie, and when that log took it.
    pub copied: Option<Copied>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The content.
    pub payload: Bytes,
}

impl Publish {
    /// A message without id and further headers.
    pub fn plain(stream: &str, subject: String, expected: Option<u64>, payload: Bytes) -> Self {
        let stream = stream.to_owned();
        Self { stream, subject, id: None, expected, copied: None, headers: Vec::new(), payload }
    }
}

/// What a record of another log keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Sequence of the stream's last message, 0 for none.
    pub behind: u64,
    /// When the other log took it: the server keeps it with the message, and [`Stored::recorded_at`] gives it.
    pub recorded_at: Timestamp,
}

/// A message is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// One with the same id was stored before, under this sequence.
    pub duplicate: bool,
}

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its subject.
    pub subject: String,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When the server took it; of a record of another log, when that one did.
    pub recorded_at: Timestamp,
    /// By which the server drops a second one.
    pub id: Option<String>,
    /// The content.
    pub payload: Bytes,
}

/// Which messages are wanted.
#[derive(Debug, Clone)]
pub struct Page {
    /// The stream.
    pub stream: String,
    /// The first sequence.
    pub from: u64,
    /// How many at most.
    pub most: usize,
    /// Only subjects that this one or this filter names.
    pub subject: Option<String>,
}

/// Messages that are read together, in order.
pub type Piece = Result<Vec<Stored>, ServerError>;

/// What a subscriber of stored messages hears.
#[derive(Debug, Clone)]
pub enum Live {
    /// A message was stored.
    Stored(Stored),
    /// Some may have been lost.
    Missed,
}

/// A message was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// 10071, or 10164 from a cluster in which another message of the subject is under way.
    #[error("the subject's last sequence is not the expected one")]
    Expectation,
    /// 10158: a message with the same id is under way.
    #[error("a message with the same id is under way")]
    UnderWay,
    /// It was not sent, or nobody leads the stream.
    #[error("{0}")]
    Away(String),
    /// It was sent, and no answer came.
    #[error("{0}")]
    Unknown(String),
    /// The server takes no such message; it is not stored.
    #[error("{0}")]
    Refused(String),
}

/// The server did not answer, or not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ServerError(pub String);
