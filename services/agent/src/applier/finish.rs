//! Objects that ran to their end: told once, and not made again while their manifest stands.

use std::collections::BTreeMap;

use events::ObjectIdentity;
use events::digest::Sha256;
use events::observation::Observed;
use serde_json::Value;

use super::context::Context;
use crate::model::finished::finished;
use crate::model::target::Target;

impl Context {
    /// Notes and tells that an object ran to its end, if `live` shows that and it is news.
    pub(super) fn note_end(&self, identity: &ObjectIdentity, live: &Value) {
        let Some(run) = finished(live) else { return };
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let ended = self.shared.with_book(self.id(), |book| book.finished(&identity.key(), uid));
        let Some(ended) = ended else { return };
        self.shared.outbox.report(Observed::ObjectFinished {
            source: self.id(),
            identity: identity.clone(),
            uid: uid.to_owned(),
            digest: ended.digest,
            failed: run.failure(),
        });
        if ended.drifted {
            // There is nothing left to correct.
            self.shared
                .outbox
                .report(Observed::DriftCorrected { source: self.id(), identity: identity.clone() });
        }
    }

    /// Enters what ran to its end before this applier began, as the server has it.
    pub(super) fn recall_finished<'a>(&self, targets: impl IntoIterator<Item = &'a Target>) {
        let finished = &self.source.head.finished;
        if finished.is_empty() {
            return;
        }
        let ends: BTreeMap<Sha256, Option<&str>> =
            finished.iter().map(|end| (end.digest, end.failed.as_deref())).collect();
        self.shared.with_book(self.id(), |book| {
            for target in targets {
                if let Some(failed) = ends.get(&target.entry.digest) {
                    book.recall_finished(target, *failed);
                }
            }
        });
    }
}
