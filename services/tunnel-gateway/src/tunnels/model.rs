//! What is folded and checked for agents' connections. Pure.

mod budgets;
mod cursors;
mod ownership;
mod recent_agents;
mod refusal_throttle;
mod sequence;
mod standing;

pub use budgets::Budgets;
pub use cursors::{ObjectCursors, ObservationCursors};
pub use ownership::{Removed, has_foreign, remove_foreign, remove_misplaced};
pub use recent_agents::RecentAgents;
pub use refusal_throttle::{RefusalKey, RefusalThrottle};
pub use sequence::{BatchFault, check_batch};
pub use standing::Standing;
