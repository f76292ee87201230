//! Decides which configuration of an agent is in force.
//!
//! Purpose: reads `.kasbah/agents/<name>/config.yaml` of each agent's configuration project, validates the whole file, and records
//! `configuration.changed` or `configuration.rejected`. `docs/agent-configuration.md` describes the file.
//!
//! Laws:
//! - The last good configuration stays in force: a file that is wrong, missing or unreadable changes nothing.
//! - All findings of a refused file are reported, each with file, line, column, field and the allowed values.
//! - A project is named by its path and resolved inside the agent's organization. A project that the agent may not read is refused.
//! - The same content, and the same findings, are recorded once.
//!
//! Deliberately absent: Git (repo-poller reads files), the objects of a source, and the desired state of an agent.
#![warn(missing_docs)]

mod access;
mod args;
mod driver;
pub mod model;
pub mod schema;

pub use access::ACCESS;
pub use args::Args;
pub use driver::{Deps, run};
