//! What each agent is to have, and its syncs.
//!
//! Purpose: answers `source.advanced` with a bundle and a prune list for the agent, or holds it for a person; suspends,
//! pins, confirms; names appliers; records when syncs begin and end.
//!
//! Laws:
//! - A prune list names only objects of the source's inventory, with their UID, that no current bundle of the same agent
//!   has, and never an object that was taken over unless the source's policy says so.
//! - A bundle that is empty, or would prune more than half and more than ten objects, waits for confirmation.
//! - Nothing that could not be read removes anything: a missing configuration, an unreadable repository, a refused commit.
//! - [`model`] is pure; [`driver`] appends what it decides.
//!
//! Deliberately absent: Git (repo-poller), the way to the agent (tunnel-gateway), environments and deployments.
#![warn(missing_docs)]

mod access;
pub mod driver;
pub mod metrics;
pub mod model;

mod bundles;
mod handlers;
mod queue;

pub use access::ACCESS;
pub use driver::{Args, Deps, run};
