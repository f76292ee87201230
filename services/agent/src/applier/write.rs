//! One object: its dry run, its adoption, its write.

use std::time::Duration;

use bytes::Bytes;
use events::SyncId;
use events::configuration::Conflicts;
use events::delivery::ObjectFailure;
use events::observation::{Observed, OwnedObject, TakenField, Write};
use events::requests::diff::ObjectHolder;
use http::{Method, StatusCode};
use objects::ownership::Replace;
use serde::Deserialize;
use serde_json::{Value, json};

use super::context::Context;
use super::health::has_health;
use crate::kubernetes::call::ApplyMode;
use crate::kubernetes::{Accept, Answer, ApiError, ApiStatus, Call, path};
use crate::model::adoption::{Decision, Owner};
use crate::model::book::Before;
use crate::model::managed::in_version;
use crate::model::manifest::{Prepared, is_secret, prepare};
use crate::model::takeover::migrated;
use crate::model::target::Target;
use crate::model::verdict::{Verdict, explain, immutable_words, judge};

/// How long an object that is replaced may take to go.
const GONE_DEADLINE: Duration = Duration::from_secs(60);

/// A dry run that passed.
#[derive(Debug, Clone, Default)]
pub(super) struct Checked {
    /// The object is there, in this version.
    pub(super) prior: Option<Prior>,
    /// It was there before us.
    adopted: bool,
    /// What other tools wrote from manifests becomes ours first.
    migrate: bool,
    /// Fields that other managers lose.
    taken: Vec<TakenField>,
    /// It has to be deleted and created.
    replace: bool,
}

/// An object that is there already.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Prior {
    uid: String,
    version: String,
}

/// A dry run or a write that failed.
pub(super) type Failed = Box<Failure>;

/// See [`Failed`].
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) failure: ObjectFailure,
    /// What the API server said, where it was it.
    pub(super) error: Option<ApiError>,
    /// Another source of this agent has the object in its bundle as well.
    pub(super) is_contested: bool,
}

impl Failure {
    pub(super) fn is_transient(&self) -> bool {
        self.error.as_ref().is_some_and(ApiError::is_transient)
    }

    pub(super) fn is_loss_of_lease(&self) -> bool {
        matches!(self.error, Some(ApiError::NotHolding))
    }
}

/// The API server may not be able to read an object in the version in which somebody wrote its fields.
pub(super) fn may_be_of_older_version(error: &ApiError) -> bool {
    error.status().is_some_and(ApiStatus::may_be_of_older_version)
}

/// Why an object that another source of the agent has in its bundle is not applied.
pub(super) fn contested_words(holder: &str) -> String {
    format!("source {holder}, another source of this agent, holds it")
}

/// Only the change is refused, and the object asks for being replaced then.
fn to_be_replaced(target: &Target, error: &ApiError, checked: &mut Checked) {
    let words = explain(error, &target.identity, &target.entry.manifest);
    tracing::info!(object = %target.identity, error = words.lines().next(), "object is replaced");
    checked.replace = true;
}

#[derive(Deserialize)]
struct Partial {
    #[serde(default)]
    metadata: PartialMetadata,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PartialMetadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

impl Context {
    fn fail(&self, target: &Target, message: impl Into<String>) -> Failed {
        Box::new(Failure { failure: target.failure(message), error: None, is_contested: false })
    }

    fn refused(&self, target: &Target, error: ApiError) -> Failed {
        let words = explain(&error, &target.identity, &target.entry.manifest);
        Box::new(Failure { failure: target.failure(words), error: Some(error), is_contested: false })
    }

    fn object_path(&self, target: &Target) -> Result<String, Failed> {
        path::object(&target.resource, &target.identity.namespace, &target.identity.name).ok_or_else(|| {
            self.fail(target, format!("{:?} is not a valid object name", target.identity.name))
        })
    }

    fn prepare(&self, target: &Target, adopted: bool) -> Result<Prepared, Failed> {
        prepare(&target.entry.manifest, &target.identity, target.entry.digest, &self.owner, adopted)
            .map_err(|error| self.fail(target, error.to_string()))
    }

