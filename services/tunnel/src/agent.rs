//! The agent's end: it dials, and then serves.

mod dial;
mod reconnect;
mod serve;

pub use dial::{DEFAULT_DIAL_TIMEOUT, DialError, Link, Target, Transport, dial, dial_within};
pub use reconnect::{Ended, Reconnect};
pub use serve::{LinkBody, LinkEnd};
