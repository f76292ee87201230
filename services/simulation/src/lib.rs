//! The services that ship, run in one process and on one thread, on a world that a seed determines.
//!
//! Purpose: find what goes wrong only when things go wrong at the wrong moment, and be able to see it again.
//!
//! Laws:
//! - The same seed gives the same run, step by step: chance, time and the order of tasks come from it alone.
//! - What runs is what ships, `run(args, deps, shutdown)` of each service and of the agent; simulated are disk, network, clock,
//!   randomness, the NATS servers of bus and log, Git, and the API servers of clusters.
//! - The simulated servers pass the suites that the real ones pass.
//! - No shipped binary holds any of it.
//!
//! Deliberately absent: TLS (tunnels, API servers and what people say to gateways are plain text here), the console, browsers, jobs,
//! connections to clusters that become another protocol, and every kind but a few of a cluster's: of those with a health Deployments alone,
//! and of what makes their pods nothing but how many there are.
#![warn(missing_docs)]

mod access;
mod agent;
mod api_server;
mod audit;
mod cluster;
mod dice;
mod disk;
mod executor;
mod faults;
mod forge;
mod forger;
mod log;
mod nats;
mod network;
mod order;
mod people;
mod process;
mod run;
mod scene;
mod series;

pub use faults::Kind;
pub use run::{Flaw, Report, Setting, run};
pub use series::{Series, cores};
