//! Carries desired state to agents, observations into the log, and requests to clusters' APIs. It decides nothing.
//!
//! The way of what goes through, by folder:
//! - `tunnels`: an agent dials in. `accept` authenticates it with authz and enters its `session` in the `registry`; `intake` reads its
//!   observations into the log and acknowledges them once they are durable; `journal` records that it came and went.
//! - `delivery`: a desired state goes out. A notice of the delivery service wakes `push`, which asks for the plan, resolves it to
//!   `bundles`, and sends what the agent lacks (`transfer`).
//! - `cluster_api`: a request of a person, a job or a page comes in. `route` names the agent, `admission` gets a pass of authz and checks
//!   limits, `audit` and `recording` write it down, and `forward` sends it over an `upstream`: a connection here, or a `hop` to the gateway
//!   that has one.
//!
//! What they share: `gateway` (state), `run` (start and stop), `requests` (answers over the bus), `batching`, `append` and `token_bucket`.
//!
//! Laws:
//! - What an agent sends is untrusted: batches are appended only when they follow what is durable without a gap, from the
//!   instance and epoch that delivery named (`tunnels::model::check_batch`); what concerns another agent's sources is left out and marked as
//!   a gap (`tunnels::model::remove_foreign_sources`); an agent gets only the objects of its own desired state, whatever it asks for.
//! - A tunnel of a revoked token, an expired token or a deleted agent is closed within a second of the event.
//! - A request to a cluster's API goes on only with a pass of authz, which is requested again when anything changes; an open request that
//!   the new pass would not admit in the same way is ended within two seconds.
//! - One agent stops no other: each tunnel has its own task, its own bounds in memory, and a rate.
//! - What this process knows beyond the log (who is connected, what was sent) may be lost at any time.
//!
//! Deliberately absent: decisions on what agents are to have (delivery), who may connect (authz), and what observations mean.
#![warn(missing_docs)]

mod cluster_api;
mod delivery;
mod tunnels;

mod access;
mod append;
mod args;
mod batching;
mod gateway;
pub mod metrics;
mod requests;
mod run;
mod token_bucket;

pub use access::ACCESS;
pub use args::{Args, Audited, ClusterLimits};
pub use cluster_api::{ClusterListener, InvalidOrigin, Origin};
pub use run::{Deps, run};
pub use tunnels::Cursors;
