//! Watches repositories and builds bundles: the only part of Kasbah that speaks Git.
//!
//! Purpose: says for each manifest source which commit and bundle is its newest (`source.advanced`), or why there is none
//! (`bundle.rejected`, `fetch.failed`); reads files of repositories for other services.
//!
//! Laws:
//! - A repository is read only while an agent with a live token wants it, and only after authz allowed it, each time.
//! - A repository is watched once, however many sources and agents want it; a broken one stops no other.
//! - Nothing that was said before is taken back because something cannot be read.
//! - A tenant's repository never leads to an address, file or other host that the operator did not allow, and a credential is
//!   sent to its own host only.
//! - Blobs are durable before the event that names them; all of one ref's sources are said in one commit.
//! - Work is proportional to what changed: only changed files are parsed, only touched pages are encoded.
//!
//! Deliberately absent: what an agent is to have (delivery decides), rendering and hooks (refused with a message), writing to
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
