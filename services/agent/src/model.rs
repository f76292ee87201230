//! What the agent decides, without clock, randomness or network.

pub mod adoption;
pub mod backoff;
pub mod book;
pub mod cause;
pub mod difference;
pub mod extra;
pub mod fights;
pub mod finished;
pub mod managed;
pub mod manifest;
pub mod prune;
pub mod sets;
pub mod share;
pub mod takeover;
pub mod target;
pub mod verdict;
