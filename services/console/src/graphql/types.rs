//! The types of the schema, made of those of the bus.

pub(super) mod agent;
pub(super) mod commit;
pub(super) mod delivered;
pub(super) mod environment;
pub(super) mod filter;
pub(super) mod network;
pub(super) mod owner;
pub(super) mod resource;
pub(super) mod rights;
pub(super) mod scalar;
pub(super) mod source;
