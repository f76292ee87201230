//! Requests over an HTTP/2 connection: a gateway's to its agents, at both ends, and an agent's to its API server.
//!
//! Through h2 itself, and not through hyper's client, which is built on it. That one passes each request through a channel and a task and
//! each answer through a task of its own. A request that comes to the channel as the connection closes can stay in it for good
//! (hyperium/hyper#4122); and one that was just sent as the other side says that it closes is cancelled, though it may have been taken.
//! Here it is always known whether a request was taken.

mod alive;
mod exchange;
mod received;
mod sending;
mod serving;

use h2::Reason;

pub use alive::{Lost, keep_alive};
pub use exchange::{ExchangeError, exchange};
pub use received::Received;
pub(crate) use serving::serve;

/// Whether the other side closes the connection in order (RFC 9113, section 6.8): it has not taken what ends with this, as it answers
/// what it took.
pub(crate) fn is_close_in_order(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)
}
