//! Watches repositories and builds bundles. It is the only service that uses Git.
//!
//! Purpose: publishes the newest commit and bundle of each manifest source (`source.advanced`), or the reason why there is none
//! (`bundle.rejected`, `fetch.failed`); reads files of repositories for other services.
//!
//! Laws:
//! - A repository is read only while an agent with a valid token wants it, and only after authz has permitted this read.
//! - A repository is watched once, whatever the number of sources and agents that want it. A broken repository affects no other.
//! - A read failure never revokes a recorded fact.
//! - A tenant's repository never leads to an address, file or other host that the operator did not allow, and a credential is
//!   sent only to its own host.
//! - Blobs are durable before the event that names them. All sources of one ref are recorded in one commit.
//! - Work is proportional to the change: only changed files are parsed, and only changed pages are encoded.
//!
//! Deliberately absent: the desired state of an agent (delivery decides), rendering and hooks (refused with a message), writing to
//! repositories.
#![warn(missing_docs)]

mod access;
mod args;
pub mod bundle;
mod driver;
pub mod git;
pub mod metrics;
pub mod model;
mod requests;

/// The name under which this service acts.
const SERVICE: &str = "repo-poller";

pub use access::ACCESS;
pub use args::Args;
pub use driver::{Deps, run};
