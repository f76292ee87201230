//! What a source owns in its cluster.

use std::collections::BTreeMap;

use events::desired::FinishedManifest;
use events::digest::Sha256;
use events::object::ObjectKey;
use events::observation::OwnedObject;
use events::{AgentId, SourceId};

use super::{AgentState, DeliveryState, Owned, SourceState, owned};

/// Of a statement of the inventory at most so much is kept until its last part is there: about two hundred thousand objects.
const STATED_BYTES: u64 = 64 << 20;

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

impl AgentState {
    /// Keeps a part of a statement.
    pub(super) fn state(&mut self, objects: &[OwnedObject]) {
        self.statement_bytes =
            objects.iter().map(stated_bytes).fold(self.statement_bytes, u64::saturating_add);
        if self.statement_bytes > STATED_BYTES {
            self.statement = Vec::new();
        } else {
            self.statement.extend(objects.iter().cloned());
        }
    }

    /// The statement, now that it is complete; `None` when it was too large to be kept.
    pub(super) fn take_statement(&mut self) -> Option<Vec<OwnedObject>> {
        let is_whole = std::mem::take(&mut self.statement_bytes) <= STATED_BYTES;
        let stated = std::mem::take(&mut self.statement);
        is_whole.then_some(stated)
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
        let (kept, finished, written) = former
            .map(|former| (former.kept.clone(), former.finished.clone(), former.written))
            .unwrap_or_default();
        self.inventory.insert(key, Owned { kept, finished, written, ..owned(object) });
    }
}

/// About how many bytes a stated object takes.
fn stated_bytes(object: &OwnedObject) -> u64 {
    let identity = &object.identity;
    let texts = [&identity.group, &identity.version, &identity.kind, &identity.namespace, &identity.name];
    let text = texts.iter().map(|text| text.len()).sum::<usize>() + object.uid.len();
    u64::try_from(size_of::<OwnedObject>() + text).unwrap_or(u64::MAX)
}
