//! The agent's own HTTP service, which the server drives through the tunnel, and the tunnel itself.

mod client;
mod events_answer;
mod service;

pub use client::LinkKeeper;
pub use service::{AgentService, AnswerBody};
