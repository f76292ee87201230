//! The agent link, both ends.
//!
//! Purpose: an agent dials a gateway, shows its token in an HTTP/1.1 upgrade, and then **the roles turn round** on that very
//! connection: the agent serves HTTP/2, the gateway is its client. [`agent`] and [`gateway`] are the two ends, [`handshake`]
//! what is said before the turn, [`wire`] what travels after it, [`http2`] how a client of HTTP/2 asks, here and elsewhere.
//!
//! Laws:
//! - Every wait has an end: dialling, TLS, the upgrade, each request, and a peer that went silent (PING both ways).
//! - One slow reader stops its own stream and no other: the connection's window is larger than all its streams' windows
//!   together, at both ends, and what comes over a stream is read through a [`body::GuardedBody`]: at once, with room for more only as its reader
//!   takes it. It resets its own stream when its frames are too small or its reader stands still.
//! - Neither end sends dust: small DATA frames are joined where they are many ([`body::Coalesced`]), and one that is empty and not the last
//!   is never sent. A peer counts those that it holds and closes the whole connection over its budget.
//! - The token is never part of an error, a log line or a `Debug` text.
//!
//! Deliberately absent: what the requests mean and when a connection beside the tunnel is wanted (the agent's and the gateway's business),
//! authentication (a callback), the choice of certificates (the caller hands over rustls configurations), the link within a WebSocket, for
//! which the handshake has room, and upgrades inside the tunnel: a session is the two bodies of a request.
#![warn(missing_docs)]

pub mod agent;
pub mod body;
pub mod gateway;
pub mod handshake;
pub mod http2;
pub mod settings;
pub mod wire;

mod corked;
mod gathered;
mod runtime;
mod waiting;

/// What crosses the two ends of this crate when something else failed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
