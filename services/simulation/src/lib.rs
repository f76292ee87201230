//! The shipped services, run in one process and on one thread, in a world that a seed determines.
//!
//! Purpose: find failures that need an unlikely order of events, and reproduce them.
//!
//! Laws:
//! - The same seed gives the same run, step by step: chance, time and the order of tasks depend on the seed alone.
//! - The shipped code runs: `run(args, deps, shutdown)` of each service and of the agent. Simulated are disk, network, clock,
//!   randomness, the NATS servers of bus and log, Git, and the API servers of clusters.
//! - The simulated servers pass the same suites as the real ones.
//! - No shipped binary contains any of this code.
//!
//! Deliberately absent: TLS (tunnels, API servers, webhooks and clients of gateways use plain text here), the console, browsers, jobs,
//! and connections to clusters that upgrade to another protocol. Of a cluster's kinds only a few exist: of those with a health only Deployments,
//! and of their pods only the number.
#![warn(missing_docs)]

mod access;
mod agent;
mod api_server;
mod audit;
mod cluster;
mod dice;
mod disk;
mod executor;
mod exports;
mod faults;
mod forge;
mod forger;
mod log;
mod nats;
mod network;
mod order;
mod people;
mod process;
mod receivers;
mod run;
mod scene;
mod series;

pub use faults::Kind;
pub use run::{Flaw, Report, Setting, run};
pub use series::{Series, cores};