    async fn dry_run(&self, path: &str, body: Bytes, force: bool) -> Result<Answer, ApiError> {
        let call = Call::apply(path, body, ApplyMode { dry_run: true, force }).as_account(self.account());
        self.shared.kube.read(call).await
    }

    /// The dry run of one object, and whether it may be taken over. Changes nothing.
    pub(super) async fn check(&self, target: &Target) -> Result<Checked, Failed> {
        let (known, migrate) = self.shared.with_book(self.id(), |book| {
            let known = book.get(&target.key);
            let extra = known.map(|known| known.extra.as_slice()).unwrap_or_default();
            (known.map(|known| (known.uid.clone(), known.adopted)), self.is_to_strip(extra))
        });
        let adopted = known.as_ref().is_some_and(|(_, adopted)| *adopted);
        let path = self.object_path(target)?;
        let prepared = self.prepare(target, adopted)?;
        let body = prepared.body();
        let mut checked = Checked { adopted, migrate, ..Checked::default() };
        let mut answer = self.dry_run(&path, body.clone(), false).await;
        if answer.as_ref().is_err_and(may_be_of_older_version)
            && self
                .rewrite_fields(target, &path, in_version)
                .await
                .map_err(|error| self.refused(target, error))?
        {
            answer = self.dry_run(&path, body.clone(), false).await;
        }
        if let Err(error) = &answer
            && let Verdict::Conflict(taken) = judge(error)
        {
            if self.source.head.policies.conflicts == Conflicts::Refuse {
                let error = error.clone();
                return Err(self.refused(target, error));
            }
            checked.taken = taken;
            answer = self.dry_run(&path, body, true).await;
        }
        let mut must_look = known.is_none();
        match answer {
            Ok(answer) if answer.status == StatusCode::CREATED => return Ok(checked),
            Ok(answer) => {
                let partial: Partial = answer.json().map_err(|error| self.refused(target, error))?;
                if partial.metadata.deletion_timestamp.is_some() {
                    let failure =
                        target.failure("the object is being deleted; it is applied once it is gone");
                    let error = ApiError::Pending { detail: String::new() };
                    return Err(Box::new(Failure { failure, error: Some(error), is_contested: false }));
                }
                must_look |= known.is_some_and(|(uid, _)| uid != partial.metadata.uid);
                checked.prior =
                    Some(Prior { uid: partial.metadata.uid, version: partial.metadata.resource_version });
            }
            Err(error) => self.weigh(target, &prepared, error, &mut checked).await?,
        }
        if must_look || checked.prior.is_none() {
            self.look(target, &path, &prepared, &mut checked).await?;
        }
        Ok(checked)
    }

    /// A refusal of a dry run that does not end it.
    async fn weigh(
        &self,
        target: &Target,
        prepared: &Prepared,
        error: ApiError,
        checked: &mut Checked,
    ) -> Result<(), Failed> {
        let may_replace = prepared.policies.replace == Replace::OnImmutable;
        match judge(&error) {
            Verdict::DryRunUnsupported => {
                tracing::info!(object = %target.identity, "unverified: a webhook does not support dry runs");
                Ok(())
            }
            Verdict::Immutable(_) if may_replace => {
                to_be_replaced(target, &error, checked);
                Ok(())
            }
            Verdict::Immutable(fields) => {
                let words = explain(&error, &target.identity, &target.entry.manifest);
                Err(self.fail(target, immutable_words(&fields, &words)))
            }
            // A rule of somebody's own may say in any words that a field cannot change.
            Verdict::Refused
                if may_replace && error.code() == 422 && self.could_be_created(target, prepared).await =>
            {
                to_be_replaced(target, &error, checked);
                Ok(())
            }
            _ => Err(self.refused(target, error)),
        }
    }

    /// Whether the API server would take the object if it were new, by a dry run under another name.
    pub(super) async fn could_be_created(&self, target: &Target, prepared: &Prepared) -> bool {
        let Some(path) = path::collection(&target.resource, &target.identity.namespace) else { return false };
        let mut object = prepared.object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("name");
            metadata.insert("generateName".to_owned(), Value::from("kasbah-dry-run-"));
        }
        let path = format!("{path}?dryRun=All&fieldManager={}&fieldValidation=Strict", crate::FIELD_MANAGER);
        let body = Bytes::from(object.to_string());
        let call = Call::write(Method::POST, path, "application/json", body).accept(Accept::Metadata);
        self.shared.kube.read(call.as_account(self.account())).await.is_ok()
    }

