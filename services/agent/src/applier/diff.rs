//! What a sync would change now: dry runs, compared with what is there.

use std::sync::Arc;

use bytes::Bytes;
use events::delivery::{ObjectFailure, PruneEntry};
use events::observation::TakenField;
use events::requests::gateway::{DiffChange, ObjectDiff, ObjectExtra, SourceDiff};
use http::Method;
use objects::diff::FieldChange;
use objects::digest::Status;
use objects::redact::Redactor;
use serde_json::Value;

use super::Shared;
use super::concurrent::concurrently;
use super::context::Context;
use super::prune::{Fate, Going, Progress, Pruned};
use super::write::may_be_of_older_version;
use crate::desired::{SourceView, View};
use crate::kubernetes::call::ApplyMode;
use crate::kubernetes::{Accept, ApiError, Call, path};
use crate::model::adoption::Decision;
use crate::model::extra::extra_fields;
use crate::model::managed::in_version;
use crate::model::manifest::{Prepared, prepare};
use crate::model::prune::holds_others;
use crate::model::sets::is_empty;
use crate::model::takeover::{given_up, is_unwanted, without};
use crate::model::target::Target;
use crate::model::verdict::explain;

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
    let mut answer = SourceDiff { commit: source.head.commit.clone(), ..SourceDiff::default() };
    answer.objects.extend(resolution.failures.iter().chain(&resolution.wanted).map(refused));
    for awaited in &resolution.awaited {
        let error = Some(awaited.failure().message);
        answer.objects.push(ObjectDiff { error, ..plain(&awaited.entry.identity, DiffChange::Create) });
    }
    let looks: Vec<_> = resolution.targets.iter().map(|target| context.compare(target, &redactor)).collect();
    for (extra, difference) in concurrently(looks, AT_ONCE).await {
        answer.extra.extend(extra);
        match difference {
            Some(difference) => answer.objects.push(difference),
            None => answer.unchanged = answer.unchanged.saturating_add(1),
        }
    }
    answer.extra.sort_by(|left, right| left.identity.cmp(&right.identity));
    answer.objects.sort_by(|left, right| left.identity.cmp(&right.identity));
    answer.objects.extend(context.would_prune().await);
    Ok(answer)
}

fn refused(failure: &ObjectFailure) -> ObjectDiff {
    ObjectDiff { error: Some(failure.message.clone()), ..plain(&failure.identity, DiffChange::Refused) }
}

fn plain(identity: &events::ObjectIdentity, change: DiffChange) -> ObjectDiff {
    ObjectDiff { identity: identity.clone(), change, fields: Vec::new(), error: None }
}

