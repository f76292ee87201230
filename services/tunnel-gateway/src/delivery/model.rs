//! What is computed for pushes. Pure.

mod causes;
mod known_objects;
pub mod refresh;

pub use causes::Causes;
pub use known_objects::KnownObjects;
