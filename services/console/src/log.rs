//! The log, for people and integrators: read, followed, and verified, one organization's at a time.

pub mod cursor;
pub mod exports;
pub mod once;
pub(crate) mod readers;
pub mod recording;
pub mod routes;
pub mod tail;
pub mod trace;
pub mod verify;
