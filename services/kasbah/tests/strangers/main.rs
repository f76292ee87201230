//! What a stranger, the owner of another organization, sees and changes of this one: nothing, by any route and any request.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod agent;
mod api;
mod bus;
mod consumers;
mod graphql;
mod lists;
mod nats;
mod organization;
mod running;
