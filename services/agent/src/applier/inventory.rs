//! What carries this agent's mark in the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::SourceId;
use events::configuration::{Mode, ServiceAccount};
use events::object::{GroupKind, ObjectKey};
use events::observation::{Observed, OwnedObject};
use objects::ownership::SOURCE_LABEL;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Shared;
use super::concurrent::concurrently;
use super::context::Context;
use super::health::has_health;
use super::prune::listed_identity;
use crate::desired::View;
use crate::kubernetes::{Accept, ApiError, Call, Kube, Resource, path};
use crate::model::book::Drift;
use crate::model::managed::{covers, lost_fields};
use crate::model::manifest::{is_secret, live_mark, prepare};
use crate::model::target::Target;

/// Objects in one statement: a frame of the link has to hold a hundred observations.
const PART: usize = 100;
const PAGE: usize = 500;
const LISTS_AT_ONCE: usize = 16;

/// What a list gave.
pub(super) enum Listed {
    /// Metadata of each object.
    Items(Vec<Value>),
    /// The kind is not served any more.
    Absent,
    /// No right to.
    Forbidden(String),
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    /// An empty list may say null.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Lists metadata, page by page.
pub(super) async fn list(
    kube: &Kube,
    account: Option<&ServiceAccount>,
    resource: &Resource,
    namespace: &str,
    selector: &str,
) -> Result<Listed, ApiError> {
    let Some(collection) = path::collection(resource, namespace) else { return Ok(Listed::Absent) };
    let mut items = Vec::new();
    let mut next = String::new();
    loop {
        let query = format!(
            "{collection}?limit={PAGE}&labelSelector={}&continue={}",
            path::escape(selector),
            path::escape(&next)
        );
        let answer = match kube.read(Call::get(query).accept(Accept::MetadataList).as_account(account)).await
        {
            Ok(answer) => answer,
            Err(error) => {
                return match error.code() {
                    403 => Ok(Listed::Forbidden(error.to_string())),
                    404 | 405 => Ok(Listed::Absent),
                    _ => Err(error),
                };
            }
        };
        let page: Page<'_> = serde_json::from_slice(&answer.body).map_err(|error| ApiError::Unreadable {
            detail: format!("list of {}: {error}", resource.plural),
        })?;
        for item in page.items.into_iter().flatten() {
            let item = serde_json::from_str(item.get())
                .map_err(|error| ApiError::Unreadable { detail: error.to_string() })?;
            items.push(item);
        }
        if page.metadata.next.is_empty() {
            return Ok(Listed::Items(items));
        }
        next = page.metadata.next;
    }
}

/// States the inventory while nothing is written, and fills the books with what is certain.
pub(super) async fn state(shared: &Arc<Shared>, view: &Arc<View>) -> Result<(), ApiError> {
    let Collected { found, unlisted } = collect(shared, view).await?;
    let mut targets: BTreeMap<SourceId, (Context, BTreeMap<ObjectKey, Target>)> = BTreeMap::new();
    for source in &view.sources {
        let context = Context::new(shared, view, source);
        let resolution = context.resolve();
        let by_key = resolution.targets.iter().map(|target| (target.key.clone(), target.clone())).collect();
        targets.insert(source.head.source, (context, by_key));
    }
    let mut drifted = Vec::new();
    for (live, object) in &found {
        let Some((context, targets)) = targets.get(&object.source) else { continue };
        let drift = enter(shared, context, targets.get(&object.identity.key()), live, object);
        drifted.extend(drift.map(|(key, drift)| (context, key, drift)));
    }
    for (context, by_key) in targets.values() {
        context.recall_finished(by_key.values());
    }
    let objects: Vec<OwnedObject> = found.iter().map(|(_, object)| object.clone()).collect();
    tell(shared, objects, unlisted);
    for (context, key, drift) in drifted {
        context.note_drift(&key, drift);
    }
    Ok(())
}

fn tell(shared: &Shared, mut objects: Vec<OwnedObject>, unlisted: Vec<GroupKind>) {
    objects.sort_by(|left, right| left.identity.cmp(&right.identity));
    let mut parts: Vec<Vec<OwnedObject>> = objects.chunks(PART).map(<[OwnedObject]>::to_vec).collect();
    if parts.is_empty() {
        parts.push(Vec::new());
    }
    let count = parts.len();
    let parts = parts.into_iter().enumerate().map(|(place, objects)| {
        let last = place + 1 == count;
        let unlisted = if last { unlisted.clone() } else { Vec::new() };
        Observed::InventoryStated { objects, last, unlisted }
    });
    shared.outbox.report_all(parts);
}

/// One found object: certain only if the very manifest that is wanted was applied last and each of its fields is still ours. Gives what
/// others took of it.
fn enter(
    shared: &Shared,
    context: &Context,
    target: Option<&Target>,
    live: &Value,
    object: &OwnedObject,
) -> Option<(ObjectKey, Drift)> {
    let mut sight = shared.sight(live, &object.identity);
    if has_health(&object.identity) {
        // Metadata does not tell; a watch will.
        sight.health = None;
    }
    let mark = live_mark(live, &object.identity);
    // What is being deleted has to be made anew, and what carries a former agent's mark has to be marked.
    let is_certain = !mark.terminating && mark.owner.as_ref() == Some(&context.owner);
    let applied = target.filter(|target| object.digest == Some(target.entry.digest) && is_certain);
    let prepared = applied.and_then(|target| {
        let entry = &target.entry;
        prepare(&entry.manifest, &target.identity, entry.digest, &context.owner, object.adopted).ok()
    });
    let is_covered = prepared.as_ref().is_some_and(|prepared| covers(live, &prepared.object));
    // Somebody took what is wanted while nobody looked. Where only marks of ours are others, the next sync puts them right.
    let lost = prepared.filter(|_| !is_covered).map(|prepared| lost_fields(live, &prepared.object));
    let lost = lost.filter(|lost| lost.iter().any(|field| !field.path.contains("kasbah.dev/")));
    let certain = applied.filter(|_| is_covered || lost.is_some()).map(|target| Arc::clone(&target.entry));
    let identity = target.map_or(&object.identity, |target| &target.identity);
    shared.with_book(object.source, |book| book.found(identity, sight, certain, object.adopted));
    lost.map(|fields| (identity.key(), Drift { deleted: false, fields }))
}

