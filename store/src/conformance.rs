//! Laws of the traits, checked against every implementation.
