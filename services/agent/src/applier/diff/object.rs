//! What a sync would do with one object.

use bytes::Bytes;
use events::configuration::Conflicts;
use events::observation::TakenField;
use events::requests::diff::{DiffChange, DiffReason, ObjectDiff, ObjectExtra, ObjectHolder};
use http::Method;
use objects::diff::FieldChange;
use objects::digest::Status;
use objects::ownership::{OWNER_ANNOTATION, Replace, SOURCE_LABEL};
use objects::redact::Redactor;
use serde_json::Value;

use crate::applier::context::{Context, Standing};
use crate::applier::write::{contested_words, may_be_of_older_version};
use crate::kubernetes::call::ApplyMode;
use crate::kubernetes::{Accept, ApiError, Call, path};
use crate::model::adoption::{Decision, Owner};
use crate::model::difference::{Compared, Outcome};
use crate::model::extra::extra_fields;
use crate::model::managed::in_version;
use crate::model::manifest::{ADOPTED_ANNOTATION, APPLIED_ANNOTATION, Prepared, prepare};
use crate::model::sets::is_empty;
use crate::model::takeover::{given_up, is_unwanted, without};
use crate::model::target::Target;
use crate::model::verdict::{Verdict, explain, immutable_words, judge};

/// An object as it is in the cluster.
struct Live {
    object: Value,
    standing: Standing,
}

impl Context {
    /// The dry run of one object and what it would change, and what others added that stays.
    pub(super) async fn compare(
        &self,
        target: &Target,
        redactor: &Redactor,
    ) -> (Compared, Option<ObjectExtra>) {
        let mut extra = None;
        let mut is_there = false;
        let outcome = self.outcome(target, redactor, &mut is_there, &mut extra).await;
        (Compared { is_there, outcome }, extra)
    }

    async fn outcome(
        &self,
        target: &Target,
        redactor: &Redactor,
        is_there: &mut bool,
        extra: &mut Option<ObjectExtra>,
    ) -> Outcome {
        let (adopted, is_finished) = self.shared.with_book(self.id(), |book| {
            (book.get(&target.key).is_some_and(|known| known.adopted), book.is_finished(target))
        });
        if is_finished {
            return Outcome::Same;
        }
        let Some(path) = path::object(&target.resource, &target.identity.namespace, &target.identity.name)
        else {
            return refused(target, DiffReason::Invalid, "its name cannot be requested");
        };
        let entry = &target.entry;
        let prepared = match prepare(&entry.manifest, &target.identity, entry.digest, &self.owner, adopted) {
            Ok(prepared) => prepared,
            Err(error) => return refused(target, DiffReason::Invalid, &error.to_string()),
        };
        let live = self.shared.kube.read(Call::get(path.clone()).as_account(self.account())).await;
        let live = match live.and_then(|answer| answer.json::<Value>()) {
            Ok(object) => {
                *is_there = true;
                let standing = self.standing(target, &object, prepared.policies.adopt);
                if let Some(outcome) = stands_in_the_way(target, &object, &standing) {
                    return outcome;
                }
                Some(Live { object, standing })
            }
            Err(error) if error.code() == 404 => None,
            Err(error) => return refused_by(target, error),
        };
        match self.imagined(target, &path, &prepared, live.as_ref().map(|live| &live.object)).await {
            Ok(wanted) => self.difference(target, (&path, &prepared), live, wanted, redactor, extra).await,
            Err(error) => self.weighed(target, &prepared, live.as_ref(), error).await,
        }
    }

    /// The object as a write would leave it.
    async fn imagined(
        &self,
        target: &Target,
        path: &str,
        prepared: &Prepared,
        live: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let force = self.source.head.policies.conflicts == Conflicts::Force;
        let call = Call::apply(path, prepared.body(), ApplyMode { dry_run: true, force });
        let call = call.accept(Accept::Whole).as_account(self.account());
        let wanted = self.shared.kube.read(call).await.and_then(|answer| answer.json::<Value>());
        if wanted.as_ref().is_err_and(may_be_of_older_version)
            && let Some(live) = live
            && let Some(merged) = self.merged(target, path, &prepared.object, live).await
        {
            return merged;
        }
        wanted
    }

    /// A dry run that passed, compared with what is there.
    async fn difference(
        &self,
        target: &Target,
        (path, prepared): (&str, &Prepared),
        live: Option<Live>,
        mut wanted: Value,
        redactor: &Redactor,
        extra: &mut Option<ObjectExtra>,
    ) -> Outcome {
        let Some(Live { object: mut live, standing }) = live else {
            return Outcome::Differs(about(target, DiffChange::Create));
        };
        let added = extra_fields(&live);
        let goes = standing.decision == Decision::Adopt || self.is_to_strip(&added);
        *extra = self.stays(target, added, &standing.decision);
        if goes {
            wanted = self.taken_over(target, path, prepared, &live, wanted).await;
        }
        redactor.redact(&mut live);
        redactor.redact(&mut wanted);
        without_marks(&mut live);
        without_marks(&mut wanted);
        let fields: Vec<_> = objects::diff::diff(&live, &wanted, Status::Ignored).iter().map(texts).collect();
        let changes = taken(target, standing);
        if fields.is_empty() && changes.reason.is_none() {
            return Outcome::Same;
        }
        Outcome::Differs(ObjectDiff { fields, ..changes })
    }

