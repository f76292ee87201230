//! Agents' connections: tunnels, and the bulk connections beside them.
//!
//! An agent dials in. `accept` takes the handshake, asks authz whose token it is, checks that the agent has capacity, and enters a
//! `session` in the `registry`. The session runs until it is dismissed, its token ends (`revocations`, expiry) or the connection breaks.
//! Meanwhile `intake` reads the agent's observations and the changes of objects that it saw into the log, and `crate::delivery` pushes its desired state. Requests to the
//! cluster's API take `capacity` of the connection; when that is nearly used up, `bulk` asks the agent for one more connection. Requests
//! for an agent that has just lost its connections wait in `reconnects`.

pub(crate) mod accept;
pub(crate) mod bulk;
pub(crate) mod capacity;
mod intake;
mod journal;
mod metered;
pub(crate) mod model;
pub(crate) mod reconnects;
pub(crate) mod registry;
pub(crate) mod revocations;
pub(crate) mod session;
mod throttle;

pub(crate) use intake::ObjectIntake;
pub(crate) use journal::{Journal, journal};
pub use model::{ObjectCursors, ObservationCursors};
pub(crate) use model::{RefusalThrottle, Standing};
pub(crate) use registry::Registry;
pub(crate) use throttle::Throttle;
