//! The gateway's end: it accepts, and then asks.

mod accept;
mod connection;
mod driver;
mod gathered;

pub use accept::{AcceptError, Accepted, Door, Presented, Rejection};
pub use connection::{AgentConnection, AskError, Asked, Unanswered};
