//! May an object that is there already be written?

use events::configuration::Adoption;
use objects::ownership::{Adopt, OwnerMark};

/// Whose an existing object is, seen from the source that wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The source's own.
    Own,
    /// Another source's of this agent.
    Sibling {
        /// That source still has the object in its bundle.
        current: bool,
    },
    /// Another agent's.
    Foreign,
    /// Nobody's.
    Nobody,
}

/// Whose an object with this mark is.
#[must_use]
pub fn owner_of(mark: Option<&OwnerMark>, own: &OwnerMark, sibling_has_it: impl Fn(&str) -> bool) -> Owner {
    match mark {
        None => Owner::Nobody,
        Some(mark) if mark == own => Owner::Own,
        Some(mark) if mark.organization == own.organization && mark.agent == own.agent => {
            Owner::Sibling { current: sibling_has_it(&mark.source) }
        }
        Some(_) => Owner::Foreign,
    }
}

/// What may be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write it.
    Write,
    /// Write it, mark it as adopted, and take over what kubectl manages.
    Adopt,
    /// Leave it.
    Refuse(&'static str),
}

/// Decides by the object's own annotation, else by the source's policy.
#[must_use]
pub const fn decide(owner: Owner, policy: Adoption, own: Option<Adopt>) -> Decision {
    let policy = match own {
        Some(Adopt::MustMatch) => Adoption::MustMatch,
        Some(Adopt::IfNoInventory) => Adoption::AdoptIfNoInventory,
        Some(Adopt::All) => Adoption::AdoptAll,
        None => policy,
    };
    match (owner, policy) {
        // Moving a file between sources neither deletes nor adopts: the object was ours all along.
        (Owner::Own | Owner::Sibling { current: false }, _) => Decision::Write,
        (Owner::Sibling { current: true }, _) => {
            Decision::Refuse("the object is in another source of this agent as well")
        }
        (Owner::Nobody, Adoption::AdoptIfNoInventory | Adoption::AdoptAll)
        | (Owner::Foreign, Adoption::AdoptAll) => Decision::Adopt,
        (Owner::Nobody, Adoption::MustMatch) => {
            Decision::Refuse("the object exists and is not ours; policy must_match takes over nothing")
        }
        (Owner::Foreign, Adoption::MustMatch | Adoption::AdoptIfNoInventory) => {
            Decision::Refuse("the object belongs to another agent or organization")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owner_under_every_policy() {
        use Adoption::{AdoptAll, AdoptIfNoInventory, MustMatch};
        let may = |owner, policy| match decide(owner, policy, None) {
            Decision::Write => "write",
            Decision::Adopt => "adopt",
            Decision::Refuse(_) => "refuse",
        };
        let rows = [
            (Owner::Own, ["write", "write", "write"]),
            (Owner::Sibling { current: false }, ["write", "write", "write"]),
            (Owner::Sibling { current: true }, ["refuse", "refuse", "refuse"]),
            (Owner::Nobody, ["refuse", "adopt", "adopt"]),
            (Owner::Foreign, ["refuse", "refuse", "adopt"]),
        ];
        for (owner, expected) in rows {
            assert_eq!(
                [MustMatch, AdoptIfNoInventory, AdoptAll].map(|policy| may(owner, policy)),
                expected,
                "{owner:?}"
            );
        }
    }

    #[test]
    fn the_objects_own_annotation_wins() {
        assert_eq!(decide(Owner::Nobody, Adoption::MustMatch, Some(Adopt::All)), Decision::Adopt);
        assert!(matches!(
            decide(Owner::Nobody, Adoption::AdoptAll, Some(Adopt::MustMatch)),
            Decision::Refuse(_)
        ));
    }

    #[test]
    fn owners_are_told_apart() {
        let mark = |organization: &str, agent: &str, source: &str| OwnerMark {
            organization: organization.into(),
            agent: agent.into(),
            source: source.into(),
        };
        let own = mark("o", "a", "s");
        let owner = |mark: Option<&OwnerMark>| owner_of(mark, &own, |source| source == "current");
        assert_eq!(owner(None), Owner::Nobody);
        assert_eq!(owner(Some(&own)), Owner::Own);
        assert_eq!(owner(Some(&mark("o", "a", "current"))), Owner::Sibling { current: true });
        assert_eq!(owner(Some(&mark("o", "a", "former"))), Owner::Sibling { current: false });
        assert_eq!(owner(Some(&mark("o", "b", "s"))), Owner::Foreign);
        assert_eq!(owner(Some(&mark("p", "a", "s"))), Owner::Foreign);
    }
}
