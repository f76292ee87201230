//! Manifest sources and their syncs.

use async_graphql::{Enum, ID, SimpleObject};
use events::delivery::{self, HoldReason, ObjectFailure};
use events::requests::delivery::{SourceSync, SourceView, SyncView};
use events::requests::status;

use super::commit::Finding;
use super::delivered::{SourceKey, SourceObject};
use super::scalar::Time;

/// How a source or an agent stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(remote = "status::State")]
pub enum State {
    /// The cluster is at the commit that it should be at, and all of it is well.
    InSync,
    /// On its way.
    Progressing,
    /// Applied, but something of it is not well.
    Degraded,
    /// The cluster is not as it should be, and that does not end by itself at once.
    OutOfSync,
    /// A bundle waits for a person's confirmation.
    Held,
    /// A person stopped it.
    Suspended,
    /// The newest commit was rejected; the last good one stays.
    Rejected,
    /// Its agent is gone: what was known last may not be so any more.
    Stale,
    /// Cannot be told.
    Unknown,
}

/// How a sync ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(remote = "delivery::SyncOutcome")]
pub enum SyncOutcome {
    /// Everything is applied and healthy.
    Succeeded,
    /// Everything is applied; not all of it became healthy in time.
    Unhealthy,
    /// Something could not be applied; nothing was pruned.
    Failed,
    /// A newer bundle took its place.
    Superseded,
    /// Its applier died or lost its place.
    Interrupted,
}

/// One thing that is so.
#[derive(Debug, Clone, SimpleObject)]
pub struct Condition {
    /// What it makes of the source or agent.
    state: State,
    /// A code that stays the same while the words change.
    reason: String,
    /// In words.
    message: String,
    /// Since when, where that is known.
    since: Option<Time>,
    /// When it is tried again, if it is.
    retry_at: Option<Time>,
}

impl From<status::Condition> for Condition {
    fn from(condition: status::Condition) -> Self {
        Self {
            state: condition.state.into(),
            reason: condition.reason.code().to_owned(),
            message: condition.message,
            since: condition.since.map(Time),
            retry_at: condition.retry_at.map(Time),
        }
    }
}

/// The objects of a source in numbers.
#[derive(Debug, Clone, SimpleObject)]
pub struct ObjectCounts {
    /// All that the source owns.
    owned: u32,
    /// Could not be applied, pruned or corrected.
    failed: u32,
    /// Changed or deleted by somebody else, and not corrected yet.
    drifted: u32,
    /// Degraded, missing, or of unknown health.
    degraded: u32,
    /// On their way.
    progressing: u32,
    /// Stopped on purpose.
    suspended: u32,
}

/// The status of a source.
#[derive(Debug, Clone, SimpleObject)]
pub struct SourceStatus {
    /// In a word.
    state: State,
    /// A code that stays the same while the words change.
    reason: String,
    /// Why, in one line.
    message: String,
    /// Since when, where that is known.
    since: Option<Time>,
    /// When it is tried again, if it is.
    retry_at: Option<Time>,
    /// All that is so, what weighs most first.
    conditions: Vec<Condition>,
    /// Its objects in numbers.
    objects: ObjectCounts,
}

impl From<status::Status> for SourceStatus {
    fn from(status: status::Status) -> Self {
        let counts = status.objects;
        Self {
            state: status.state.into(),
            reason: status.reason.code().to_owned(),
            message: status.message,
            since: status.since.map(Time),
            retry_at: status.retry_at.map(Time),
            conditions: status.conditions.into_iter().map(Condition::from).collect(),
            objects: ObjectCounts {
                owned: counts.owned,
                failed: counts.failed,
                drifted: counts.drifted,
                degraded: counts.degraded,
                progressing: counts.progressing,
                suspended: counts.suspended,
            },
        }
    }
}

