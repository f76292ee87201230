//! The agent link, both ends.
//!
//! Purpose: an agent dials a gateway, shows its token in an HTTP/1.1 upgrade, and then **the roles turn round** on that very
//! connection: the agent serves HTTP/2, the gateway is its client. [`agent`] and [`gateway`] are the two ends, [`handshake`]
//! what is said before the turn, [`wire`] what travels after it, [`http2`] how a client of HTTP/2 asks, here and elsewhere.
//!
//! Laws:
//! - Every wait has an end: dialling, TLS, the upgrade, each request, and a peer that went silent (PING both ways).
//! - One slow reader stops its own stream and no other: the connection's window is larger than all its streams' windows
//!   together, at both ends, and every answer of an agent is read through a [`body::GuardedBody`], which resets its own stream
//!   when its frames are too small or its reader stands still.
//! - Neither end sends dust: small DATA frames are joined ([`body::Coalesced`]), and one that is empty and not the last is never
//!   sent. A peer counts both and closes the whole connection over its budget.
//! - The token is never part of an error, a log line or a `Debug` text.
//!
//! Deliberately absent: what the requests mean (the agent's and the gateway's business), authentication (a callback), the
//! choice of certificates (the caller hands over rustls configurations), WebSocket, bulk connections and upgrades inside the
//! tunnel, for which the handshake has room.
#![warn(missing_docs)]

pub mod agent;
pub mod body;
pub mod gateway;
pub mod handshake;
pub mod http2;
pub mod settings;
pub mod wire;

mod runtime;

/// What crosses the two ends of this crate when something else failed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
