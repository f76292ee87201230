//! The desired state of each agent, and its syncs.
//!
//! Purpose: answers `source.advanced` with a bundle and a prune list for the agent, or holds the bundle until a user confirms it; suspends,
//! pins, confirms; names appliers; records the start and end of syncs; records environments and deployments.
//!
//! Laws:
//! - A prune list names only objects of the source's inventory, with their UID, that are in no current bundle of the same agent.
//!   It names adopted objects only if the source's policy permits that.
//! - A bundle that is empty, or would prune more than half and more than ten objects, waits for confirmation.
//! - Unreadable input removes nothing: a missing configuration, an unreadable repository, a refused commit.
//! - [`model`] and [`environments`] are pure; [`driver`] appends their decisions.
//!
//! Deliberately absent: Git (repo-poller), the connection to the agent (tunnel-gateway).
#![warn(missing_docs)]

mod access;
pub mod driver;
pub mod environments;
pub mod metrics;
pub mod model;

mod bundles;
mod handlers;
mod lists;
mod measure;
mod queue;

pub use access::ACCESS;
pub use driver::{Args, Deps, run};
