//! An agent reports on its own sources only, and each thing where it belongs.

use std::collections::BTreeSet;

use events::observation::{Observation, Observed};
use events::{SourceId, Text};

/// Whether anything is not the agent's to report, or not here.
#[must_use]
pub fn has_foreign<S: Text>(observations: &[Observation<S>], own: &BTreeSet<SourceId>) -> bool {
    observations.iter().any(|observation| match &observation.what {
        Observed::InventoryStated { objects, .. } => {
            objects.iter().any(|object| !own.contains(&object.source))
        }
        what => match concerns(what) {
            Concern::Agent => false,
            Concern::Source(source) => !own.contains(&source),
            Concern::Elsewhere => true,
        },
    })
}

/// What was left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// Whose sources it was about, where it was about another agent's.
    pub sources: BTreeSet<SourceId>,
    /// Observations that belong elsewhere.
    pub misplaced: u64,
    /// Observations and objects of a stated inventory.
    pub count: u64,
}

impl Removed {
    fn foreign(&mut self, source: SourceId) {
        self.sources.insert(source);
        self.count += 1;
    }
}

/// Leaves out what is not the agent's to report, and what is not an observation of what it did. An observation becomes an empty gap, so that
/// sequences stay dense; objects of others' sources leave a stated inventory.
pub fn remove_foreign<S: Text>(observations: &mut [Observation<S>], own: &BTreeSet<SourceId>) -> Removed {
    let mut removed = Removed::default();
    for observation in observations {
        if let Observed::InventoryStated { objects, .. } = &mut observation.what {
            objects.retain(|object| {
                let mine = own.contains(&object.source);
                if !mine {
                    removed.foreign(object.source);
                }
                mine
            });
            continue;
        }
        match concerns(&observation.what) {
            Concern::Agent => {}
            Concern::Source(source) if own.contains(&source) => {}
            Concern::Source(source) => {
                removed.foreign(source);
                observation.what = Observed::Gap { dropped: 0 };
            }
            Concern::Elsewhere => {
                (removed.misplaced, removed.count) = (removed.misplaced + 1, removed.count + 1);
                observation.what = Observed::Gap { dropped: 0 };
            }
        }
    }
    removed
}

/// Leaves out of the changes of objects what is none; it becomes an empty gap, so that sequences stay dense. Says how much it was. Of what a
/// newer agent says, a newer fold knows what it is.
pub fn remove_misplaced<S: Text>(observations: &mut [Observation<S>]) -> u64 {
    let mut removed = 0;
    for observation in observations {
        let what = &observation.what;
        if !what.is_of_objects() && !matches!(what, Observed::Gap { .. } | Observed::Unknown(_)) {
            observation.what = Observed::Gap { dropped: 0 };
            removed += 1;
        }
    }
    removed
}

enum Concern {
    Agent,
    Source(SourceId),
    /// What gateways say, and changes of objects.
    Elsewhere,
}

