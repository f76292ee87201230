//! The agent: makes one cluster match what its server wants, and says what it did and saw.
//!
//! Purpose: apply bundles by server-side apply, correct drift, prune what is listed, judge health, report.
//!
//! Laws:
//! - It decides nothing that the server could decide: bundle, prune list, policies and who applies come from there.
//! - It writes only while it holds its Lease and is the applier that the desired state names.
//! - Each object carries the owner mark from its first write; nothing without this very mark, listed by the server with its
//!   UID, is ever deleted.
//! - Nothing of a stage is applied before all of it passed its dry run.
//! - An object that is as it should be costs no request.
//! - Values of Secrets leave the cluster neither in observations nor in logs.
//! - Nobody uses the cluster's API through it without a pass that the pinned root key signed.
//!
//! What is pure stands in [`model`]; [`applier`] performs it through [`kubernetes`]; [`link`] is the agent's own HTTP service, which the
//! server drives through the tunnel; [`cluster_api`] is the part of that through which people and jobs use the cluster's API.
//!
//! Deliberately absent: Git, rendering, schemas of kinds, a cache of whole objects, a disk.

pub mod applier;
pub mod args;
pub mod cluster_api;
pub mod desired;
pub mod kubernetes;
pub mod lease;
pub mod link;
pub mod metrics;
pub mod model;
pub mod outbox;
pub mod reach;
pub mod run;

pub use args::Args;
pub use run::{Agent, Deps, run};

/// The name under which this agent's fields stand in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "kasbah";
