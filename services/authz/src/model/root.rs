//! Which root signs passes.

use events::directory::{DirectoryEvent, RootRotated, Scope};
use events::requests::authz::Action;
use events::root::RootLink;
use events::{AggregateKind, OrganizationId, Refusal, RefusalKind, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Asker, Decided, Directory, aggregate};

/// A root that took the place of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaterRoot {
    /// The former root's word for it.
    pub link: RootLink,
    /// Since when it signs.
    pub since: Timestamp,
}

impl Directory {
    /// All that took the place of the first one, in order.
    #[must_use]
    pub fn later_roots(&self) -> &[LaterRoot] {
        &self.roots
    }

    /// Whether the asker may see and rotate it.
    ///
    /// # Errors
    /// When not.
    pub fn may_rotate_root(&self, asker: &Asker) -> Result<(), Refusal> {
        // It is the installation's, wherever the asker is at home.
        let organization = OrganizationId::SYSTEM;
        let asker = Asker { actor: asker.actor.clone(), organization };
        self.authorize(&asker, Action::RotateRoot, Scope::Organization(organization), "root")
    }

    /// Has another root sign from now on.
    ///
    /// # Errors
    /// Not allowed, somebody else was faster, or there were too many.
    pub fn rotate_root(&self, asker: &Asker, link: &RootLink) -> Result<Decided<()>, Refusal> {
        self.may_rotate_root(asker)?;
        if self.roots.last().is_some_and(|last| last.link == *link) {
            return Ok(Decided::already(()));
        }
        if self.roots.len() >= RootLink::MOST {
            let message = format!("there were {} roots already, and agents follow no more", RootLink::MOST);
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        if usize::try_from(link.number) != Ok(self.roots.len() + 1) {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                "the root was rotated at this moment; look at it",
            ));
        }
        let of = aggregate(AggregateKind::Organization, OrganizationId::SYSTEM);
        let event = DirectoryEvent::RootRotated(RootRotated { link: link.clone() });
        self.draft(OrganizationId::SYSTEM, of, vec![event], ())
    }
}
