//! What a namespace or a definition holds: its deletion would take that along.

use std::sync::Arc;

use events::ObjectIdentity;
use serde_json::Value;

use super::fate::{Fate, Going, Pruned};
use crate::applier::concurrent::concurrently;
use crate::applier::context::Context;
use crate::applier::inventory::{Listed, list};
use crate::desired::SourceView;
use crate::kubernetes::discovery::Kinds;
use crate::kubernetes::{ApiError, Resource};
use crate::model::prune::{Obstacle, obstacle};

const LISTS_AT_ONCE: usize = 16;

impl Context {
    /// Why a namespace or a definition cannot go now: something that is wanted in it, stays in it or is not gone yet, or cannot be
    /// read. Always asks afresh.
    pub(super) async fn obstacle_inside(
        &self,
        holder: &ObjectIdentity,
        going: Going<'_>,
    ) -> Result<Option<Fate>, ApiError> {
        let (kinds, resources) = self.inside(holder).await?;
        let kept = |reason: String| Ok(Some(Fate::Settled(Pruned::Kept(reason))));
        if resources.is_empty() {
            return kept("its contents cannot be listed".to_owned());
        }
        if let Some(reason) = self.wanted_inside(holder, &kinds, &resources) {
            return kept(reason);
        }
        let namespace = if holder.kind == "Namespace" { holder.name.as_str() } else { "" };
        let (kube, account) = (&self.shared.kube, self.account());
        let lists = resources.iter().map(|resource| list(kube, account, resource, namespace, "")).collect();
        let mut found = Vec::new();
        for (resource, listed) in resources.iter().zip(concurrently(lists, LISTS_AT_ONCE).await) {
            match listed? {
                Listed::Items(items) => {
                    found.extend(items.into_iter().map(|live| (listed_identity(resource, &live), live)));
                }
                Listed::Absent => {}
                Listed::Forbidden(message) => {
                    return kept(format!("{} in it cannot be read: {message}", resource.plural));
                }
            }
        }
        let deleted = going.progress.deleted().iter().map(String::as_str).collect();
        match obstacle(&found, &deleted) {
            Some(Obstacle::Staying((identity, live))) => {
                if self.is_left_over(live, going) {
                    return Err(ApiError::Impossible {
                        detail: format!("{identity} in it is not deleted yet"),
                    });
                }
                kept(format!("{identity} is in it and stays"))
            }
            Some(Obstacle::Leaving((identity, live))) if !going.imagined => {
                Ok(Some(Fate::Waits(format!("{identity} in it: {}", finalizers(live)))))
            }
            Some(Obstacle::Leaving(_)) | None => Ok(None),
        }
    }

    /// Every kind that may be in it.
    async fn inside(&self, holder: &ObjectIdentity) -> Result<(Arc<Kinds>, Vec<Arc<Resource>>), ApiError> {
        if holder.kind == "Namespace" {
            let kinds = self.shared.discovery.refresh(&self.shared.kube).await?;
            if let Some(silent) = kinds.silent_groups().next() {
                let detail = format!("its contents are unknown while the API group {silent} does not answer");
                return Err(ApiError::Impossible { detail });
            }
            let inside = kinds.preferred().filter(|resource| resource.namespaced && resource.listable);
            let inside = inside.cloned().collect();
            return Ok((kinds, inside));
        }
        let (plural, group) = holder.name.split_once('.').unwrap_or((&holder.name, ""));
        let defined = |kinds: &Kinds| {
            let served = kinds.preferred();
            served.filter(|one| one.plural == plural && one.group == group).cloned().collect()
        };
        let resources = self.served(group, defined).await?;
        Ok((self.shared.discovery.kinds(), resources))
    }

    /// What Git wants in a namespace, or of a definition, that left Git itself.
    fn wanted_inside(
        &self,
        holder: &ObjectIdentity,
        kinds: &Kinds,
        resources: &[Arc<Resource>],
    ) -> Option<String> {
        let is_inside = |source: &SourceView, identity: &ObjectIdentity| {
            if holder.kind != "Namespace" {
                return resources.iter().any(|of| of.group == identity.group && of.kind == identity.kind);
            }
            let namespace = match identity.namespace.as_str() {
                "" => source.head.default_namespace.as_str(),
                namespace => namespace,
            };
            // A kind that is not known yet may turn out to have namespaces.
            namespace == holder.name && kinds.find_any(identity).is_none_or(|resource| resource.namespaced)
        };
        self.present_sources().iter().find_map(|source| {
            let mut entries = source.entries.iter().flatten();
            let wanted = entries.find(|entry| is_inside(source, &entry.identity))?;
            let name = &source.head.name;
            Some(format!(
                "source {name} still wants {} ({}:{}) in it",
                wanted.identity, wanted.file, wanted.line
            ))
        })
    }

    /// Whether an object that stays is on the list and may go: it could not be deleted, and will be tried again.
    fn is_left_over(&self, staying: &Value, going: Going<'_>) -> bool {
        let uid = staying.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        !going.progress.is_settled(uid) && self.source.prune.iter().any(|entry| entry.uid == uid)
    }
}

/// Why an object that was deleted is there still.
pub(super) fn finalizers(live: &Value) -> String {
    let finalizers = live.pointer("/metadata/finalizers").and_then(Value::as_array);
    let finalizers: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
    match finalizers.is_empty() {
        true => "it is being deleted".to_owned(),
        false => format!("it is being deleted, and waits for {}", finalizers.join(", ")),
    }
}

/// The identity of an item of a list answer.
pub(in crate::applier) fn listed_identity(resource: &Resource, live: &Value) -> ObjectIdentity {
    let text = |key: &str| live.pointer(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    ObjectIdentity {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    }
}
