//! What a source owns in its cluster.

use std::collections::BTreeMap;

use events::desired::FinishedManifest;
use events::digest::Sha256;
use events::object::ObjectKey;
use events::observation::OwnedObject;
use events::{AgentId, SourceId};

use super::{DeliveryState, Owned, SourceState};

impl DeliveryState {
    /// The object ran to its end. Its agent has to know that when it begins anew, as the object may be gone by then.
    pub(super) fn apply_finished(
        &mut self,
        agent: AgentId,
        source: SourceId,
        (key, uid): (&ObjectKey, &str),
        digest: Sha256,
        failed: Option<String>,
    ) {
        let finished = FinishedManifest { digest, failed };
        let mut is_news = false;
        self.observed_source(agent, source, |state| {
            if let Some(owned) = state.inventory.get_mut(key).filter(|owned| owned.uid == uid) {
                is_news = owned.finished.as_ref() != Some(&finished);
                owned.finished = Some(finished);
            }
        });
        if is_news {
            self.desired_changed(agent);
        }
    }
}

impl SourceState {
    /// The agent deleted an object of a prune list, or kept it.
    pub(super) fn pruned(&mut self, key: &ObjectKey, uid: &str, kept: Option<&String>) {
        // Under this name another one may have been made meanwhile, which the list that this came of did not mean.
        let Some(owned) = self.inventory.get_mut(key).filter(|owned| owned.uid == uid) else { return };
        match kept {
            Some(reason) => owned.kept = Some(reason.clone()),
            None => drop(self.inventory.remove(key)),
        }
    }

    /// The agent stated that it owns an object; why it kept it is so until it is asked to delete it again.
    pub(super) fn stated(&mut self, object: &OwnedObject, before: &BTreeMap<ObjectKey, Owned>) {
        let key = object.identity.key();
        let former = self.inventory.get(&key).or_else(|| before.get(&key));
        let former = former.filter(|former| former.uid == object.uid);
        let (kept, finished) =
            former.map(|former| (former.kept.clone(), former.finished.clone())).unwrap_or_default();
        self.inventory.insert(key, Owned { kept, finished, ..owned(object) });
    }
}

pub(super) fn owned(object: &OwnedObject) -> Owned {
    Owned {
        identity: object.identity.clone(),
        uid: object.uid.clone(),
        adopted: object.adopted,
        kept: None,
        finished: None,
    }
}
