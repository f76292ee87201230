//! Objects, their relations, health and rights, folded from the log, and the answers made of them. Pure.

mod bodies;
mod change;
mod deployed;
mod directory;
mod environments;
mod facts;
mod filter;
mod fold;
mod former;
mod groups;
mod imported;
mod index;
mod judge;
mod kinds;
mod known;
mod list;
mod listable;
mod mesh;
mod observed;
mod optional;
mod owners;
pub mod query;
mod quick;
mod record;
mod relations;
mod rights;
mod selector;
mod text;
mod view;
mod writers;

#[cfg(test)]
pub(crate) mod given;

pub use bodies::{Bodies, LONGEST_BODY, Wanted};
pub use change::{Change, Folded, RecordedAt, What};
pub use deployed::{AllDeployed, Deployed, SetBy};
pub use directory::{Connection, Decided, Directory, Tunnels};
pub use facts::{Facts, Special};
pub use filter::{Matcher, agent_named};
pub use fold::{Fold, OBJECTS};
pub use former::{DecidedAt, Declaring, Former, FormerDeclared, Instant};
pub use groups::{Group, Groups, Membership, Memberships, project_labels};
pub use imported::ImportedRules;
pub use index::{Declarations, Declared, Index, Loading, OfKind, Room, Slot};
pub use judge::{
    RULES, asks_pods, before_imported, claims_beside, controller_of, options_of, own_verdict,
    verdict_with_judged_pods, verdict_with_pods, was_always, workloads_above,
};
pub use list::List;
pub use listable::{Listable, Question};
pub use observed::Observed;
pub use optional::Optional;
pub(crate) use quick::Quick;
pub use record::{Kind, Record, Verdict, plain_uid};
pub use relations::{Link, Relation, RelationSet, Target};
pub use rights::{AsThemselves, ClusterRights, Rights, Sight};
pub use selector::Selector;
pub use text::Text;
pub use view::View;
pub use writers::{Writer, Written};
