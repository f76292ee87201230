//! What the agent decides, without clock, randomness or network.

pub mod adoption;
pub mod backoff;
pub mod book;
pub mod cause;
pub mod difference;
pub mod event_rate;
pub mod extra;
pub mod feeds;
pub mod fights;
pub mod finished;
pub mod known;
pub mod list_rights;
pub mod managed;
pub mod manifest;
pub mod object_queue;
pub mod prune;
pub mod sets;
pub mod share;
pub mod takeover;
pub mod target;
pub mod verdict;
