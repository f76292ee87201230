//! The agent link, both ends.
