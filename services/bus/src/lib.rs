//! The bus: requests and notices between services.
//!
//! Purpose: requests with deadlines, notices, and ordered byte streams, over NATS or inside one process, with the same laws.
//!
//! Laws, each checked by the suite `conformance` against every implementation:
//! - Only encoded bytes cross the bus. The sender refuses a message over [`MAXIMUM_MESSAGE_BYTES`].
//! - A request ends with a reply, with `NoResponder` at once if no service subscribes to the subject, or with `Deadline`.
//! - Exactly one member of a queue group receives a request.
//! - A notice reaches every subscriber that existed when it was sent, at most once, in order per publisher. A subscriber
//!   that is too slow loses messages and gets an error.
//! - A byte stream is ordered, and complete or reset. Its writer waits for credit, so a slow reader stops only its own stream.
//!
//! Deliberately absent: durability. Facts that must not be lost belong in the log.
#![warn(missing_docs)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod context;
pub mod contract;
pub mod dispatch;
pub mod local;
pub mod nats;
pub mod page;
pub mod presence;
mod queue;
pub mod typed;

pub use context::{DEFAULT_DEADLINE, caused_by, context_for, context_for_service, within};
pub use contract::{
    Bus, BusError, ByteReader, ByteStream, ByteWriter, Handler, MAXIMUM_FIRST_BYTES, MAXIMUM_MESSAGE_BYTES,
    MAXIMUM_SUBJECT_BYTES, NOTICE_QUEUE, NOTICE_QUEUE_BYTES, Opening, ReadBytes, Received, RequestError,
    Serving, StreamHandler, StreamReset, Subscription, WriteBytes,
};
pub use dispatch::{Dispatcher, Service};
pub use local::LocalBus;
pub use nats::{NatsBus, NatsOptions, permissions};
pub use page::{PageBuilder, page};
pub use presence::{Live, Presence};
pub use typed::{announce, answer, answer_under, ask, ask_of_agent, ask_under, handler_of};
