//! Publishing what is new: notices on the bus, bundles into the blobs, commits into the log.

use events::configuration::GitReference;
use events::request::RequestContext;
use events::requests::repository::RepositoryAdvanced;
use events::{Actor, AgentId, CommitId, CorrelationId, OrganizationId, ProjectId, SourceId};
use store::{Basis, BlobError, DecideError, Origin, Policy};

use super::Poller;
use super::fetch::decided;
use super::shared::Cause;
use crate::SERVICE;
use crate::bundle::Built;
use crate::git::{GitError, ObjectId};
use crate::model::{Decided, Found, Given, RefInterest, decide_built, ref_aggregate};

/// Milliseconds that another service has to answer.
const ASK_DEADLINE: u32 = 10_000;
/// Commits that one decision takes at most, as far as this check goes.
const COMMITS: usize = 64;

/// One check of a ref.
#[derive(Clone, Copy)]
pub(super) struct RefCheck<'a> {
    pub(super) organization: OrganizationId,
    pub(super) project: ProjectId,
    pub(super) reference: &'a GitReference,
    pub(super) cause: &'a Cause,
    /// The version of the ref's aggregate from before the check. When the log holds a later one, the ref is checked again: another
    /// replica may have seen a newer commit.
    pub(super) seen: u64,
}

/// A decision did not get into the log.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("blobs cannot be stored")]
    Blobs(#[from] BlobError),
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error("the change is larger than {COMMITS} commits can contain")]
    Unfinished,
}

impl Poller {
    pub(crate) fn context(
        &self,
        organization: OrganizationId,
        correlation_id: CorrelationId,
    ) -> RequestContext {
        RequestContext {
            actor: Actor::service(SERVICE),
            organization,
            correlation_id,
            causation_id: None,
            traceparent: None,
            idempotency_key: CommitId(self.deps.world.new_uuid()),
            deadline_millis: ASK_DEADLINE,
        }
    }

    pub(super) async fn announce(
        &self,
        project: ProjectId,
        reference: &GitReference,
        commit: &ObjectId,
        configuration: Option<String>,
        cause: &Cause,
    ) {
        let notice = RepositoryAdvanced {
            project,
            reference: reference.clone(),
            commit: commit.to_string(),
            configuration,
            correlation_id: cause.correlation_id,
            traceparent: cause.traceparent.clone(),
        };
        if let Err(error) = bus::announce(&*self.deps.bus, &notice).await {
            tracing::warn!(%project, %reference, %error, "notice of a new commit was not sent");
        }
    }

    /// The version of a ref's aggregate.
    pub(super) fn ref_version(&self, project: ProjectId, reference: &GitReference) -> u64 {
        self.fold.read(|state| state.ref_version(&ref_aggregate(project, reference)))
    }

    /// Stores what was built and appends what is new. Gives the version after it; `None` when that did not work.
    pub(super) async fn append_built(
        &self,
        check: RefCheck<'_>,
        commit: &ObjectId,
        built: Built,
        wanted: &RefInterest,
    ) -> Option<u64> {
        report(check, self.try_append_built(check, commit, built, wanted).await)
    }

    async fn try_append_built(
        &self,
        check: RefCheck<'_>,
        commit: &ObjectId,
        built: Built,
        wanted: &RefInterest,
    ) -> Result<u64, PublishError> {
        let RefCheck { organization, project, reference, .. } = check;
        let addresses = match self.deps.blobs.addresses(organization).await {
            // Storing makes the key of an organization that never stored anything.
            Err(BlobError::NoKey { .. }) if !built.contents.is_empty() => {
                self.deps.blobs.put(organization, built.contents.clone()).await?;
                Some(self.deps.blobs.addresses(organization).await?)
            }
            Err(BlobError::NoKey { .. }) => None,
            addresses => Some(addresses?),
        };
        let address = |root| match &addresses {
            Some(addresses) => Ok(addresses.of(root)),
            None => Err(BlobError::NoKey { organization }),
        };
        let outcomes = built.outcomes.iter().cloned();
        let outcomes = outcomes.map(|(source, agent, outcome)| {
            let selection = wanted.sources.get(&source).map(|wanted| wanted.source.selection());
            Ok((source, agent, decided(outcome, selection, address)?))
        });
        let outcomes: Vec<(SourceId, AgentId, Decided)> = outcomes.collect::<Result<_, BlobError>>()?;
        let commit = commit.to_string();
        let anything =
            self.fold.read(|state| !decide_built(state, project, reference, &commit, &outcomes).is_empty());
        let rejected = outcomes.iter().any(|(.., outcome)| matches!(outcome, Decided::Rejected { .. }));
        // An unchanged bundle is stored already: the event that names it came after its blobs.
        if (anything || rejected) && !built.contents.is_empty() {
            self.deps.blobs.put(organization, built.contents).await?;
        }
        self.append(check, Found::Built { commit, outcomes }).await
    }

    /// Appends that a ref cannot be read, if that is new. Gives the version after it; `None` when the log did not take it.
    pub(super) async fn append_failed(
        &self,
        check: RefCheck<'_>,
        error: &GitError,
        sources: Vec<SourceId>,
    ) -> Option<u64> {
        let found = Found::Failed { failure: error.failure, message: error.message.clone(), sources };
        report(check, self.append(check, found).await)
    }

    /// Decides and appends, unless another replica recorded something of the ref since the check began.
    async fn append(&self, check: RefCheck<'_>, found: Found) -> Result<u64, PublishError> {
        let RefCheck { organization, project, reference, cause, seen } = check;
        let given = Given { organization, project, reference: reference.clone(), found };
        let mut version = seen;
        // What does not fit into one commit comes in the next.
        for _ in 0..COMMITS {
            let world = &self.deps.world;
            let origin = Origin::of_service(world, SERVICE, cause.correlation_id);
            let origin = origin.traced(cause.traceparent.clone());
            let decided =
                self.fold.decide(&Policy::BACKGROUND, &origin, Basis::Version(version), &given).await?;
            if decided.events.is_empty() {
                return Ok(version);
            }
            version = decided.version;
            if let Err(error) = decided.folded {
                tracing::warn!(%error, "deciding on an older state");
            }
        }
        Err(PublishError::Unfinished)
    }
}

fn report(
    RefCheck { project, reference, .. }: RefCheck<'_>,
    published: Result<u64, PublishError>,
) -> Option<u64> {
    match &published {
        Ok(_) => {}
        Err(error @ (PublishError::Unfinished | PublishError::Decide(DecideError::Overtaken { .. }))) => {
            tracing::info!(%project, %reference, %error, "checking the ref again")
        }
        Err(error) => {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%project, %reference, %error, source, "changes of a ref were not recorded");
        }
    }
    published.ok()
}
