//! What runs in the clusters, how it is, and why; now and in the past.
//!
//! Purpose: folds the changes of objects that agents saw, relates objects to each other, judges their health, keeps their history, finds
//! the environments that they belong to, and answers questions about all of that.
//!
//! Laws:
//! - It decides nothing and appends nothing. Its database is a projection: it may be lost, and is made anew from the log, as far back as
//!   that reaches.
//! - No answer tells of an object that the asker could not list in its cluster, neither by its name nor in a count.
//! - An object is its UID: another one of the same name is another object.
//! - Nor does it tell of an environment whose project's environments the asker may not see.
//! - What is known is stated with what it is worth: a cluster that is not connected is stale, a kind that is not seen is said to be.
//! - [`model`] is pure; [`driver`] follows the log, writes the database, and asks authz and the clusters' own authorization about rights and
//!   delivery about environments.
//!
//! Deliberately absent: commands, and what decides on environments and deployments.
#![warn(missing_docs)]

mod access;
pub mod delta;
pub mod driver;
pub mod imported;
pub mod metrics;
pub mod model;
pub mod store;

mod changes;
mod clusters;
mod compared;
mod handlers;
mod past;
mod rights;

pub use access::ACCESS;
pub use driver::{Args, Deps, run};
