//! What few objects have, in a box of its own.

use std::sync::Arc;

use events::Timestamp;

use super::{Record, Shared, Verdict};
use crate::model::deployed::SetBy;
use crate::model::facts::Special;
use crate::model::list::List;
use crate::model::optional::Optional;
use crate::model::relations::Link;

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Rare {
    /// What it points at by relations that its agent's configuration declares.
    declared: List<Link>,
    /// The verdict with the reason that its pods give, where that is another one.
    with_pods: Option<Arc<Verdict>>,
    /// The sync that set it last, as its agent's applier said.
    set: Option<Box<SetBy>>,
    /// What objects of its kind alone say.
    special: Option<Box<Special>>,
    /// When it was recorded as gone.
    gone_at: Optional,
}

impl Rare {
    pub(super) fn share(&mut self, shared: &mut Shared) {
        shared.share_links(&mut self.declared);
        if let Some(verdict) = &mut self.with_pods {
            shared.share_verdict(verdict);
        }
    }
}

impl Record {
    /// What it points at by relations that its agent's configuration declares. Derived, and not stored.
    #[must_use]
    pub fn declared(&self) -> &[Link] {
        self.rare.as_ref().map(|rare| &*rare.declared).unwrap_or_default()
    }

    /// Sets what it points at by declared relations.
    pub fn set_declared(&mut self, links: Vec<Link>) {
        self.change_rare(!links.is_empty(), |rare| rare.declared = links.into());
    }

    /// The verdict with the reason that its pods give, where that is another one. Derived, and not stored.
    #[must_use]
    pub fn with_pods(&self) -> Option<&Verdict> {
        self.rare.as_ref()?.with_pods.as_deref()
    }

    /// Sets the verdict that its pods give.
    pub fn set_with_pods(&mut self, verdict: Option<Arc<Verdict>>) {
        self.change_rare(verdict.is_some(), |rare| rare.with_pods = verdict);
    }

    /// The sync that set it last, as its agent's applier said.
    #[must_use]
    pub fn set_by(&self) -> Option<SetBy> {
        self.rare.as_ref()?.set.as_deref().copied()
    }

    /// Notes the sync that set it last.
    pub fn note_set_by(&mut self, set: Option<SetBy>) {
        self.change_rare(set.is_some(), |rare| rare.set = set.map(Box::new));
    }

    /// What objects of its kind alone say.
    #[must_use]
    pub fn special(&self) -> Option<&Special> {
        self.rare.as_ref()?.special.as_deref()
    }

    /// Sets what objects of its kind alone say.
    pub fn set_special(&mut self, special: Option<Special>) {
        self.change_rare(special.is_some(), |rare| rare.special = special.map(Box::new));
    }

    /// When it was recorded as gone; absent while it is there.
    #[must_use]
    pub fn gone_at(&self) -> Option<Timestamp> {
        self.rare.as_ref()?.gone_at.time()
    }

    /// Sets when it was recorded as gone.
    pub fn set_gone_at(&mut self, at: Option<Timestamp>) {
        self.change_rare(at.is_some(), |rare| rare.gone_at = at.into());
    }

    /// Whether it is there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.gone_at().is_none()
    }

    /// What is rare is changed; there is no box before there is something to put into it, nor once nothing is left.
    fn change_rare(&mut self, puts_in: bool, change: impl FnOnce(&mut Rare)) {
        if self.rare.is_none() && !puts_in {
            return;
        }
        let rare = self.rare.get_or_insert_default();
        change(rare);
        if !puts_in && **rare == Rare::default() {
            self.rare = None;
        }
    }
}
