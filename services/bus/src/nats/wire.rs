//! What the bus needs of a connection to NATS: few operations, so that it runs over a simulated one as well.

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use tokio::sync::watch;

pub use async_nats::{HeaderMap, Message, StatusCode};

/// A connection that comes back by itself.
#[async_trait]
pub trait Wire: Send + Sync {
    /// Sends a message; what is sent first goes first. Without a connection it may go once there is one.
    async fn publish(
        &self,
        to: String,
        reply: Option<String>,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), WireError>;

    /// Sends a message and waits for the first answer, for ever.
    async fn request(&self, to: String, headers: HeaderMap, payload: Bytes) -> Result<Message, WireError>;

    /// Hears what is sent from soon on under a subject or filter: all of it, or as a member of a group. Goes on by itself after
    /// a loss of the connection.
    async fn subscribe(
        &self,
        subject: String,
        group: Option<String>,
    ) -> Result<Box<dyn Subscriber>, WireError>;

    /// A subject that nobody else uses.
    fn new_inbox(&self) -> String;

    /// Whether there is a connection now.
    fn is_connected(&self) -> bool;

    /// How often a connection was made.
    fn connects(&self) -> u64;

    /// Changes whenever messages may have been lost.
    fn interruptions(&self) -> watch::Receiver<u64>;
}

/// What is heard. Dropping it ends the subscription.
#[async_trait]
pub trait Subscriber: Stream<Item = Message> + Send + Unpin {
    /// Ends the subscription; the stream ends behind what was on its way.
    async fn drain(&mut self) -> Result<(), WireError>;
}

/// A message was not sent or not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Nobody hears the subject.
    #[error("no subscriber")]
    Nobody,
    /// The connection is closed or does not take it.
    #[error("{0}")]
    Failed(String),
}
