//! A source beside its status: its objects, its commits, what people did with it, and what the caller may do.

use std::collections::BTreeMap;

use async_graphql::{ComplexObject, Context, Result, SimpleObject};
use events::configuration::GitReference;
use events::directory::Scope;
use events::repository::ref_aggregate;
use events::requests::authz::ShowUser;
use events::requests::page::PageCursor;
use events::requests::status::{ListObjects, ObjectStatus};
use events::{Actor, AgentId, AggregateKind, AggregateRef, ProjectId, Refusal, RefusalKind, SourceId};
use store::Record;

use super::super::asker::Asker;
use super::super::page::{self, Items};
use super::super::{failure, limits};
use super::commit::{SourceCommit, SourceDeed, SourceHistory, people};
use super::rights::{SourceAction, SourceRight, decided};
use super::scalar::Time;
use super::source::{Source, State};

/// Records of each aggregate that are looked through for commits: the newest.
const RECORDS: usize = 2_000;
/// People whose names one answer looks up.
const PEOPLE: usize = 8;

/// Where a source stands in the log, and whose it is.
#[derive(Debug, Clone)]
pub(in crate::graphql) struct SourceKey {
    pub(in crate::graphql) source: SourceId,
    pub(in crate::graphql) agent: AgentId,
    pub(in crate::graphql) project: ProjectId,
    pub(in crate::graphql) reference: GitReference,
}

/// One object of a source, as far as the server knows it.
#[derive(Debug, Clone, SimpleObject)]
pub struct SourceObject {
    /// Its API group; empty for the core.
    group: String,
    /// Its kind.
    kind: String,
    /// Its namespace; empty where it has none.
    namespace: String,
    /// Its name.
    name: String,
    /// What it makes of its source.
    state: State,
    /// Why, in words: its failure, else its health; null where nothing is wrong.
    message: Option<String>,
    /// Since when, where that is known.
    since: Option<Time>,
    /// When it is tried again, if it is.
    retry_at: Option<Time>,
    /// The file that it stands in, where it failed.
    file: Option<String>,
    /// The line on which it begins there.
    line: Option<u32>,
    /// Fields that somebody else changed, with their field manager, such as `spec.replicas (kubectl-edit)`.
    drift: Vec<String>,
    /// The last write of Kasbah, such as `created`.
    written: Option<String>,
    /// When that was.
    written_at: Option<Time>,
    /// The source owns it.
    owned: bool,
    /// It existed before.
    adopted: bool,
    /// Why it was left in place when it was to be pruned.
    kept: Option<String>,
}

impl From<ObjectStatus> for SourceObject {
    fn from(object: ObjectStatus) -> Self {
        let ObjectStatus { identity, state, health, drift, failure, written, owned, adopted, kept, .. } =
            object;
        let (file, line) = match &failure {
            Some(failure) if !failure.file.is_empty() => (Some(failure.file.clone()), Some(failure.line)),
            _ => (None, None),
        };
        let retry_at = failure.as_ref().and_then(|failure| failure.retry_at).map(Time);
        let since = failure.as_ref().map(|failure| failure.since);
        let since =
            since.or(drift.as_ref().map(|drift| drift.since)).or(health.as_ref().map(|health| health.since));
        let is_deleted = drift.as_ref().is_some_and(|drift| drift.deleted);
        let message = failure.map(|failure| failure.message);
        let message = message.or_else(|| is_deleted.then(|| "somebody else deleted it".to_owned()));
        let message =
            message.or_else(|| health.map(|health| health.message)).filter(|message| !message.is_empty());
        let fields = drift.map(|drift| drift.fields).unwrap_or_default();
        let (written, written_at) = written.map(|(write, at)| (name_of(&write), Time(at))).unzip();
        Self {
            group: identity.group,
            kind: identity.kind,
            namespace: identity.namespace,
            name: identity.name,
            state: state.into(),
            message,
            since: since.map(Time),
            retry_at,
            file,
            line,
            drift: fields.into_iter().map(|field| format!("{} ({})", field.path, field.manager)).collect(),
            written,
            written_at,
            owned,
            adopted,
            kept,
        }
    }
}

/// The name of a variant, as JSON has it.
fn name_of<T: serde::Serialize>(value: &T) -> String {
    let name = serde_json::to_value(value).ok();
    name.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

#[ComplexObject]
impl Source {
    /// What you may do with it.
    #[graphql(complexity = "5 * limits::ASKING + 5 * child_complexity")]
    async fn rights(&self, context: &Context<'_>) -> Result<Vec<SourceRight>> {
        let scope = Scope::Agent(self.key.agent);
        let rights = decided(Asker::of(context)?, &SourceAction::ALL, scope).await?;
        Ok(rights.into_iter().map(SourceRight::from).collect())
    }

    /// Its objects, owned and failing ones, in the order of their keys.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn objects(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<SourceObject>> {
        let request = ListObjects {
            source: self.key.source,
            limit: Some(page::limit(first)?),
            cursor: after.map(PageCursor::from),
        };
        let found = Asker::of(context)?.ask(&request).await.map_err(page::cursor_is_after)?;
        page::of::<ListObjects, _, _>(
            found,
            Default::default(),
            |object| object.identity.key(),
            SourceObject::from,
        )
    }

    /// Its newest commits, the newest first, with what became of each.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn commits(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Commits at most, from 1 to 500; 50 if not given.")] first: Option<u16>,
    ) -> Result<Vec<SourceCommit>> {
        let first = page::limit(first)?.items();
        Ok(source_history(Asker::of(context)?, &self.key).await?.commits(first))
    }

    /// What people did with it last, the newest first.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn deeds(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Deeds at most, from 1 to 500; 50 if not given.")] first: Option<u16>,
    ) -> Result<Vec<SourceDeed>> {
        let first = page::limit(first)?.items();
        Ok(source_history(Asker::of(context)?, &self.key).await?.deeds(first))
    }
}

/// The history of a source, from its own records and those of the ref that it follows.
async fn source_history(asker: &Asker, key: &SourceKey) -> Result<SourceHistory> {
    let own = AggregateRef::new(AggregateKind::Source, key.source);
    let followed = ref_aggregate(key.project, &key.reference);
    let (own, mut records) =
        futures::try_join!(newest_records(asker, &own), newest_records(asker, &followed))?;
    let mut history = SourceHistory::with(names(asker, &own).await);
    records.extend(own);
    records.sort_by_key(|record| record.recorded_at);
    for record in &records {
        history.take(record, key.source);
    }
    Ok(history)
}

async fn newest_records(asker: &Asker, aggregate: &AggregateRef) -> Result<Vec<Record>> {
    let organization = asker.context.organization;
    let found = asker.app.log.history(organization, aggregate).await;
    let mut found = found.map_err(|error| {
        failure::error(&Refusal::new(RefusalKind::Unavailable, format!("{error}; retry")))
    })?;
    found.retain(|record| record.organization == organization);
    Ok(found.split_off(found.len().saturating_sub(RECORDS)))
}

/// The login names of people, as far as the caller may see users.
async fn names(asker: &Asker, records: &[Record]) -> BTreeMap<Actor, String> {
    let mut names = BTreeMap::new();
    for actor in people(records) {
        let Actor::User(user) = actor else { continue };
        if names.len() >= PEOPLE {
            break;
        }
        if names.contains_key(&actor) {
            continue;
        }
        let found = asker.ask(&ShowUser { user: user.to_string() }).await.ok();
        let name = found.and_then(|user| user.name).unwrap_or_else(|| "a user".to_owned());
        names.insert(actor, name);
    }
    names
}
