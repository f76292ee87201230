//! The gateway's end: it accepts, and then asks.

mod accept;
mod connection;
mod driver;
mod tls;

pub use accept::{AcceptError, Accepted, Acceptor, Presented, Rejection};
pub use connection::{Again, AgentConnection, AgentReply, AskError, Unanswered};
pub use tls::Secured;
