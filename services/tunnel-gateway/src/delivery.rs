//! Desired states on their way to agents. What an agent is to have is decided by the delivery service.
//!
//! `notices` hears that desired states changed and wakes the sessions of their agents. `push` then asks the delivery service for the plan,
//! has its blobs read (`bundles`), sends the agent the pages and objects that it lacks (`transfer`), and puts the state until the agent
//! takes it. `diff` sends an agent a state that it only compares with its cluster.

mod bundles;
pub(crate) mod diff;
mod model;
pub(crate) mod notices;
pub(crate) mod push;
mod transfer;

pub(crate) use bundles::BundleCache;
