//! An agent reports on its own sources only.

use std::collections::BTreeSet;

use events::observation::{Observation, Observed};
use events::{SourceId, Text};

/// Whether anything is not the agent's to report.
#[must_use]
pub fn has_foreign_sources<S: Text>(observations: &[Observation<S>], own: &BTreeSet<SourceId>) -> bool {
    observations.iter().any(|observation| match &observation.what {
        Observed::InventoryStated { objects, .. } => {
            objects.iter().any(|object| !own.contains(&object.source))
        }
        what => match concerns(what) {
            Concern::Agent => false,
            Concern::Source(source) => !own.contains(&source),
            Concern::Gateway => true,
        },
    })
}

/// Leaves out what is not the agent's to report. An observation becomes an empty gap, so that sequences stay dense; objects
/// of others' sources leave a stated inventory. Gives the foreign sources.
pub fn remove_foreign_sources<S: Text>(
    observations: &mut [Observation<S>],
    own: &BTreeSet<SourceId>,
) -> BTreeSet<SourceId> {
    let mut foreign = BTreeSet::new();
    for observation in observations {
        if let Observed::InventoryStated { objects, .. } = &mut observation.what {
            objects.retain(|object| {
                let mine = own.contains(&object.source);
                if !mine {
                    foreign.insert(object.source);
                }
                mine
            });
            continue;
        }
        match concerns(&observation.what) {
            Concern::Agent => {}
            Concern::Source(source) if own.contains(&source) => {}
            Concern::Source(source) => {
                foreign.insert(source);
                observation.what = Observed::Gap { dropped: 0 };
            }
            Concern::Gateway => observation.what = Observed::Gap { dropped: 0 },
        }
    }
    foreign
}

enum Concern {
    Agent,
    Source(SourceId),
    Gateway,
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
        Observed::TunnelOpened { .. } | Observed::TunnelClosed { .. } | Observed::TunnelRefused { .. } => {
            Concern::Gateway
        }
    }
}

#[cfg(test)]
mod tests {
    use events::observation::OwnedObject;
    use events::{ObjectIdentity, Timestamp};
    use uuid::Uuid;

    use super::*;

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
        ];
        let mut observations: Vec<Observation> =
            whats.into_iter().map(|what| Observation { at: Timestamp(1), what }).collect();
        let own = BTreeSet::from([source(1)]);
        assert!(has_foreign_sources(&observations, &own));
        let foreign = remove_foreign_sources(&mut observations, &own);
        assert!(!has_foreign_sources(&observations, &own));
        assert_eq!(foreign, BTreeSet::from([source(2), source(3)]));
        let whats: Vec<Observed> = observations.into_iter().map(|observation| observation.what).collect();
        assert_eq!(
            whats,
            [
                blocked(1),
                Observed::Gap { dropped: 0 },
                Observed::Gap { dropped: 0 },
                Observed::InventoryStated { objects: vec![owned(1)], last: true, unlisted: Vec::new() },
                Observed::Gap { dropped: 7 },
            ]
        );
    }
}
