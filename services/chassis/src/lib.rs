//! The parts that every process shares: settings, logs, traces, metrics, health, TLS, HTTPS, drain and supervision.
//!
//! Purpose: a service consists of its decisions and its driver; this crate provides everything around them once.
//!
//! Laws:
//! - Settings come from the command line, then the environment (`KASBAH_…`), then a file, then their defaults. An invalid setting
//!   is refused by name before anything starts, and the process exits with [`args::EXIT_BAD_CONFIGURATION`].
//! - If a task ends unexpectedly, the process ends with a message that names the task ([`Supervisor`]).
//! - A process that is asked to stop drains and ends by its deadline ([`Shutdown`]).
//! - A process reports ready only while each of its parts is ready ([`Readiness`]).
//! - The error for a refused certificate names the cause and the remedy ([`tls::explain`]).
//!
//! Deliberately absent: any knowledge of what the process does.
#![warn(missing_docs)]

pub mod address;
pub mod admin;
pub mod args;
pub mod logs;
pub mod metrics;
pub mod readiness;
pub mod server;
pub mod session;
pub mod shutdown;
pub mod supervisor;
pub mod tls;
pub mod traces;

pub use metrics::Metrics;
pub use readiness::{Readiness, ReadyHandle};
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use supervisor::{Supervisor, TaskGroup};
