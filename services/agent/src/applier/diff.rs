//! What a sync would do now: dry runs, compared with what is there. Nothing is written.

mod object;
mod prune;

use std::sync::Arc;

use events::ObjectIdentity;
use events::configuration::Mode;
use events::delivery::ObjectFailure;
use events::requests::diff::{
    DiffChange, DiffReason, DiffStop, ObjectDiff, ObjectHolder, SourceDiff, SyncExtent,
};
use objects::redact::Redactor;

use super::Shared;
use super::concurrent::concurrently;
use super::context::Context;
use crate::desired::{SourceView, View};
use crate::kubernetes::ApiError;
use crate::model::difference::{Conclusion, MOST_BYTES, bound, conclude, stop};
use crate::model::target::{Awaited, Resolution, Unserved, allowed};

const AT_ONCE: usize = 16;

/// Compares a source, as it is or would be, with the cluster.
///
/// # Errors
/// When the API server cannot be asked at all.
pub async fn diff(
    shared: &Arc<Shared>,
    view: &Arc<View>,
    source: &Arc<SourceView>,
) -> Result<SourceDiff, ApiError> {
    let context = Context::new(shared, view, source);
    shared.discovery.refresh(&shared.kube).await?;
    let mut key = [0_u8; 32];
    shared.world.random.fill(&mut key);
    let redactor = Redactor::new(&key);
    let resolution = context.resolve();
    let comparisons = resolution.targets.iter().map(|target| context.compare(target, &redactor)).collect();
    let mut answer = SourceDiff { commit: source.head.commit.clone(), ..SourceDiff::default() };
    let mut compared = Vec::with_capacity(resolution.targets.len());
    for (target, (one, extra)) in resolution.targets.iter().zip(concurrently(comparisons, AT_ONCE).await) {
        answer.extra.extend(extra);
        compared.push((target, one));
    }
    let Conclusion { objects, unchanged, stopped } = conclude(compared);
    answer.unchanged = unchanged;
    answer.objects = objects;
    answer.objects.extend(context.not_placed(&resolution));
    answer.objects.sort_by(|left, right| left.identity.cmp(&right.identity));
    answer.extra.sort_by(|left, right| left.identity.cmp(&right.identity));
    answer.stopped = context.stopped(&resolution, stopped);
    let prunes_nothing = answer.stopped.is_some();
    answer.objects.extend(context.would_prune(prunes_nothing).await);
    bound(&mut answer, MOST_BYTES);
    Ok(answer)
}

impl Context {
    /// Objects that are not dry-run, and why.
    fn not_placed(&self, resolution: &Resolution) -> Vec<ObjectDiff> {
        let failures = resolution.failures.iter().map(|failure| {
            let is_allowed = self.is_allowed(&failure.identity);
            refused(failure, if is_allowed { DiffReason::Invalid } else { DiffReason::NotAllowed })
        });
        let wanted = resolution.wanted.iter().map(|failure| {
            let holder = self.source.wanted.get(&failure.identity.key()).map(|wanted| ObjectHolder::Source {
                source: wanted.holder.to_string(),
                name: wanted.holder_name.clone(),
            });
            refused(failure, DiffReason::HeldBySource).held_by(holder)
        });
        failures.chain(wanted).chain(resolution.awaited.iter().map(awaited)).collect()
    }

    /// Whether the agent's configuration lets it manage such an object.
    fn is_allowed(&self, identity: &ObjectIdentity) -> bool {
        let resource = self.shared.discovery.kinds().find(identity);
        let is_in_reach =
            self.view.mode == Mode::Cluster || resource.is_none_or(|resource| resource.namespaced);
        is_in_reach && allowed(&self.view.resources, identity)
    }

    /// How far a sync would get.
    fn stopped(&self, resolution: &Resolution, by_objects: Option<DiffStop>) -> Option<DiffStop> {
        if let Some(message) = self.blocked() {
            return Some(DiffStop { extent: SyncExtent::Nothing, message });
        }
        let count = |objects: usize| u32::try_from(objects).unwrap_or(u32::MAX);
        if !resolution.failures.is_empty() {
            return Some(stop(SyncExtent::Nothing, count(resolution.failures.len())));
        }
        let waiting = resolution.awaited.iter().filter(|awaited| awaited.why != Unserved::Defined).count();
        // What waits for its kind may take the place of what would be pruned.
        let keeps_prunes = waiting > 0 && !self.source.prune.is_empty();
        by_objects.or_else(|| keeps_prunes.then(|| stop(SyncExtent::AllButPrunes, count(waiting))))
    }
}

fn refused(failure: &ObjectFailure, reason: DiffReason) -> ObjectDiff {
    ObjectDiff::new(failure.identity.clone(), DiffChange::Refused)
        .at(&failure.file, failure.line)
        .because(reason, failure.message.clone())
}

/// One whose kind is not served: what the set itself defines is created with it, all else waits.
fn awaited(awaited: &Awaited) -> ObjectDiff {
    let failure = awaited.failure();
    let (change, reason) = match awaited.why {
        Unserved::Defined => (DiffChange::Create, DiffReason::NeedsOthers),
        Unserved::Undefined | Unserved::Silent => (DiffChange::Wait, DiffReason::KindAwaited),
    };
    ObjectDiff::new(failure.identity, change).at(&failure.file, failure.line).because(reason, failure.message)
}
