//! From a Git push to a running cluster, with every part real: the programs as they ship, Git over HTTP, an API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "helpers of tests end a test by panicking, and measure real time"
)]

mod attempts;
mod browser;
mod chaos;
mod cluster_api;
mod cluster_faults;
mod command_lines;
mod commands;
mod copies;
mod delivery_page;
mod differences;
mod environments;
mod exports;
mod fixtures;
mod hand_over;
mod impersonation;
mod index;
mod jobs;
mod k9s;
mod log;
mod login;
mod page;
mod pods;
mod push;
mod receiver;
mod refused;
mod replicas;
mod retention;
mod scene;
mod services;
mod sessions;
mod sharing;
mod terminal;
mod traces;
mod trouble;
mod truth;
mod viewers;
