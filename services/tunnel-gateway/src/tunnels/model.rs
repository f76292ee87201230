//! What is folded and checked for agents' connections. Pure.

mod cursors;
mod ownership;
mod recent_agents;
mod refusal_throttle;
mod sequence;
mod standing;

pub use cursors::Cursors;
pub use ownership::{has_foreign_sources, remove_foreign_sources};
pub use recent_agents::RecentAgents;
pub use refusal_throttle::{RefusalKey, RefusalThrottle};
pub use sequence::{BatchFault, check_batch};
pub use standing::Standing;
