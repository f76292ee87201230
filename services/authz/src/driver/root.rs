//! The root that signs passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::requests::authz::{RootView, RotateRoot, ShowRoot};
use events::root::RootLink;
use events::{OrganizationId, Refusal, RefusalKind};
use parking_lot::Mutex;
use store::{KeyRing, RootKey};

use super::Driver;
use crate::call::Call;
use crate::model::Asker;
use crate::model::root::LaterRoot;
use crate::model::steps::Step;
use crate::secrets::{later_root_key, root_key};

/// Keys that were read from the key ring, by their numbers.
#[derive(Default)]
pub(super) struct Roots(Mutex<BTreeMap<u32, Arc<RootKey>>>);

impl Roots {
    async fn of(&self, keys: &dyn KeyRing, number: u32) -> Result<Arc<RootKey>, Refusal> {
        let known = self.0.lock().get(&number).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let key = if number == 0 { root_key(keys).await? } else { later_root_key(keys, number).await? };
        Ok(Arc::clone(self.0.lock().entry(number).or_insert_with(|| Arc::new(key))))
    }
}

impl Driver {
    /// The root that signs now, and how agents come to it.
    pub(super) async fn root(&self) -> Result<(Arc<RootKey>, Vec<RootLink>), Refusal> {
        let later = self.directory.read(|directory| directory.later_roots().to_vec());
        let links: Vec<RootLink> = later.into_iter().map(|root| root.link).collect();
        let Some(newest) = links.last() else { return Ok((self.roots.of(&*self.keys, 0).await?, links)) };
        let key = self.roots.of(&*self.keys, newest.number).await?;
        if key.public_key() != newest.public_key {
            let message =
                "the key ring has another root than the log: restore it from a backup of the same time";
            return Err(Refusal::new(RefusalKind::Internal, message));
        }
        Ok((key, links))
    }

    pub(super) async fn show_root(self, asker: Asker, _: ShowRoot) -> Result<RootView, Refusal> {
        self.directory.read(|directory| directory.may_rotate_root(&asker))?;
        self.root_view().await
    }

    pub(super) async fn rotate_root(self, call: Call, _: RotateRoot) -> Result<RootView, Refusal> {
        let call = call.in_organization(OrganizationId::SYSTEM);
        self.directory.read(|directory| directory.may_rotate_root(&call.asker()))?;
        let (former, links) = self.root().await?;
        let number = links.last().map_or(1, |last| last.number.saturating_add(1));
        // Whoever else does this now makes the same key and the same link.
        let next = self.roots.of(&*self.keys, number).await?;
        let public_key = next.public_key().to_vec();
        let signature = former.sign(&RootLink::signed_text(number, &public_key));
        let link = RootLink { number, public_key, signature };
        self.commit(&call, call.key(), Step::RotateRoot { link }).await?;
        self.root_view().await
    }

    async fn root_view(&self) -> Result<RootView, Refusal> {
        let newest = self.directory.read(|directory| directory.later_roots().last().cloned());
        let (key, _) = self.root().await?;
        let number = newest.as_ref().map_or(0, |LaterRoot { link, .. }| link.number);
        Ok(RootView { number, public_key: key.public_key_base64(), since: newest.map(|newest| newest.since) })
    }
}