impl Context {
    /// What was listed may be gone, or be kept; a namespace is, where something in it would be.
    async fn would_prune(&self) -> Vec<ObjectDiff> {
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
                match fate {
                    Ok(Fate::Delete { .. } | Fate::Ending(_) | Fate::Waits(_)) => {
                        progress.note(&entry.uid, Pruned::Deleted);
                        differences.push(plain(&entry.identity, DiffChange::Prune));
                    }
                    Ok(Fate::Settled(pruned)) => progress.note(&entry.uid, pruned),
                    Err(error) => {
                        let error = Some(format!("cannot be pruned: {error}"));
                        differences.push(ObjectDiff { error, ..plain(&entry.identity, DiffChange::Refused) });
                    }
                }
            }
        }
        differences
    }

    /// What others added to an object of ours and a sync leaves there.
    fn stays(
        &self,
        target: &Target,
        added: Vec<TakenField>,
        decision: Option<&Decision>,
    ) -> Option<ObjectExtra> {
        let policies = &self.source.head.policies;
        let is_ours = decision == Some(&Decision::Write);
        let fields: Vec<(String, String)> = added
            .into_iter()
            .filter(|field| {
                is_ours && !(policies.strict && is_unwanted(&field.manager, &policies.strict_managers))
            })
            .map(|field| (field.path, field.manager))
            .collect();
        (!fields.is_empty()).then(|| ObjectExtra { identity: target.identity.clone(), fields })
    }

    /// What becomes of an object that is adopted: it loses what other tools wrote from manifests and Git lacks.
    async fn taken_over(
        &self,
        target: &Target,
        path: &str,
        prepared: &Prepared,
        live: &Value,
        wanted: Value,
    ) -> Value {
        let lost = given_up(live, &target.identity.api_version(), &prepared.object, self.whose());
        if is_empty(&lost) {
            return wanted;
        }
        let expected = without(&wanted, &lost);
        // The API server puts defaults where something is missing.
        let query = format!("{path}?dryRun=All&fieldManager={}", crate::FIELD_MANAGER);
        let body = Bytes::from(expected.to_string());
        let call = Call::write(Method::PUT, query, "application/json", body).as_account(self.account());
        let answer = self.shared.kube.read(call).await;
        answer.and_then(|answer| answer.json::<Value>()).unwrap_or(expected)
    }

    async fn compare(
        &self,
        target: &Target,
        redactor: &Redactor,
    ) -> (Option<ObjectExtra>, Option<ObjectDiff>) {
        let mut extra = None;
        let difference = self.difference(target, redactor, &mut extra).await;
        (extra, difference)
    }

    async fn difference(
        &self,
        target: &Target,
        redactor: &Redactor,
        extra: &mut Option<ObjectExtra>,
    ) -> Option<ObjectDiff> {
        let said = |error: ApiError| explain(&error, &target.identity, &target.entry.manifest);
        let refused = |message: String| {
            Some(ObjectDiff { error: Some(message), ..plain(&target.identity, DiffChange::Refused) })
        };
        let (adopted, is_finished) = self.shared.with_book(self.id(), |book| {
            (book.get(&target.key).is_some_and(|known| known.adopted), book.is_finished(target))
        });
        if is_finished {
            return None;
        }
        let Some(path) = path::object(&target.resource, &target.identity.namespace, &target.identity.name)
        else {
            return refused("its name cannot be asked for".to_owned());
        };
        let entry = &target.entry;
        let prepared = match prepare(&entry.manifest, &target.identity, entry.digest, &self.owner, adopted) {
            Ok(prepared) => prepared,
            Err(error) => return refused(error.to_string()),
        };
        let live = self.shared.kube.read(Call::get(path.clone()).as_account(self.account())).await;
        let live = match live.and_then(|answer| answer.json::<Value>()) {
            Ok(live) => Some(live),
            Err(error) if error.code() == 404 => None,
            Err(error) => return refused(said(error)),
        };
        let decision = live.as_ref().map(|live| self.may_take(target, live, prepared.policies.adopt));
        if let Some(Decision::Refuse(reason)) = decision {
            return refused(reason);
        }
        let call = Call::apply(&path, prepared.body(), ApplyMode { dry_run: true, force: true });
        let call = call.accept(Accept::Whole).as_account(self.account());
        let mut wanted = self.shared.kube.read(call).await.and_then(|answer| answer.json::<Value>());
        if wanted.as_ref().is_err_and(may_be_of_older_version)
            && let Some(live) = &live
            && let Some(merged) = self.merged(target, &path, &prepared.object, live).await
        {
            wanted = merged;
        }
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(error) => return refused(said(error)),
        };
        let Some(mut live) = live else { return Some(plain(&target.identity, DiffChange::Create)) };
        let mut wanted = wanted;
        let added = extra_fields(&live);
        let goes = decision == Some(Decision::Adopt) || self.is_to_strip(&added);
        *extra = self.stays(target, added, decision.as_ref());
        if goes {
            wanted = self.taken_over(target, &path, &prepared, &live, wanted).await;
        }
        redactor.redact(&mut live);
        redactor.redact(&mut wanted);
        without_marks(&mut live);
        without_marks(&mut wanted);
        let fields: Vec<_> = objects::diff::diff(&live, &wanted, Status::Ignored).iter().map(texts).collect();
        (!fields.is_empty()).then(|| ObjectDiff { fields, ..plain(&target.identity, DiffChange::Change) })
    }
}

impl Context {
    /// What a sync would make of an object whose fields are managed in an older version of its API: that is rewritten first, which a look must
    /// not do. `None` where it is not so.
    async fn merged(
        &self,
        target: &Target,
        path: &str,
        prepared: &Value,
        live: &Value,
    ) -> Option<Result<Value, ApiError>> {
        let fields = in_version(live, &target.identity.api_version())?;
        let mut merged = prepared.clone();
        merged.get_mut("metadata")?.as_object_mut()?.insert("managedFields".to_owned(), fields);
        let path = format!("{path}?dryRun=All&fieldManager={}&fieldValidation=Strict", crate::FIELD_MANAGER);
        let body = Bytes::from(merged.to_string());
        let call = Call::write(Method::PATCH, path, "application/merge-patch+json", body);
        let answer = self.shared.kube.read(call.as_account(self.account())).await;
        Some(answer.and_then(|answer| answer.json()))
    }
}

/// Our own marks are no news to anybody, nor is the map that holds nothing else.
fn without_marks(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for name in ["labels", "annotations"] {
        if let Some(map) = metadata.get_mut(name).and_then(Value::as_object_mut) {
            map.retain(|key, _| !key.starts_with("kasbah.dev/"));
            if map.is_empty() {
                metadata.remove(name);
            }
        }
    }
}

fn texts(change: &FieldChange) -> (String, Option<String>, Option<String>) {
    let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
    (change.path.to_string(), text(&change.before), text(&change.after))
}