    /// Whose the object is that is there, and whether it may be written.
    async fn look(
        &self,
        target: &Target,
        path: &str,
        prepared: &Prepared,
        checked: &mut Checked,
    ) -> Result<(), Failed> {
        let call = Call::get(path.to_owned()).accept(Accept::Metadata).as_account(self.account());
        let live: Value = match self.shared.kube.read(call).await {
            Ok(answer) => answer.json().map_err(|error| self.refused(target, error))?,
            Err(error) if error.code() == 404 => return Ok(()),
            Err(error) => return Err(self.refused(target, error)),
        };
        let standing = self.standing(target, &live, prepared.policies.adopt);
        if let (Owner::Sibling { current: true }, Some(ObjectHolder::Source { name, .. })) =
            (standing.owner, &standing.holder)
        {
            // The server decides who holds it, and has not heard of both yet.
            let failure = target.failure(contested_words(name));
            return Err(Box::new(Failure { failure, error: None, is_contested: true }));
        }
        match standing.decision {
            Decision::Write => checked.adopted = standing.adopted,
            Decision::Adopt => {
                checked.adopted = true;
                let api_version = target.identity.api_version();
                checked.migrate = migrated(&live, &api_version, self.whose()).is_some();
            }
            Decision::Refuse(reason) => return Err(self.fail(target, reason)),
        }
        let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        checked.prior = Some(Prior { uid: standing.uid, version: version.to_owned() });
        Ok(())
    }

    /// Writes one object whose dry run passed, and tells it.
    pub(super) async fn apply(
        &self,
        target: &Target,
        checked: &Checked,
        sync: Option<SyncId>,
    ) -> Result<Write, Failed> {
        self.shared.with_book(self.id(), |book| book.write_begins(&target.key));
        let result = self.write(target, checked).await;
        self.shared.counts.applied(result.as_ref().ok().map(|(_, write)| *write));
        let (overheard, result) = match result {
            Ok((live, write)) => (self.applied(target, checked, sync, &live, write), Ok(write)),
            Err(failed) => {
                (self.shared.with_book(self.id(), |book| book.write_failed(&target.key)), Err(failed))
            }
        };
        if overheard {
            self.recheck(&target.identity).await;
        }
        result
    }

    async fn write(&self, target: &Target, checked: &Checked) -> Result<(Value, Write), Failed> {
        let path = self.object_path(target)?;
        if checked.replace
            && let Some(prior) = &checked.prior
        {
            self.delete_and_wait(&path, &prior.uid).await.map_err(|error| self.refused(target, error))?;
        } else if checked.migrate {
            let hand_over = |live: &Value, version: &str| migrated(live, version, self.whose());
            let rewritten = self.rewrite_fields(target, &path, hand_over).await;
            rewritten.map_err(|error| self.refused(target, error))?;
        }
        let body = self.prepare(target, checked.adopted)?.body();
        let force = self.source.head.policies.conflicts == Conflicts::Force;
        let accept = if has_health(&target.identity) { Accept::Whole } else { Accept::Metadata };
        let call = Call::apply(&path, body, ApplyMode { dry_run: false, force })
            .accept(accept)
            .as_account(self.account());
        let answer = self
            .shared
            .kube
            .write(call, &self.shared.holding)
            .await
            .map_err(|error| self.refused(target, error))?;
        let live: Value = answer.json().map_err(|error| self.refused(target, error))?;
        let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        let write = if checked.replace {
            Write::Replaced
        } else if answer.status == StatusCode::CREATED {
            Write::Created
        } else if checked.prior.as_ref().is_some_and(|prior| prior.version == version) {
            Write::Unchanged
        } else {
            Write::Changed
        };
        Ok((live, write))
    }