    /// A dry run that did not pass.
    async fn weighed(
        &self,
        target: &Target,
        prepared: &Prepared,
        live: Option<&Live>,
        error: ApiError,
    ) -> Outcome {
        let words = explain(&error, &target.identity, &target.entry.manifest);
        let may_replace = live.is_some() && prepared.policies.replace == Replace::OnImmutable;
        let replaced = |words: &str| {
            let message = format!("it is deleted and created again: {}", first_line(words));
            Outcome::Differs(about(target, DiffChange::Change).because(DiffReason::Replaced, message))
        };
        match judge(&error) {
            Verdict::DryRunUnsupported => unverified(target, live, &words),
            Verdict::Immutable(_) if may_replace => replaced(&words),
            Verdict::Immutable(fields) => {
                refused(target, DiffReason::Immutable, &immutable_words(&fields, &words))
            }
            Verdict::Conflict(_) => refused(target, DiffReason::Conflict, &words),
            Verdict::Refused
                if may_replace && error.code() == 422 && self.could_be_created(target, prepared).await =>
            {
                replaced(&words)
            }
            _ => refused_by(target, error),
        }
    }

    /// What others added to an object of ours and a sync leaves there.
    fn stays(&self, target: &Target, added: Vec<TakenField>, decision: &Decision) -> Option<ObjectExtra> {
        let policies = &self.source.head.policies;
        let is_ours = *decision == Decision::Write;
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

    /// What a sync would make of an object whose fields are managed in an older version of its API: that is rewritten first, which a
    /// comparison must not do. `None` where it is not so.
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

fn about(target: &Target, change: DiffChange) -> ObjectDiff {
    ObjectDiff::new(target.identity.clone(), change).at(&target.entry.file, target.entry.line)
}

fn refused(target: &Target, reason: DiffReason, message: &str) -> Outcome {
    let diff = about(target, DiffChange::Refused).because(reason, message);
    Outcome::Refused { diff, error: None, stops: true }
}

/// The API server refused.
fn refused_by(target: &Target, error: ApiError) -> Outcome {
    let words = explain(&error, &target.identity, &target.entry.manifest);
    let diff = about(target, DiffChange::Refused).because(DiffReason::ApiServer, words);
    Outcome::Refused { diff, error: Some(error), stops: true }
}

/// What is there may not be taken, or is about to go.
fn stands_in_the_way(target: &Target, live: &Value, standing: &Standing) -> Option<Outcome> {
    if let (Owner::Sibling { current: true }, Some(ObjectHolder::Source { name, .. })) =
        (standing.owner, &standing.holder)
    {
        let diff = about(target, DiffChange::Refused)
            .because(DiffReason::HeldBySource, contested_words(name))
            .held_by(standing.holder.clone());
        return Some(Outcome::Refused { diff, error: None, stops: false });
    }
    if let Decision::Refuse(reason) = &standing.decision {
        let diff = about(target, DiffChange::Refused)
            .because(DiffReason::AdoptionRefused, reason.clone())
            .held_by(standing.holder.clone());
        return Some(Outcome::Refused { diff, error: None, stops: true });
    }
    let is_ending = live.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    is_ending.then(|| {
        let diff = about(target, DiffChange::Wait)
            .because(DiffReason::BeingDeleted, "the object is being deleted; it is applied once it is gone");
        Outcome::Refused { diff, error: None, stops: true }
    })
}

/// What is said of an object that is there: whose it was before.
fn taken(target: &Target, standing: Standing) -> ObjectDiff {
    let diff = about(target, DiffChange::Change);
    let from = match &standing.holder {
        Some(ObjectHolder::Tool { name }) => format!(" from {name}"),
        Some(ObjectHolder::Source { name, .. }) => format!(" from source {name}"),
        Some(ObjectHolder::Agent { agent, .. }) => format!(" from agent {agent}"),
        None => String::new(),
    };
    let diff = match (standing.owner, &standing.decision) {
        (_, Decision::Adopt) => diff.because(DiffReason::Adopted, format!("taken over{from}")),
        (Owner::Sibling { .. }, _) => {
            diff.because(DiffReason::HandedOver, format!("handed over{from}, which has dropped it"))
        }
        _ => return diff,
    };
    diff.held_by(standing.holder)
}

/// A webhook takes no part in dry runs: it is applied without one, unless it is applied already.
fn unverified(target: &Target, live: Option<&Live>, words: &str) -> Outcome {
    let change = match live {
        Some(live) if live.standing.applied == Some(target.entry.digest) => return Outcome::Same,
        Some(_) => DiffChange::Change,
        None => DiffChange::Create,
    };
    let message = format!("not verified, as a webhook takes no part in dry runs: {words}");
    Outcome::Differs(about(target, change).because(DiffReason::Unverified, message))
}

/// The API server may print both objects after it.
fn first_line(words: &str) -> &str {
    words.lines().next().unwrap_or_default().trim_end()
}

/// What the agent writes on each object besides its manifest.
const MARKS: [&str; 4] = [SOURCE_LABEL, OWNER_ANNOTATION, APPLIED_ANNOTATION, ADOPTED_ANNOTATION];

/// Our own marks are no news to anybody, nor is the map that holds nothing else.
fn without_marks(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for name in ["labels", "annotations"] {
        if let Some(map) = metadata.get_mut(name).and_then(Value::as_object_mut) {
            map.retain(|key, _| !MARKS.contains(&key.as_str()));
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
