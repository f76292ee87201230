//! repo-poller with everything around it real: Git over HTTP, the embedded store, the bus of one process. Only the answers of
//! authz come from a table.

mod failing;
mod harness;
mod manifests;
mod requests;
mod sources;
