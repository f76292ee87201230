//! Which root signs passes.

use events::directory::{DirectoryEvent, RootRotated, Scope};
use events::requests::authz::Action;
use events::root::RootLink;
use events::{AggregateKind, CommitId, OrganizationId, Refusal, RefusalKind, RootId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Asker, Decided, Directory, aggregate};

/// A root that took the place of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaterRoot {
    /// Under which the key ring has it.
    pub id: RootId,
    /// The former root's word for it.
    pub link: RootLink,
    /// Since when it signs.
    pub since: Timestamp,
    /// The commit of the request that made it.
    pub made_by: CommitId,
}

/// The number of the root that may follow these now.
///
/// # Errors
/// There were too many, or the last one is too new.
pub fn next_root(later: &[LaterRoot], now: Timestamp) -> Result<u32, Refusal> {
    if later.len() >= RootLink::MOST {
        let message =
            format!("there were {} root keys already, the maximum that agents follow", RootLink::MOST);
        return Err(Refusal::new(RefusalKind::Conflict, message));
    }
    let Some(last) = later.last() else { return Ok(1) };
    // Passes of a root that was followed twice would be refused while gateways still hold them.
    let again = last.since.plus_millis(RootLink::OVERLAP_MILLIS);
    if now < again {
        let message = format!(
            "the root was rotated at {}, and gateways may still hold passes of the former one: it can be rotated again at {again}",
            last.since
        );
        return Err(Refusal::new(RefusalKind::Conflict, message));
    }
    Ok(last.link.number.saturating_add(1))
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

    /// Has another root sign from now on. Whoever wanted this when another was faster has what that one made.
    ///
    /// # Errors
    /// Not allowed, too many, or too early.
    pub fn rotate_root(
        &self,
        asker: &Asker,
        root: RootId,
        link: &RootLink,
        now: Timestamp,
    ) -> Result<Decided<()>, Refusal> {
        self.may_rotate_root(asker)?;
        if self.roots.last().is_some_and(|last| last.link.number >= link.number) {
            return Ok(Decided::already(()));
        }
        if next_root(&self.roots, now)? != link.number {
            return Err(Refusal::new(RefusalKind::Conflict, "that root is not the next one"));
        }
        let of = aggregate(AggregateKind::Organization, OrganizationId::SYSTEM);
        let event = DirectoryEvent::RootRotated(RootRotated { root, link: link.clone() });
        self.draft(OrganizationId::SYSTEM, of, vec![event], ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::OPERATOR;
    use crate::model::given::{Given, NOW};

    /// Rotates to the root of that number, with a key of its own, as the driver asks for it.
    fn rotate(given: &mut Given, asker: &Asker, number: u32) -> Result<RootId, Refusal> {
        let (id, key) = (RootId(given.id()), given.key());
        let public_key = [id.0.as_bytes().as_slice(); 2].concat();
        let link = RootLink { number, public_key, signature: vec![7; 64] };
        let now = NOW.plus_millis(given.passed_millis);
        let decided = given.directory.rotate_root(asker, id, &link, now)?;
        given.then(key, Ok(decided));
        Ok(id)
    }

    fn scene() -> (Given, Asker) {
        let mut given = Given::default();
        let home = given.organization("home");
        let operator = given.user(home, &[OPERATOR]);
        (given, operator)
    }

    #[test]
    fn it_is_rotated_again_once_nobody_holds_passes_of_the_one_before() {
        let (mut given, operator) = scene();
        rotate(&mut given, &operator, 1).unwrap();
        given.passed_millis = RootLink::OVERLAP_MILLIS - 1;
        let refusal = rotate(&mut given, &operator, 2).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Conflict);
        let again = NOW.plus_millis(RootLink::OVERLAP_MILLIS).to_string();
        assert!(refusal.message.contains(&NOW.to_string()), "{}", refusal.message);
        assert!(refusal.message.contains(&format!("again at {again}")), "{}", refusal.message);
        given.passed_millis = RootLink::OVERLAP_MILLIS;
        let id = rotate(&mut given, &operator, 2).unwrap();
        let last = given.directory.later_roots().last().unwrap();
        assert_eq!((last.id, last.link.number), (id, 2));
        assert_eq!(last.since, NOW.plus_millis(RootLink::OVERLAP_MILLIS));
    }

    #[test]
    fn of_two_at_once_one_makes_the_next_root_and_the_other_has_it() {
        let (mut given, operator) = scene();
        let first = rotate(&mut given, &operator, 1).unwrap();
        rotate(&mut given, &operator, 1).unwrap();
        let later = given.directory.later_roots();
        assert_eq!(later.iter().map(|root| root.id).collect::<Vec<_>>(), [first]);
        given.passed_millis = RootLink::OVERLAP_MILLIS;
        assert_eq!(rotate(&mut given, &operator, 3).unwrap_err().kind, RefusalKind::Conflict, "one left out");
    }

    #[test]
    fn only_operators_rotate_and_no_more_than_agents_follow() {
        let (mut given, operator) = scene();
        let home = operator.organization;
        let owner = given.owner(home);
        assert_eq!(rotate(&mut given, &owner, 1).unwrap_err().kind, RefusalKind::NotFound);
        for number in 1..=u32::try_from(RootLink::MOST).unwrap() {
            rotate(&mut given, &operator, number).unwrap();
            given.passed_millis += RootLink::OVERLAP_MILLIS;
        }
        let refusal = rotate(&mut given, &operator, 65).unwrap_err();
        assert!(refusal.message.contains("64 root keys"), "{}", refusal.message);
    }
}
