//! The gateway over real TLS sockets and the real embedded store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may"
)]

#[path = "gateway/agent.rs"]
mod agent;
#[path = "gateway/harness.rs"]
mod harness;

#[path = "gateway/clients.rs"]
mod clients;

#[path = "gateway/accept.rs"]
mod accept;
#[path = "gateway/browser.rs"]
mod browser;
#[path = "gateway/bulk.rs"]
mod bulk;
#[path = "gateway/http1.rs"]
mod http1;
#[path = "gateway/intake.rs"]
mod intake;
#[path = "gateway/limits.rs"]
mod limits;
#[path = "gateway/object_changes.rs"]
mod object_changes;
#[path = "gateway/push.rs"]
mod push;
#[path = "gateway/reconnects.rs"]
mod reconnects;
#[path = "gateway/recording.rs"]
mod recording;
#[path = "gateway/rights.rs"]
mod rights;
#[path = "gateway/sessions.rs"]
mod sessions;
#[path = "gateway/tickets.rs"]
mod tickets;
