//! The root that signs passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::requests::authz::{RootView, RotateRoot, ShowRoot};
use events::root::RootLink;
use events::{OrganizationId, Refusal, RefusalKind, RootId};
use parking_lot::Mutex;
use store::{KeyRing, RootKey};

use super::Driver;
use crate::call::Call;
use crate::model::Asker;
use crate::model::root::{LaterRoot, next_root};
use crate::model::steps::Step;
use crate::secrets::{new_root_key, root_key};

/// Keys that were read from the key ring, by their ids; the first one has none.
#[derive(Default)]
pub(super) struct Roots(Mutex<BTreeMap<Option<RootId>, Arc<RootKey>>>);

impl Roots {
    /// The key of the newest of these. None is made in the place of one that is missing: nobody would come to it.
    async fn newest(&self, keys: &dyn KeyRing, later: &[LaterRoot]) -> Result<Arc<RootKey>, Refusal> {
        let newest = later.last();
        let id = newest.map(|newest| newest.id);
        let known = self.0.lock().get(&id).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let number = newest.map_or(0, |newest| newest.link.number);
        let key = root_key(keys, id).await?.ok_or_else(|| {
            unusable(format!("the key ring lacks root {number}: restore it from a backup as new as the log"))
        })?;
        if newest.is_some_and(|newest| newest.link.public_key != key.public_key()) {
            let message = "the key ring has a different root key than the log: restore it from a backup of the same time";
            return Err(unusable(message.to_owned()));
        }
        Ok(Arc::clone(self.0.lock().entry(id).or_insert_with(|| Arc::new(key))))
    }
}

impl Driver {
    /// The root that signs now, and how agents come to it.
    pub(super) async fn root(&self) -> Result<(Arc<RootKey>, Vec<RootLink>), Refusal> {
        let (key, later) = self.signing().await?;
        Ok((key, later.into_iter().map(|root| root.link).collect()))
    }

    /// The root that signs now, and all that took the place of the first one.
    async fn signing(&self) -> Result<(Arc<RootKey>, Vec<LaterRoot>), Refusal> {
        let later = self.directory.read(|directory| directory.later_roots().to_vec());
        Ok((self.roots.newest(&*self.keys, &later).await?, later))
    }

    pub(super) async fn show_root(self, asker: Asker, _: ShowRoot) -> Result<RootView, Refusal> {
        self.directory.read(|directory| directory.may_rotate_root(&asker))?;
        self.root_view().await
    }

    pub(super) async fn rotate_root(self, call: Call, _: RotateRoot) -> Result<RootView, Refusal> {
        let mut call = call.in_organization(OrganizationId::SYSTEM);
        self.directory.read(|directory| directory.may_rotate_root(&call.asker()))?;
        let (former, later) = self.signing().await?;
        if later.iter().all(|root| root.made_by != call.key()) {
            let number = next_root(&later, self.now())?;
            // A key that was made and never came into the log may be known to somebody by now: each attempt makes its own.
            let root = RootId(call.pass(self.fresh()));
            let public_key = new_root_key(&*self.keys, root).await?.public_key().to_vec();
            let signature = former.sign(&RootLink::signed_text(number, &public_key));
            let link = RootLink { number, public_key, signature };
            self.commit(&call, call.key(), Step::RotateRoot { root, link }).await?;
        }
        self.root_view().await
    }

    async fn root_view(&self) -> Result<RootView, Refusal> {
        let (key, later) = self.signing().await?;
        let newest = later.last();
        Ok(RootView {
            number: newest.map_or(0, |newest| newest.link.number),
            public_key: key.public_key_base64(),
            since: newest.map(|newest| newest.since),
        })
    }
}

fn unusable(message: String) -> Refusal {
    Refusal::new(RefusalKind::Internal, message)
}
