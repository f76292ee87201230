//! What the gateway folds and judges. Pure.

mod causes;
mod cursors;
mod judge;
mod known;
pub mod looks;
mod rate;
mod reach;
mod refusals;
mod screen;
mod standing;

pub use causes::Causes;
pub use cursors::Cursors;
pub use judge::{Fault, judge};
pub use known::Known;
pub use rate::Rate;
pub use reach::Reach;
pub use refusals::{Refusals, Refused};
pub use screen::{concerns_others, screen};
pub use standing::Standing;
