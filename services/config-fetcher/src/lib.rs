//! Which configuration of an agent is in force.
