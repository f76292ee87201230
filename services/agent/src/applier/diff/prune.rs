//! What would become of what left Git.

use events::delivery::PruneEntry;
use events::requests::diff::{DiffChange, DiffReason, ObjectDiff};

use super::AT_ONCE;
use crate::applier::concurrent::concurrently;
use crate::applier::context::Context;
use crate::applier::prune::{Fate, Going, Progress, Pruned};
use crate::model::prune::holds_others;

impl Context {
    /// What was listed may be gone, or be kept; a namespace is, where something in it would be.
    pub(super) async fn would_prune(&self, prunes_nothing: bool) -> Vec<ObjectDiff> {
        let mut progress = Progress::default();
        let mut entries: Vec<&PruneEntry> = self.source.prune.iter().collect();
        entries.sort_by_key(|entry| holds_others(&entry.identity));
        let mut differences = Vec::new();
        for group in
            entries.chunk_by(|left, right| holds_others(&left.identity) == holds_others(&right.identity))
        {
            let going = Going { progress: &progress, imagined: true };
            let fates = group.iter().map(|entry| self.fate(entry, going)).collect();
            let fates = concurrently(fates, AT_ONCE).await;
            for (entry, fate) in group.iter().zip(fates) {
                let about = |change| ObjectDiff::new(entry.identity.clone(), change);
                match fate {
                    Ok(Fate::Delete { .. } | Fate::Ending(_) | Fate::Waits(_)) => {
                        progress.note(&entry.uid, Pruned::Deleted);
                        differences.push(if prunes_nothing {
                            about(DiffChange::Keep).because(
                                DiffReason::NotBeforeApplied,
                                "it is pruned once everything is applied, not before",
                            )
                        } else {
                            about(DiffChange::Prune)
                        });
                    }
                    Ok(Fate::Settled(pruned)) => {
                        if let Pruned::Kept(reason) | Pruned::NotOurs(reason) = &pruned {
                            let kept = about(DiffChange::Keep).because(DiffReason::Kept, reason.clone());
                            differences.push(kept);
                        }
                        progress.note(&entry.uid, pruned);
                    }
                    Err(error) => {
                        let message = format!("cannot be pruned: {error}");
                        differences
                            .push(about(DiffChange::Refused).because(DiffReason::NotPrunable, message));
                    }
                }
            }
        }
        differences
    }
}
