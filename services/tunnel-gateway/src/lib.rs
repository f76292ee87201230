//! Carries desired state to agents, observations into the log, and requests to clusters' APIs. It decides nothing.
//!
//! The path of the data, by folder:
//! - `tunnels`: an agent connects. `accept` authenticates it with authz and enters its `session` in the `registry`; `intake` reads its
//!   observations, and the changes of objects that it saw, into the log and acknowledges them once they are durable; `journal` records connects and disconnects.
//! - `delivery`: a desired state is sent. A notice of the delivery service wakes `push`, which requests the plan, resolves it to
//!   `bundles`, and sends what the agent lacks (`transfer`).
//! - `cluster_api`: a request of a user, a job or a web page arrives. `route` finds the agent, `admission` gets a pass from authz and checks
//!   limits, `audit` and `recording` record the request, and `forward` sends it over an `upstream`: a connection here, or a `hop` to the gateway
//!   that has one.
//!
//! Shared modules: `gateway` (state), `run` (start and stop), `requests` (answers over the bus), `rights` (what somebody may list in a
//! cluster: a question to its agent), `batching`, `append` and `token_bucket`.
//!
//! Laws:
//! - Input from an agent is untrusted. A batch is appended only if it follows the durable ones without a gap, and comes from the
//!   instance and epoch that delivery named (`tunnels::model::check_batch`). Observations about another agent's sources, and those that belong in
//!   the agent's other stream, are removed and marked as a gap (`tunnels::model::remove_foreign`, `remove_misplaced`). An agent gets only the objects of its own desired state, whatever it requests.
//! - A tunnel of a revoked token, an expired token or a deleted agent is closed within a second of the event.
//! - A request to a cluster's API continues only with a pass from authz, which is requested again when anything changes. An open request that
//!   the new pass would not admit in the same way is ended within two seconds.
//! - One agent cannot stop another: each tunnel has its own task, its own memory limits, and a rate limit.
//! - Changes of objects never hold up observations: they have a task, a rate, a budget of their organization and a stream of their own.
//! - State of this process that is not in the log (open connections, sent objects) may be lost at any time.
//!
//! Deliberately absent: decisions on agents' desired state (delivery), decisions on connections (authz), and the meaning of observations.
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
mod rights;
mod run;
mod token_bucket;

pub use access::ACCESS;
pub use args::{Args, Audited, ClusterLimits};
pub use cluster_api::{ClusterListener, InvalidOrigin, Origin};
pub use run::{Deps, run};
pub use tunnels::{ObjectCursors, ObservationCursors};
