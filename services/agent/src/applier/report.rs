//! What a run of a sync counts and tells.

use std::sync::Arc;

use events::SyncId;
use events::delivery::{ObjectFailure, SyncCounts};
use events::observation::{MissingRight, Write};

use super::watches::RIGHTS_TOLD;
use super::write::Failure;
use crate::kubernetes::ApiError;
use crate::model::target::{Awaited, Resolution};
use crate::model::verdict::is_for_want_of_a_namespace;

/// Failures that stand in the end of a sync; all of them are told one by one.
const FIRST_FAILURES: usize = 10;
const MESSAGE_MAXIMUM: usize = 2_000;

/// One run.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) sync: SyncId,
    pub(super) counts: SyncCounts,
    pub(super) failures: Vec<ObjectFailure>,
    /// What the bundle came to when the run applied it: kinds that came or went since are the next run's. `None`: it did not get there.
    pub(super) resolution: Option<Arc<Resolution>>,
    /// The first rights for want of which something failed, each once.
    pub(super) missing: Vec<MissingRight>,
    /// The first failure of that kind.
    pub(super) forbidden: Option<String>,
    /// Some failure may end by itself.
    pub(super) transient: bool,
    /// Some object has no namespace to be in.
    pub(super) wants_namespace: bool,
    /// An object was left out because another source has it in its bundle as well; nothing else failed with it.
    pub(super) contested: bool,
    /// All that failed is held by other sources as the server decided: only another state changes that.
    pub(super) is_decided: bool,
}

impl Report {
    pub(super) fn new(sync: SyncId) -> Self {
        Self {
            sync,
            counts: SyncCounts::default(),
            failures: Vec::new(),
            resolution: None,
            missing: Vec::new(),
            forbidden: None,
            transient: false,
            wants_namespace: false,
            contested: false,
            is_decided: false,
        }
    }

    pub(super) fn wrote(&mut self, write: Write) {
        let counter = match write {
            Write::Created => &mut self.counts.created,
            Write::Changed | Write::Replaced => &mut self.counts.changed,
            Write::Unchanged => &mut self.counts.unchanged,
        };
        *counter += 1;
    }

    pub(super) fn failed(&mut self, mut failure: ObjectFailure, transient: bool) {
        if failure.message.len() > MESSAGE_MAXIMUM {
            failure.message = failure.message.chars().take(MESSAGE_MAXIMUM / 2).chain(" …".chars()).collect();
        }
        self.counts.failed += 1;
        self.transient |= transient;
        self.failures.push(failure);
    }

    /// An object that could not be written or tried.
    pub(super) fn refused(&mut self, failed: Failure) {
        self.wants_namespace |= is_for_want_of_a_namespace(failed.error.as_ref());
        if let Some(right) = failed.error.as_ref().and_then(ApiError::missing_right) {
            self.forbidden.get_or_insert_with(|| failed.failure.message.clone());
            if self.missing.len() < RIGHTS_TOLD && !self.missing.contains(&right) {
                self.missing.push(right);
            }
        }
        let transient = failed.is_transient();
        self.failed(failed.failure, transient);
    }

    /// The run goes by this: what awaits its kind in it waits, and nothing else does.
    pub(super) fn goes_by(&mut self, resolution: &Arc<Resolution>) {
        self.counts.waiting = u32::try_from(resolution.awaited.len()).unwrap_or(u32::MAX);
        self.resolution = Some(Arc::clone(resolution));
    }

    /// What failed comes before what only waits.
    pub(super) fn first_failures(&self) -> Vec<ObjectFailure> {
        let awaited = self.resolution.iter().flat_map(|resolution| &resolution.awaited);
        let waiting = awaited.map(Awaited::failure);
        self.failures.iter().cloned().chain(waiting).take(FIRST_FAILURES).collect()
    }
}
