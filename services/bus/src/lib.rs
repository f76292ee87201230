//! The bus: how services ask each other and wake each other.
//!
//! Purpose: requests with deadlines, notices, and ordered byte streams, over NATS or inside one process, with the same laws.
//!
//! Laws, each checked by the suite `conformance` against every implementation:
//! - Only encoded bytes cross. A message over [`MAXIMUM_MESSAGE_BYTES`] is refused at the sender.
//! - A request ends: with a reply, with `NoResponder` at once when nobody serves the subject, or with `Deadline`.
//! - Of the members of one queue group exactly one gets a request.
//! - A notice reaches every subscriber that was there when it was sent, at most once, in order per publisher; a subscriber
//!   that is too slow loses messages and is told so.
//! - A byte stream is ordered and complete or reset; its writer waits for credit, so that a slow reader stops its own stream
//!   and no one else's.
//!
//! Deliberately absent: durability. What must not be lost goes into the log.
#![warn(missing_docs)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod context;
pub mod contract;
pub mod dispatch;
pub mod local;
pub mod nats;
pub mod presence;
mod queue;
pub mod typed;

pub use context::{DEFAULT_DEADLINE, caused_by, context_for, context_for_service, within};
pub use contract::{
    Bus, BusError, ByteReader, ByteStream, ByteWriter, Handler, Heard, MAXIMUM_FIRST_BYTES,
    MAXIMUM_MESSAGE_BYTES, MAXIMUM_SUBJECT_BYTES, NOTICE_QUEUE, NOTICE_QUEUE_BYTES, Opening, ReadBytes,
    RequestError, Serving, StreamHandler, StreamReset, Subscription, WriteBytes,
};
pub use dispatch::{Dispatcher, Service};
pub use local::LocalBus;
pub use nats::{NatsBus, NatsOptions, permissions};
pub use presence::{Live, Presence};
pub use typed::{announce, answer, answer_under, ask, ask_under, handler_of};