    /// Notes and tells a write; whether watches showed something newer meanwhile.
    fn applied(
        &self,
        target: &Target,
        checked: &Checked,
        sync: Option<SyncId>,
        live: &Value,
        write: Write,
    ) -> bool {
        let sight = self.shared.sight(live, &target.identity);
        let object = OwnedObject {
            source: self.id(),
            identity: target.identity.clone(),
            uid: sight.uid.clone(),
            digest: (!is_secret(&target.identity)).then_some(target.entry.digest),
            adopted: checked.adopted,
        };
        // What the statement of the inventory had is said once.
        let is_stated = self.shared.with_book(self.id(), |book| {
            book.get(&target.key).is_some_and(|known| {
                known.uid == object.uid
                    && known.adopted == object.adopted
                    && (known.digest == object.digest || object.digest.is_none())
            })
        });
        let is_news = write != Write::Unchanged || !is_stated || self.source.head.check_all;
        let now = self.shared.now();
        let judged = write != Write::Created && has_health(&target.identity);
        let before = Before { adopted: checked.adopted, judged };
        let settled = self.shared.with_book(self.id(), |book| book.settled(target, sight, before, now));
        if is_news {
            let taken_over = checked.taken.clone();
            self.shared.outbox.report(Observed::ObjectApplied { sync, object, write, taken_over });
        }
        if settled.corrected {
            self.shared.counts.drift_corrections.inc();
            self.shared
                .outbox
                .report(Observed::DriftCorrected { source: self.id(), identity: target.identity.clone() });
        }
        if let Some(health) = settled.health {
            self.report_health(&target.identity, health);
        }
        self.note_end(&target.identity, live);
        self.check_extra(&target.identity, live);
        settled.overheard
    }

    /// Rewrites who manages which fields; `false` where there is nothing to rewrite. A conflict means that somebody wrote meanwhile.
    async fn rewrite_fields(
        &self,
        target: &Target,
        path: &str,
        rewrite: impl Fn(&Value, &str) -> Option<Value>,
    ) -> Result<bool, ApiError> {
        for _ in 0..5 {
            let call = Call::get(path.to_owned()).accept(Accept::Metadata).as_account(self.account());
            let live: Value = match self.shared.kube.read(call).await {
                Err(error) if error.code() == 404 => return Ok(false),
                answer => answer?.json()?,
            };
            let Some(fields) = rewrite(&live, &target.identity.api_version()) else { return Ok(false) };
            let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or(Value::Null);
            let patch = json!([
                {"op": "replace", "path": "/metadata/managedFields", "value": fields},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            ]);
            let query = format!("{path}?fieldManager={}", crate::FIELD_MANAGER);
            let body = Bytes::from(patch.to_string());
            let call = Call::write(Method::PATCH, query, "application/json-patch+json", body)
                .accept(Accept::Metadata)
                .as_account(self.account());
            match self.shared.kube.write(call, &self.shared.holding).await {
                Err(error) if error.code() == 409 => {}
                other => return other.map(|_| true),
            }
        }
        Err(ApiError::Pending { detail: "its managed fields keep changing".to_owned() })
    }

    async fn delete_and_wait(&self, path: &str, uid: &str) -> Result<(), ApiError> {
        let call = Call::delete(path.to_owned(), uid).as_account(self.account());
        match self.shared.kube.write(call, &self.shared.holding).await {
            Ok(_) => {}
            Err(error) if error.code() == 404 => return Ok(()),
            Err(error) => return Err(error),
        }
        let end = self.shared.now() + GONE_DEADLINE;
        let mut wait = Duration::from_millis(20);
        loop {
            let call = Call::get(path.to_owned()).accept(Accept::Metadata).as_account(self.account());
            match self.shared.kube.read(call).await {
                Err(error) if error.code() == 404 => return Ok(()),
                Err(error) => return Err(error),
                Ok(answer) => {
                    let live: Value = answer.json()?;
                    if live.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid) {
                        return Ok(());
                    }
                }
            }
            if self.shared.now() > end {
                let detail = format!("deleted for its replacement, but not gone within {GONE_DEADLINE:?}");
                return Err(ApiError::Pending { detail });
            }
            self.shared.world.clock.sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(1));
        }
    }
}
