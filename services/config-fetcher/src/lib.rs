//! Which configuration of an agent is in force.
//!
//! Purpose: reads `.kasbah/agents/<name>/config.yaml` of each agent's configuration project, checks all of it, and records
//! `configuration.changed` or `configuration.rejected`. `docs/agent-configuration.md` describes the file.
//!
//! Laws:
//! - The last good configuration stays in force: a file that is wrong, missing or cannot be read changes nothing.
//! - A refused file is told in full: every finding with file, line, column, field and what is allowed.
//! - A project is named by its path and resolved inside the agent's organization; what the agent may not read is refused.
//! - The same content, and the same findings, are recorded once.
//!
//! Deliberately absent: Git (repo-poller reads files), what a source's objects are, what an agent is to have.
#![warn(missing_docs)]

mod access;
mod args;
mod driver;
pub mod model;
pub mod schema;

pub use access::ACCESS;
pub use args::Args;
pub use driver::{Deps, run};
