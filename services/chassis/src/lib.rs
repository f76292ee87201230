//! What every process shares.
