//! What is to become of one entry of a prune list, as the cluster is now.

use std::sync::Arc;
use std::time::Duration;

use events::ObjectIdentity;
use events::delivery::PruneEntry;
use serde_json::Value;

use super::inside::finalizers;
use super::progress::Progress;
use crate::applier::context::Context;
use crate::kubernetes::discovery::Kinds;
use crate::kubernetes::{Accept, ApiError, Call, Resource, path};
use crate::model::prune::{Request, Spared, holds_others, spared};
use crate::model::target::allowed;

/// So often, and so far apart, a kind is looked for before it counts as gone.
const LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What became of one entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::applier) enum Pruned {
    /// It is deleted; where nothing waits for its end, that may take a moment.
    Deleted,
    /// It was gone already.
    Gone,
    /// It is there and ours, and stays.
    Kept(String),
    /// It is not ours, or not any more.
    NotOurs(String),
}

/// What is to become of one entry of the list, as the cluster is now.
pub(in crate::applier) enum Fate {
    /// What lies there is to be deleted, in this version.
    Delete {
        /// Where it lies.
        path: String,
        /// Its resource version.
        version: String,
    },
    /// It was deleted and is there still, because of this.
    Ending(String),
    /// It can only be deleted once something else is gone.
    Waits(String),
    /// Nothing is left to do.
    Settled(Pruned),
}

/// How far the list is, by which a namespace or a definition is judged.
#[derive(Debug, Clone, Copy)]
pub(in crate::applier) struct Going<'a> {
    /// What became of the entries before.
    pub(in crate::applier) progress: &'a Progress,
    /// It is only what would become of them: nothing is waited for.
    pub(in crate::applier) imagined: bool,
}

impl Context {
    /// Looks, and deletes nothing.
    pub(in crate::applier) async fn fate(
        &self,
        entry: &PruneEntry,
        going: Going<'_>,
    ) -> Result<Fate, ApiError> {
        let identity = &entry.identity;
        let kept = |reason: String| Ok(Fate::Settled(Pruned::Kept(reason)));
        if !allowed(&self.view.resources, identity) {
            return kept("the agent's configuration does not let it manage this kind".to_owned());
        }
        let key = identity.key();
        if self.present_sources().iter().any(|source| source.has(&key)) {
            return kept("it is in a current bundle".to_owned());
        }
        let gone = Ok(Fate::Settled(Pruned::Gone));
        let Some(resource) = self.resource_of(identity).await? else { return gone };
        let Some(path) = path::object(&resource, &identity.namespace, &identity.name) else { return gone };
        let call = Call::get(path.clone()).accept(Accept::Metadata).as_account(self.account());
        let live: Value = match self.shared.kube.read(call).await {
            Ok(answer) => answer.json()?,
            Err(error) if error.code() == 404 => return gone,
            Err(error) => return Err(error),
        };
        let mark = self.view.mark_of(&live, identity);
        let request = Request {
            uid: &entry.uid,
            owner: &self.owner,
            prune_adopted: self.source.head.policies.prune_adopted,
        };
        match spared(request, &mark) {
            Some(Spared::NotOurs(reason)) => {
                return Ok(Fate::Settled(Pruned::NotOurs(reason.to_owned())));
            }
            // Somebody deleted it, whatever was wanted.
            _ if mark.terminating => return Ok(Fate::Ending(finalizers(&live))),
            Some(Spared::Kept(reason)) => return kept(reason.to_owned()),
            None => {}
        }
        if holds_others(identity)
            && let Some(fate) = self.obstacle_inside(identity, going).await?
        {
            return Ok(fate);
        }
        let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        Ok(Fate::Delete { path, version: version.to_owned() })
    }

    /// The resource of an object that was there once; `None` when its kind is gone for good.
    async fn resource_of(&self, identity: &ObjectIdentity) -> Result<Option<Arc<Resource>>, ApiError> {
        if let Some(resource) = self.shared.discovery.kinds().find_any(identity) {
            return Ok(Some(resource));
        }
        let found = self.served(&identity.group, |kinds| kinds.find_any(identity).into_iter().collect());
        Ok(found.await?.pop())
    }

    /// Asks afresh for what is served, more than once: while definitions come and go the API server's own list of kinds lacks
    /// others of their group for a moment, and what is not in it would count as gone.
    pub(super) async fn served(
        &self,
        group: &str,
        wanted: impl Fn(&Kinds) -> Vec<Arc<Resource>> + Send,
    ) -> Result<Vec<Arc<Resource>>, ApiError> {
        let mut looks = 0;
        loop {
            let kinds = self.shared.discovery.refresh(&self.shared.kube).await?;
            let found = wanted(&kinds);
            looks += 1;
            if !found.is_empty() {
                return Ok(found);
            }
            if looks == LOOKS {
                return match kinds.silent_groups().any(|silent| silent == group) {
                    true => Err(ApiError::Unreachable { detail: format!("{group} is not served now") }),
                    false => Ok(found),
                };
            }
            self.shared.world.clock.sleep(LOOK_AGAIN).await;
        }
    }
}