/// What an agent keeps applied: a project, a ref and paths.
#[derive(Debug, Clone, SimpleObject)]
#[graphql(complex)]
pub struct Source {
    #[graphql(skip)]
    pub(super) key: SourceKey,
    /// Its id.
    id: ID,
    /// Whose.
    agent: ID,
    /// Its name.
    name: String,
    /// Whose repository.
    project: ID,
    /// Which ref of it.
    reference: String,
    /// Globs of the files to take.
    include: Vec<String>,
    /// Globs of files to leave out.
    exclude: Vec<String>,
    /// Namespace for objects that name none.
    default_namespace: String,
    /// The newest commit of its ref that was read, good or not.
    newest_commit: Option<String>,
    /// The newest commit that gave a good bundle.
    newest_good_commit: Option<String>,
    /// The newest commit, if it was rejected.
    rejected_commit: Option<String>,
    /// What is wrong with the rejected commit.
    findings: Vec<Finding>,
    /// How many findings were left out.
    more_findings: u32,
    /// What is odd but harmless in the newest good commit.
    warnings: Vec<Finding>,
    /// The commit that the agent is to have.
    desired_commit: Option<String>,
    /// The commit that the cluster is at.
    synced_commit: Option<String>,
    /// When that was reached.
    synced_at: Option<Time>,
    /// The commit that waits for confirmation.
    held_commit: Option<String>,
    /// Why it waits.
    held_reason: Option<String>,
    /// Why the repository cannot be read, so that there may be newer commits.
    fetch_failure: Option<String>,
    /// Why the whole source cannot be worked on.
    blocked: Option<String>,
    /// How many objects left Git and stay in place.
    kept: u32,
    /// The reason given, while it is suspended.
    suspended: Option<String>,
    /// The commit that it is pinned to.
    pinned: Option<String>,
    /// How many objects it owns in the cluster.
    inventory: u32,
    /// In one line why the cluster is not at the last commit, or not all of it well; null when it is.
    why: Option<String>,
    /// How it stands.
    status: SourceStatus,
    /// The first objects that are not well, the worst first; none in a list of sources.
    not_well: Vec<SourceObject>,
    /// The running or last sync.
    sync: Option<Sync>,
}

impl From<SourceView> for Source {
    fn from(view: SourceView) -> Self {
        let sync = Sync::of(&view);
        let (held_commit, held_reason) = view.held.map(|held| (held.commit, in_words(&held.reason))).unzip();
        let configuration = view.configuration;
        let (rejected_commit, findings, more_findings) = match view.rejected {
            Some(rejected) => (Some(rejected.commit), rejected.findings, rejected.more),
            None => (None, Vec::new(), 0),
        };
        let mut status = view.status;
        let not_well = std::mem::take(&mut status.not_well);
        Self {
            key: SourceKey {
                source: view.id,
                agent: view.agent,
                project: configuration.project,
                reference: configuration.reference.clone(),
            },
            id: view.id.to_string().into(),
            agent: view.agent.to_string().into(),
            name: configuration.name,
            project: configuration.project.to_string().into(),
            reference: configuration.reference.to_string(),
            include: configuration.include,
            exclude: configuration.exclude,
            default_namespace: configuration.default_namespace,
            newest_commit: view.newest_commit,
            newest_good_commit: view.newest_good_commit,
            rejected_commit,
            findings: findings.into_iter().map(Finding::from).collect(),
            more_findings,
            warnings: view.warnings.into_iter().map(Finding::from).collect(),
            desired_commit: view.desired_commit,
            synced_commit: view.synced_commit,
            synced_at: view.synced_at.map(Time),
            held_commit,
            held_reason,
            fetch_failure: view.fetch_failure,
            blocked: view.blocked,
            kept: view.kept,
            suspended: view.suspended,
            pinned: view.pinned,
            inventory: view.inventory,
            why: view.why,
            status: status.into(),
            not_well: not_well.into_iter().map(SourceObject::from).collect(),
            sync,
        }
    }
}

/// Why a bundle is held.
pub(super) fn in_words(reason: &HoldReason) -> String {
    match reason {
        HoldReason::Empty => "the bundle has no objects".to_owned(),
        HoldReason::LargePrune { prunes, inventory } => {
            format!("{prunes} of {inventory} objects would be pruned")
        }
    }
}

