//! The agent's own HTTP service, which the server drives through the tunnel, and the tunnel itself.

mod access;
mod bulk;
mod client;
mod events_answer;
mod last_message;
mod service;
mod tunnel_check;

pub use access::Access;
pub use client::LinkKeeper;
pub use service::{AgentService, AnswerBody};
