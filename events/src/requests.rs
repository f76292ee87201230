//! Requests of each service, one file a service.

pub mod authz;
pub mod configuration;
pub mod delivery;
pub mod diff;
pub mod gateway;
pub mod page;
pub mod presence;
pub mod repository;
pub mod status;
