//! The agent against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod aggregated;
mod apply;
mod attributes;
mod autoscaler;
mod cases;
mod connections;
mod controlled;
mod diff;
mod drift;
mod finished;
mod health;
mod health_cases;
mod holders;
mod https;
mod instances;
mod kinds;
mod kubeconfig;
mod observer;
mod outage;
mod ownership;
mod proxy;
mod prune;
mod replace;
mod restarts;
mod rig;
mod rights;
mod secrets;
mod shared_feeds;
mod throttled;
mod waits;
mod webhook;
