//! What a worker needs to know while it works on one state of its source.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use events::SourceId;
use events::configuration::ServiceAccount;
use events::digest::Sha256;
use events::observation::TakenField;
use events::requests::diff::ObjectHolder;
use objects::ownership::{Adopt, OwnerMark};
use parking_lot::Mutex;
use serde_json::Value;
use tracing::Span;

use super::Shared;
use super::report::Report;
use crate::desired::{SourceView, View};
use crate::kubernetes::discovery::Kinds;
use crate::model::adoption::{Decision, Owner, decide, keeper_of, owner_of};
use crate::model::extra::unwanted;
use crate::model::takeover::Whose;
use crate::model::target::{Resolution, Scope, Target, resolve};

/// Objects of one run that have a span each.
const OBJECT_SPANS: usize = 200;

/// Whose a live object is, seen from the source that wants it.
pub(super) struct Standing {
    pub(super) owner: Owner,
    /// Who else has it, where that is known.
    pub(super) holder: Option<ObjectHolder>,
    /// What may be done with it.
    pub(super) decision: Decision,
    /// It was taken over before.
    pub(super) adopted: bool,
    /// The manifest that was applied last.
    pub(super) applied: Option<Sha256>,
    pub(super) uid: String,
}

/// One state of one source.
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    pub(super) view: Arc<View>,
    pub(super) source: Arc<SourceView>,
    pub(super) owner: OwnerMark,
    /// How many objects may still have a span of their own.
    object_spans: AtomicUsize,
    resolved: Mutex<Option<(Arc<Kinds>, Arc<Resolution>)>>,
}

impl Context {
    pub(super) fn new(shared: &Arc<Shared>, view: &Arc<View>, source: &Arc<SourceView>) -> Self {
        Self {
            shared: Arc::clone(shared),
            view: Arc::clone(view),
            source: Arc::clone(source),
            owner: view.owner(source.head.source),
            object_spans: AtomicUsize::new(OBJECT_SPANS),
            resolved: Mutex::new(None),
        }
    }

    /// A span for work on one object, while there are not too many of them; more would only push other spans out.
    pub(super) fn object_span(&self, span: impl FnOnce() -> Span) -> Span {
        let left =
            self.object_spans.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_or_else(|_| Span::none(), |_| span())
    }

    pub(super) fn id(&self) -> SourceId {
        self.source.head.source
    }

    pub(super) fn account(&self) -> Option<&ServiceAccount> {
        self.source.account()
    }

    /// The source's bundle against what the API server knows now; made once for each look at its kinds.
    pub(super) fn resolve(&self) -> Arc<Resolution> {
        let kinds = self.shared.discovery.kinds();
        let mut resolved = self.resolved.lock();
        if let Some((of, resolution)) = &*resolved
            && Arc::ptr_eq(of, &kinds)
        {
            return Arc::clone(resolution);
        }
        let scope = Scope {
            mode: self.view.mode,
            rules: &self.view.resources,
            default_namespace: &self.source.head.default_namespace,
            wanted: &self.source.wanted,
        };
        let resolution = Arc::new(resolve(self.source.entries.as_deref().unwrap_or_default(), scope, &kinds));
        *resolved = Some((kinds, Arc::clone(&resolution)));
        resolution
    }

    /// What a run goes by, or would if it began now.
    pub(super) fn resolution_of(&self, report: &Report) -> Arc<Resolution> {
        report.resolution.clone().unwrap_or_else(|| self.resolve())
    }

    /// Another state of this source is wanted by now, or it is not to be worked on any more.
    pub(super) fn is_superseded(&self) -> bool {
        self.shared.desired.view().is_none_or(|view| {
            view.source(self.id())
                .is_none_or(|source| source.fingerprint != self.source.fingerprint || source.head.suspended)
        })
    }

    /// The source as it is worked on, and the agent's others as they are wanted by now.
    pub(super) fn present_sources(&self) -> Vec<Arc<SourceView>> {
        let view = self.shared.desired.view().unwrap_or_else(|| Arc::clone(&self.view));
        let others = view.sources.iter().filter(|other| other.head.source != self.id());
        others.chain([&self.source]).map(Arc::clone).collect()
    }

    /// What is not in the bundle is not followed: by the time that it is wanted again, it may be changed, another source's or gone.
    pub(super) fn forget_what_left(&self) {
        let wanted = self.source.keys();
        self.shared.with_book(self.id(), |book| book.retain(|key| wanted.has(key)));
    }

    /// Whose a live object is, and whether it may be written.
    pub(super) fn standing(&self, target: &Target, live: &Value, own: Option<Adopt>) -> Standing {
        let mark = self.view.mark_of(live, &target.identity);
        let owner =
            owner_of(mark.owner.as_ref(), &self.owner, |source| self.view.has_in_source(source, &target.key));
        let (holder, words) = match (owner, mark.owner) {
            (Owner::Nobody, _) => {
                let keeper = keeper_of(live, &target.identity);
                (keeper.clone().map(|name| ObjectHolder::Tool { name }), keeper)
            }
            (Owner::Sibling { .. }, Some(OwnerMark { source, .. })) => {
                let name = self.view.name_of(&source).to_owned();
                let words = format!("source {name}");
                (Some(ObjectHolder::Source { source, name }), Some(words))
            }
            (Owner::Foreign, Some(OwnerMark { organization, agent, source })) => {
                let of =
                    if organization == self.owner.organization { "" } else { " of another organization" };
                let words = format!("agent {agent}{of}");
                (Some(ObjectHolder::Agent { organization, agent, source }), Some(words))
            }
            (Owner::Own | Owner::Sibling { .. } | Owner::Foreign, _) => (None, None),
        };
        let decision = decide(owner, words.as_deref(), self.source.head.policies.adoption, own);
        Standing { owner, holder, decision, adopted: mark.adopted, applied: mark.applied, uid: mark.uid }
    }

    /// Whose fields are taken over before a write.
    pub(super) fn whose(&self) -> Whose<'_> {
        let policies = &self.source.head.policies;
        if policies.strict { Whose::Strict(&policies.strict_managers) } else { Whose::Tools }
    }

    /// Whether something that others added is to go.
    pub(super) fn is_to_strip(&self, extra: &[TakenField]) -> bool {
        let policies = &self.source.head.policies;
        policies.strict && unwanted(extra, &policies.strict_managers).next().is_some()
    }

    /// Why its bundle cannot be applied.
    pub(super) fn blocked(&self) -> Option<String> {
        self.locked().or_else(|| self.source.refused.clone())
    }

    /// Why nothing of the source may be touched.
    pub(super) fn locked(&self) -> Option<String> {
        (self.view.lockdown && self.account().is_none()).then(|| {
            "lockdown is on: the source must name a service_account in the agent's configuration".to_owned()
        })
    }
}
