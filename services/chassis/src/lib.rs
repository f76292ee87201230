//! What every process shares: settings, logs, traces, metrics, health, TLS, HTTPS, drain and supervision.
//!
//! Purpose: a service is its decisions and its driver; everything around them is here once.
//!
//! Laws:
//! - Settings come from the command line, then the environment (`KASBAH_…`), then a file, then their defaults. A wrong one
//!   is refused before anything starts, with its name, and the process ends with [`args::EXIT_BAD_CONFIGURATION`].
//! - A task that ends unexpectedly ends the process, with a message that names it ([`Supervisor`]).
//! - A process that is asked to stop drains and ends by its deadline ([`Shutdown`]).
//! - It says that it is ready only while each of its parts does ([`Readiness`]).
//! - A certificate that is refused is explained: what is wrong and what to do ([`tls::explain`]).
//!
//! Deliberately absent: anything that knows what the process does.
#![warn(missing_docs)]

pub mod admin;
pub mod args;
pub mod logs;
pub mod metrics;
pub mod readiness;
pub mod server;
pub mod shutdown;
pub mod supervisor;
pub mod tls;
pub mod traces;

pub use metrics::Metrics;
pub use readiness::{Readiness, ReadyHandle};
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use supervisor::{Supervisor, TaskGroup};