/// One run that makes a cluster match a bundle.
#[derive(Debug, Clone, SimpleObject)]
pub struct Sync {
    /// Its id.
    id: ID,
    /// Of which source.
    source: ID,
    /// That source's name.
    source_name: String,
    /// In which agent's cluster.
    agent: ID,
    /// The commit that it brings.
    commit: String,
    /// When it began in the cluster.
    started_at: Option<Time>,
    /// When it ended.
    finished_at: Option<Time>,
    /// How it ended.
    outcome: Option<SyncOutcome>,
    /// Its objects in numbers.
    counts: SyncCounts,
    /// The first failures.
    failures: Vec<SyncFailure>,
    /// What it waits for.
    waiting: Option<String>,
    /// When it is tried again.
    retry_at: Option<Time>,
}

impl Sync {
    /// The running or last sync of a source.
    pub fn of(view: &SourceView) -> Option<Self> {
        let sync: SyncView = view.sync.clone()?;
        Some(Self {
            id: sync.id.to_string().into(),
            source: view.id.to_string().into(),
            source_name: view.configuration.name.clone(),
            agent: view.agent.to_string().into(),
            commit: sync.commit,
            started_at: sync.started_at.map(Time),
            finished_at: sync.finished_at.map(Time),
            outcome: sync.outcome.map(SyncOutcome::from),
            counts: sync.counts.into(),
            failures: sync.failures.into_iter().map(SyncFailure::from).collect(),
            waiting: sync.waiting,
            retry_at: sync.retry_at.map(Time),
        })
    }

    /// One of the last syncs of a source. What it waits for and when it is tried again is known of the last one only.
    pub fn noted(view: &SourceView, sync: SourceSync) -> Self {
        let is_last = view.sync.as_ref().is_some_and(|last| last.id == sync.id);
        if let Some(last) = is_last.then(|| Self::of(view)).flatten() {
            return last;
        }
        Self {
            id: sync.id.to_string().into(),
            source: view.id.to_string().into(),
            source_name: view.configuration.name.clone(),
            agent: view.agent.to_string().into(),
            commit: sync.commit,
            started_at: sync.started_at.map(Time),
            finished_at: sync.finished_at.map(Time),
            outcome: sync.outcome.map(SyncOutcome::from),
            counts: sync.counts.into(),
            failures: sync.failure.into_iter().map(SyncFailure::from).collect(),
            waiting: None,
            retry_at: None,
        }
    }
}

/// The objects of a sync in numbers.
#[derive(Debug, Clone, Copy, Default, SimpleObject)]
pub struct SyncCounts {
    /// Were as they should be.
    unchanged: u32,
    /// Created.
    created: u32,
    /// Changed.
    changed: u32,
    /// Pruned.
    pruned: u32,
    /// Could not be applied or pruned.
    failed: u32,
    /// Are not healthy.
    unhealthy: u32,
    /// Were not tried, because the API server does not serve their kinds yet.
    waiting: u32,
}

impl From<delivery::SyncCounts> for SyncCounts {
    fn from(counts: delivery::SyncCounts) -> Self {
        Self {
            unchanged: counts.unchanged,
            created: counts.created,
            changed: counts.changed,
            pruned: counts.pruned,
            failed: counts.failed,
            unhealthy: counts.unhealthy,
            waiting: counts.waiting,
        }
    }
}

/// One object that could not be applied, pruned, or become healthy.
#[derive(Debug, Clone, SimpleObject)]
pub struct SyncFailure {
    /// Its kind.
    kind: String,
    /// Its namespace.
    namespace: String,
    /// Its name.
    name: String,
    /// File it stands in; empty when it stands in none.
    file: String,
    /// Line on which it begins.
    line: u32,
    /// What went wrong.
    message: String,
}

impl From<ObjectFailure> for SyncFailure {
    fn from(failure: ObjectFailure) -> Self {
        Self {
            kind: failure.identity.kind,
            namespace: failure.identity.namespace,
            name: failure.identity.name,
            file: failure.file,
            line: failure.line,
            message: failure.message,
        }
    }
}
