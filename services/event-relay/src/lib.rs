//! Events for programs outside: CloudEvents in a stream of their own, and webhooks.
//!
//! Purpose: follows the log once, makes CloudEvents of what it says (`events::cloud_event` is the one mapping), adds what they are about,
//! and appends them to the stream of exports, numbered for each organization. From there the console serves them as server-sent events,
//! NATS to consumers of an organization, and this service to webhooks. `docs/events.md` describes all of it for users.
//!
//! Laws:
//! - Nothing is skipped: what was exported is known by the exports themselves, and by a checkpoint that is saved only after the exports up to
//!   it were read back. A lost checkpoint repeats events, with the same ids.
//! - The events of an aggregate are exported in their order, one replica exports at a time, and of two that do by accident only the later
//!   one's count (`events::export`).
//! - A receiver decides nothing for others: each has a task, a reader and a cursor of its own, with named limits. Addresses are looked at
//!   before they are dialled, redirects are not followed, and answers are read to a limit.
//! - Subscriptions are decisions. Cursors and dead letters are not: they are checkpoints (`cursors`).
//!
//! Deliberately absent: serving HTTP (the console does), and changes of objects, which are too many for programs outside.
#![warn(missing_docs)]

mod access;
mod alerts;
mod args;
mod consumers;
mod cursors;
mod deliverer;
mod driver;
mod ends;
mod exporter;
mod handlers;
mod measure;
mod message;
pub mod metrics;
pub mod model;
mod readers;
mod sender;
mod signature;

pub use access::ACCESS;
pub use args::Args;
pub use driver::{Deps, run};
