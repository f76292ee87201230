//! Carries: desired state to agents, observations into the log. It decides nothing.
//!
//! Purpose: hold the agents' tunnels, and let people and jobs reach clusters' APIs through them. A tunnel is opened only for a live agent token (authz says so over the bus), is told what
//! its agent is to have whenever that changes, and is read for observations, which are acknowledged to the agent once the log
//! has them.
//!
//! Laws:
//! - What an agent sends is untrusted: batches are appended only when they follow what is durable without a gap, from the
//!   instance and epoch that delivery named ([`model::judge`]); what concerns another agent's sources is left out and marked as a
//!   gap ([`model::screen`]); an agent gets only the objects of its own desired state, whatever it asks for.
//! - A tunnel of a revoked token, an expired token or a deleted agent is closed within a second of the event.
//! - A request to a cluster's API goes on only with a pass of authz, which is asked again when anything changes; what is open and would
//!   no longer be let through in the same way is ended within two seconds.
//! - One agent stops no other: each tunnel has its own task, its own bounds in memory, and a rate.
//! - What this process knows beyond the log (who is connected, what was sent) may be lost at any time.
//!
//! Deliberately absent: decisions on what agents are to have (delivery), who may connect (authz), and what observations mean.
#![warn(missing_docs)]

pub mod model;

mod access;
mod answers;
mod append;
mod args;
mod bulk;
mod cluster_api;
mod counted;
mod door;
mod gateway;
mod intake;
mod journal;
pub mod metrics;
mod push;
mod questions;
mod registry;
mod resolve;
mod returns;
mod room;
mod run;
mod session;
mod supply;
mod together;
mod turns;

pub use access::ACCESS;
pub use args::{Args, Audited, ClusterLimits};
pub use cluster_api::{ClusterListener, NotAnOrigin, Origin};
pub use run::{Deps, run};
