//! GraphQL at `/api/graphql`: what runs in the clusters, where it comes from, and what changes, in one question.
//!
//! Laws:
//! - Each field is answered by a request over the bus as the caller (`asker`), so nobody sees more than by the other routes. The commits of a source
//!   are read from the log, once delivery has let the caller see the source.
//! - A refusal has the same kind here as there, in the `extensions` of its error (`failure`).
//! - A query is measured before it runs ([`limits`]); whatever exceeds a limit is refused with the name of the limit.
//! - A subscription holds a bounded number of events, and ends with a reason when its reader is too slow (`sse`, `websocket`).
//! - The schema is checked in as `docs/reference/schema.graphql`, and a test compares it.
//!
//! Deliberately absent: mutations, and persisted queries.

use std::sync::Arc;

use async_graphql::{EmptyMutation, SDLExportOptions, Schema};
use tokio::sync::Semaphore;

pub(crate) mod asker;
mod changes;
mod explorer;
mod failure;
mod feed;
mod http;
pub mod limits;
mod page;
mod query;
mod request;
mod slots;
mod sse;
mod subscription;
mod types;
mod websocket;

pub(crate) use http::{PATHS, add_to};
pub use query::Query;
pub use subscription::Subscription;

/// The schema with its resolvers.
pub type KasbahSchema = Schema<Query, EmptyMutation, Subscription>;

/// What all GraphQL requests share.
pub(crate) struct Graphql {
    schema: KasbahSchema,
    /// Open subscriptions.
    slots: slots::Slots,
    /// Open WebSockets whose clients have said who they are.
    sockets: slots::Slots,
    /// All open WebSockets: a connection that became one counts no more among those of the server.
    all_sockets: Arc<Semaphore>,
}

impl Default for Graphql {
    fn default() -> Self {
        let (own, all) = (limits::MAXIMUM_SUBSCRIPTIONS, limits::MAXIMUM_ALL_SUBSCRIPTIONS);
        let (own_sockets, all_sockets) = (limits::MAXIMUM_SOCKETS, limits::MAXIMUM_ALL_SOCKETS);
        Self {
            schema: schema(),
            slots: slots::Slots::new(("subscriptions", own), ("allSubscriptions", all)),
            sockets: slots::Slots::new(("webSockets", own_sockets), ("allWebSockets", all_sockets)),
            all_sockets: Arc::new(Semaphore::new(all_sockets)),
        }
    }
}

/// Makes the schema.
#[must_use]
pub fn schema() -> KasbahSchema {
    Schema::build(Query, EmptyMutation, Subscription).extension(limits::CostLimit).finish()
}

/// The schema as text.
#[must_use]
pub fn sdl() -> String {
    schema().sdl_with_options(SDLExportOptions::new().prefer_single_line_descriptions())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_schema_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/schema.graphql");
        let fresh = sdl();
        if std::env::var_os("KASBAH_WRITE_REFERENCE").is_some() {
            std::fs::write(path, &fresh).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        let advice = "docs/reference/schema.graphql is stale: run KASBAH_WRITE_REFERENCE=1 cargo test -p console graphql";
        assert!(written == fresh, "{advice}");
    }
}
