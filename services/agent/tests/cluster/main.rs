//! The agent against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod apply;
mod attributes;
mod cases;
mod connections;
mod controlled;
mod diff;
mod drift;
mod finished;
mod health;
mod holders;
mod instances;
mod kinds;
mod kubeconfig;
mod outage;
mod ownership;
mod proxy;
mod prune;
mod replace;
mod rig;
mod rights;
mod secrets;
mod throttled;
mod waits;
mod webhook;
