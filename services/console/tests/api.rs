//! The API over TLS, a real log and a real bus. Behind the bus stand answers of the test's own, which record who was said to
//! ask; the services' own answers are tried with all of them together, in the tests of the `kasbah` binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "api/behind.rs"]
mod behind;
#[path = "api/deliveries.rs"]
mod deliveries;
#[path = "api/exports.rs"]
mod exports;
#[path = "api/graphql.rs"]
mod graphql;
#[path = "api/limits.rs"]
mod limits;
#[path = "api/log.rs"]
mod log;
#[path = "api/objects.rs"]
mod objects;
#[path = "api/page.rs"]
mod page;
#[path = "api/passing_on.rs"]
mod passing_on;
#[path = "api/recordings.rs"]
mod recordings;
#[path = "api/serving.rs"]
mod serving;
#[path = "api/subscriptions.rs"]
mod subscriptions;
#[path = "api/webhooks.rs"]
mod webhooks;
#[path = "api/websocket.rs"]
mod websocket;