const fn concerns<S: Text>(what: &Observed<S>) -> Concern {
    match what {
        Observed::ObjectApplied { object, .. } => Concern::Source(object.source),
        Observed::SyncStarted { source, .. }
        | Observed::ObjectPruned { source, .. }
        | Observed::ObjectFailed { source, .. }
        | Observed::SyncWaiting { source, .. }
        | Observed::SyncFinished { source, .. }
        | Observed::DriftSeen { source, .. }
        | Observed::DriftCorrected { source, .. }
        | Observed::ObjectFinished { source, .. }
        | Observed::HealthChanged { source, .. }
        | Observed::WatchesBroken { source, .. }
        | Observed::ExtraSeen { source, .. }
        | Observed::CorrectionFailed { source, .. }
        | Observed::SourceBlocked { source, .. } => Concern::Source(*source),
        // Of what a newer agent says, a newer fold knows whose source it is about.
        Observed::InventoryStated { .. }
        | Observed::ApiServerLost { .. }
        | Observed::ApiServerReached {}
        | Observed::Gap { .. }
        | Observed::Unknown(_) => Concern::Agent,
        Observed::TunnelOpened { .. }
        | Observed::TunnelClosed { .. }
        | Observed::TunnelRefused { .. }
        | Observed::ObjectSeen { .. }
        | Observed::ObjectKept { .. }
        | Observed::ObjectGone { .. }
        | Observed::KindListed { .. }
        | Observed::KindBlind { .. }
        | Observed::KindDropped { .. }
        | Observed::KindsSettled { .. }
        | Observed::ObjectsGap { .. } => Concern::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use events::observation::{Gone, OwnedObject, UnknownObservation};
    use events::value::AnyValue;
    use events::{ObjectIdentity, Timestamp};
    use uuid::Uuid;

    use super::*;

    fn gone() -> Observed {
        let OwnedObject { identity, uid, .. } = owned(1);
        Observed::ObjectGone { identity, uid, resource_version: "7".to_owned(), why: Gone::Deleted }
    }

    fn source(number: u128) -> SourceId {
        SourceId(Uuid::from_u128(number))
    }

    fn owned(number: u128) -> OwnedObject {
        let identity = ObjectIdentity {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "a".to_owned(),
            name: "b".to_owned(),
        };
        OwnedObject { source: source(number), identity, uid: "u".to_owned(), digest: None, adopted: false }
    }

    #[test]
    fn others_sources_and_gateways_words_are_left_out_in_place() {
        let blocked = |number| Observed::SourceBlocked {
            source: source(number),
            reason: String::new(),
            missing: Vec::new(),
        };
        let whats = vec![
            blocked(1),
            blocked(2),
            Observed::TunnelRefused { agent: None, reason: String::new() },
            Observed::InventoryStated { objects: vec![owned(1), owned(3)], last: true, unlisted: Vec::new() },
            Observed::Gap { dropped: 7 },
            gone(),
        ];
        let mut observations: Vec<Observation> =
            whats.into_iter().map(|what| Observation { at: Timestamp(1), what }).collect();
        let own = BTreeSet::from([source(1)]);
        assert!(has_foreign(&observations, &own));
        let removed = remove_foreign(&mut observations, &own);
        assert!(!has_foreign(&observations, &own));
        let sources = BTreeSet::from([source(2), source(3)]);
        assert_eq!(removed, Removed { sources, misplaced: 2, count: 4 });
        let whats: Vec<Observed> = observations.into_iter().map(|observation| observation.what).collect();
        assert_eq!(
            whats,
            [
                blocked(1),
                Observed::Gap { dropped: 0 },
                Observed::Gap { dropped: 0 },
                Observed::InventoryStated { objects: vec![owned(1)], last: true, unlisted: Vec::new() },
                Observed::Gap { dropped: 7 },
                Observed::Gap { dropped: 0 },
            ]
        );
    }

    #[test]
    fn changes_of_objects_are_all_that_is_left_among_themselves() {
        let unknown = UnknownObservation { kind: "new".to_owned(), version: 1, content: AnyValue::Nil };
        let kept = [gone(), Observed::Gap { dropped: 7 }, Observed::Unknown(Box::new(unknown))];
        let misplaced =
            [Observed::ApiServerReached {}, Observed::TunnelRefused { agent: None, reason: String::new() }];
        let observed = |what| Observation { at: Timestamp(1), what };
        let mut observations: Vec<Observation> =
            kept.iter().chain(&misplaced).cloned().map(observed).collect();
        assert_eq!(remove_misplaced(&mut observations), 2);
        let gap: Observed = Observed::Gap { dropped: 0 };
        let expected: Vec<Observed> = kept.into_iter().chain([gap.clone(), gap]).collect();
        let left: Vec<Observed> = observations.into_iter().map(|observation| observation.what).collect();
        assert_eq!(left, expected);
    }
}
