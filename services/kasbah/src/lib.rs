//! The kasbah binary.