/// All objects with this agent's mark.
struct Collected {
    found: Vec<(Value, OwnedObject)>,
    /// Kinds of which there may be more.
    unlisted: Vec<GroupKind>,
}

/// Where a kind could be listed.
enum ApiServerReach {
    Everywhere,
    /// Where the sources have objects.
    WhereWanted,
    /// Something was refused.
    Partly,
}

async fn collect(shared: &Arc<Shared>, view: &Arc<View>) -> Result<Collected, ApiError> {
    let kinds = shared.discovery.kinds();
    let resources: Vec<Arc<Resource>> =
        kinds.preferred().filter(|resource| resource.listable).cloned().collect();
    let mut accounts: BTreeSet<Option<ServiceAccount>> =
        view.sources.iter().map(|source| source.account().cloned()).collect();
    if view.lockdown {
        accounts.remove(&None);
    } else {
        accounts.insert(None);
    }
    let mut found = BTreeMap::new();
    let silent = kinds.silent_groups().map(|group| GroupKind { group: group.clone(), kind: String::new() });
    let (mut listed, mut unlisted) = (BTreeSet::new(), silent.collect::<BTreeSet<_>>());
    for account in &accounts {
        let lists =
            resources.iter().map(|resource| collect_kind(shared, view, account.as_ref(), resource)).collect();
        for (resource, list) in resources.iter().zip(concurrently(lists, LISTS_AT_ONCE).await) {
            let kind = GroupKind { group: resource.group.clone(), kind: resource.kind.clone() };
            match list {
                Ok((objects, reach)) => {
                    found.extend(
                        objects.into_iter().map(|(live, object)| (object.uid.clone(), (live, object))),
                    );
                    match reach {
                        ApiServerReach::Everywhere => drop(listed.insert(kind)),
                        ApiServerReach::WhereWanted => {}
                        ApiServerReach::Partly => drop(unlisted.insert(kind)),
                    }
                }
                Err(error) if is_of_this_kind(resource, &error) => {
                    let group = &resource.group;
                    tracing::warn!(resource = %resource.plural, group, error = %error, "kind cannot be listed, its owned objects are unknown");
                    unlisted.insert(kind);
                }
                Err(error) => return Err(error),
            }
        }
    }
    let unlisted = unlisted.into_iter().filter(|kind| !listed.contains(kind)).collect();
    Ok(Collected { found: found.into_values().collect(), unlisted })
}

/// Whether a refusal is about one kind that somebody added, such as one whose conversion webhook is down, and not about the API
/// server: it stops nothing else. The API server's own groups have no dot in their names, or are never alone in failing.
fn is_of_this_kind(resource: &Resource, error: &ApiError) -> bool {
    error.status().is_some() && error.code() >= 500 && resource.group.contains('.')
}

async fn collect_kind(
    shared: &Arc<Shared>,
    view: &Arc<View>,
    account: Option<&ServiceAccount>,
    resource: &Resource,
) -> Result<(Vec<(Value, OwnedObject)>, ApiServerReach), ApiError> {
    let mut items = Vec::new();
    let mut reach = ApiServerReach::Everywhere;
    let mut per_namespace = view.mode == Mode::Namespaced;
    if !per_namespace {
        match list(&shared.kube, account, resource, "", SOURCE_LABEL).await? {
            Listed::Items(all) => items = all,
            Listed::Absent => {}
            Listed::Forbidden(_) => per_namespace = true,
        }
    }
    if per_namespace && resource.namespaced {
        reach = ApiServerReach::WhereWanted;
        for namespace in namespaces(view, account) {
            match list(&shared.kube, account, resource, &namespace, SOURCE_LABEL).await? {
                Listed::Items(some) => items.extend(some),
                Listed::Absent => {}
                Listed::Forbidden(_) => reach = ApiServerReach::Partly,
            }
        }
    } else if per_namespace {
        reach = ApiServerReach::Partly;
    }
    Ok((items.into_iter().filter_map(|live| owned(view, resource, live)).collect(), reach))
}

/// Namespaces that the sources of a service account name.
fn namespaces(view: &View, account: Option<&ServiceAccount>) -> BTreeSet<String> {
    let mut namespaces = BTreeSet::new();
    for source in view.sources.iter().filter(|source| source.account() == account) {
        namespaces.insert(source.head.default_namespace.clone());
        namespaces.extend(source.entries.iter().flatten().map(|entry| entry.identity.namespace.clone()));
        namespaces.extend(source.prune.iter().map(|entry| entry.identity.namespace.clone()));
    }
    namespaces.remove("");
    namespaces
}

fn owned(view: &View, resource: &Resource, live: Value) -> Option<(Value, OwnedObject)> {
    let identity = listed_identity(resource, &live);
    let mark = view.mark_of(&live, &identity);
    let owner = mark.owner?;
    if owner.organization != view.organization.to_string() || owner.agent != view.agent.to_string() {
        return None;
    }
    let object = OwnedObject {
        source: owner.source.parse().ok()?,
        digest: mark.applied.filter(|_| !is_secret(&identity)),
        identity,
        uid: mark.uid,
        adopted: mark.adopted,
    };
    Some((live, object))
}
