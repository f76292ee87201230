//! The agent link, both ends.
//!
//! Purpose: an agent connects to a gateway and sends its token in an HTTP/1.1 upgrade. Then **the roles are reversed** on the same
//! connection: the agent serves HTTP/2, and the gateway is its client. [`agent`] and [`gateway`] are the two ends, [`handshake`]
//! is the exchange before the reversal, [`wire`] defines the messages after it, and [`http2`] is the HTTP/2 client for this and other connections.
//!
//! Laws:
//! - Every wait has a limit: connecting, TLS, the upgrade, each request, and a silent peer (PING in both directions).
//! - A slow reader stops only its own stream. The connection's window is larger than all its streams' windows
//!   together, at both ends. Data of a stream is read through a [`body::GuardedBody`]: it reads at once, and grants more window only as its reader
//!   consumes data. It resets its own stream if its frames are too small or its reader stops.
//! - Neither end sends many small frames: small DATA frames are joined ([`body::Coalesced`]), and an empty frame is sent only as the last
//!   one. A peer counts the small frames that it buffers, and closes the whole connection over its limit.
//! - The token is never part of an error, a log line or a `Debug` text.
//!
//! Deliberately absent: the meaning of requests and the decision to open connections beside the tunnel (the agent and the gateway decide),
//! authentication (a callback), the choice of certificates (the caller passes rustls configurations), the link inside a WebSocket, for
//! which the handshake has room, and upgrades inside the tunnel: a session consists of the two bodies of a request.
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
