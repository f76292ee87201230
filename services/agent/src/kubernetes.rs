//! The cluster's API server, as plain requests with JSON bodies: no typed models, so that code and memory stay small.

pub mod api_server;
pub mod call;
pub mod client;
mod clients;
pub mod connections;
#[cfg(test)]
mod counted;
pub mod discovery;
mod lines;
mod live_object;
mod page;
pub mod path;
mod per_request;
mod plain;
mod pool;
mod shared;
pub mod status;
mod watch_events;

pub use api_server::{ApiServer, Lane};
pub use call::{Accept, Answer, Call};
pub use client::Kube;
pub use connections::{AnswerBody, Answering, Channel, ChannelError, ConnectError, Connections, KubeOptions};
pub use discovery::{Discovery, Resource};
pub use live_object::LiveObject;
pub use page::Page;
pub use status::{ApiError, ApiStatus};
pub use watch_events::{InitialEvent, WatchEvent, WatchEvents};
