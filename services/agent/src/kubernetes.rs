//! The cluster's API server, as plain requests with JSON bodies: no typed models, so that code and memory stay small.

mod alone;
pub mod api_server;
pub mod call;
pub mod client;
mod clients;
pub mod connections;
pub mod discovery;
mod kept;
#[cfg(test)]
mod made;
pub mod path;
mod plain;
mod shared;
pub mod status;

pub use api_server::{ApiServer, Lane};
pub use call::{Accept, Answer, Call};
pub use client::Kube;
pub use connections::{AnswerBody, Answering, Channel, ChannelError, ConnectError, Connections, KubeOptions};
pub use discovery::{Discovery, Resource};
pub use status::{ApiError, ApiStatus};
