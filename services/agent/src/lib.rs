//! The agent: makes one cluster match the desired state from its server, and reports what it did and observed.
//!
//! Purpose: apply bundles by server-side apply, correct drift, prune listed objects, judge health, report.
//!
//! Laws:
//! - It decides nothing that the server could decide: bundle, prune list, policies and the applier's name come from the server.
//! - It writes only while it holds its Lease and the desired state names it as the applier.
//! - Each object carries the owner mark from its first write. The agent deletes only objects with its own mark that the server lists with
//!   their UID.
//! - No object of a stage is applied before all objects of the stage have passed their dry run.
//! - An object that matches its manifest causes no request.
//! - Values of Secrets leave the cluster neither in observations nor in logs.
//! - Every request to the cluster's API through the agent needs a pass that the pinned root key signed.
//!
//! Pure code is in [`model`], and [`applier`] performs it through [`kubernetes`]. [`link`] is the agent's own HTTP service, which the
//! server calls through the tunnel. [`cluster_api`] is the part of it through which users and jobs use the cluster's API.
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
