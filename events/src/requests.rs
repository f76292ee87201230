//! Requests of each service, one file a service.

pub mod authz;
pub mod configuration;
pub mod delivery;
pub mod diff;
pub mod environments;
pub mod gateway;
pub mod index;
pub mod page;
pub mod presence;
pub mod repository;
pub mod rights;
pub mod status;
pub mod subscriptions;
