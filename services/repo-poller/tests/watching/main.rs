//! repo-poller with everything around it real: Git over HTTP, the embedded store, the bus of one process. Only the answers of
//! authz come from a table.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test from end to end")]

mod caching;
mod cases;
mod failing;
mod harness;
mod manifests;
mod replicas;
mod requests;
mod secure;
mod sources;
