//! CI jobs, each with the one token that it holds.

use std::collections::BTreeSet;

use events::directory::{DirectoryEvent, JobAdmitted, JobFacts, Role, Scope, TokenHolder, TokenIssued};
use events::requests::authz::Action;
use events::{AggregateKind, CommitId, JobId, OrganizationId, ProjectId, Refusal, RefusalKind, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Asker, Decided, Directory, aggregate};

/// Live jobs that one project may have.
pub const MAXIMUM_LIVE_JOBS: usize = 4096;
/// A job is forgotten so long after the end of its token; the log keeps it.
const REMEMBERED_MILLIS: i64 = 24 * 3_600_000;

/// A job that was let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub(crate) organization: OrganizationId,
    pub(crate) project: ProjectId,
    pub(crate) facts: JobFacts,
    pub(crate) created_by: CommitId,
}

impl Job {
    /// What it may do in Kasbah.
    pub(super) fn roles(&self) -> BTreeSet<(Role, Scope)> {
        BTreeSet::from([(Role::Job, Scope::Project(self.project))])
    }
}

impl Directory {
    /// The project whose jobs' tokens the asker means and may manage.
    ///
    /// # Errors
    /// Not found or not allowed.
    pub fn project_for_jobs(&self, asker: &Asker, project: &str) -> Result<ProjectId, Refusal> {
        let (id, _) = self.visible_project(asker, project)?;
        self.authorize(asker, Action::ManageJobTokens, Scope::Project(id), "project")?;
        Ok(id)
    }

    /// Lets a job in with its token, in one commit.
    ///
    /// # Errors
    /// Not allowed, too many live ones, or the request is a repetition: a token is shown once.
    pub fn admit_job(
        &self,
        asker: &Asker,
        job: JobAdmitted,
        token: TokenIssued,
        now: Timestamp,
    ) -> Result<Decided<()>, Refusal> {
        self.authorize(asker, Action::ManageJobTokens, Scope::Project(job.project), "project")?;
        if self.jobs.contains_key(&job.job) {
            let message =
                "this request has already issued its token, which is shown only once; issue another";
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        self.job_with_token(asker.organization, job, token, now)
    }

    /// A job and its token, if the project may have another.
    pub(super) fn job_with_token(
        &self,
        organization: OrganizationId,
        job: JobAdmitted,
        token: TokenIssued,
        now: Timestamp,
    ) -> Result<Decided<()>, Refusal> {
        let live = self.tokens_of_jobs(job.project).filter(|id| self.is_live(*id, now)).count();
        if live >= MAXIMUM_LIVE_JOBS {
            let message = format!("this project already has {live} valid job tokens; revoke some of them");
            return Err(Refusal::new(RefusalKind::Conflict, message));
        }
        let of = aggregate(AggregateKind::Job, job.job);
        let events = vec![DirectoryEvent::JobAdmitted(job), DirectoryEvent::TokenIssued(token)];
        self.draft(organization, of, events, ())
    }

    /// A job that was let in.
    pub(super) fn job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job)
    }

    /// The holders of the tokens of a project's jobs.
    pub fn tokens_of_jobs(&self, project: ProjectId) -> impl Iterator<Item = JobId> {
        self.jobs.iter().filter(move |(_, job)| job.project == project).map(|(id, _)| *id)
    }

    fn is_live(&self, job: JobId, now: Timestamp) -> bool {
        self.has_live_token(TokenHolder::Job(job), now)
    }

    pub(super) fn apply_job_admitted(&mut self, job: JobAdmitted, by: &events::Commit) {
        let (organization, created_by) = (by.organization, by.id);
        self.forget_jobs_that_ended(by.occurred_at);
        let JobAdmitted { job, project, facts } = job;
        self.jobs.insert(job, Job { organization, project, facts, created_by });
    }

    /// Jobs come and go all the time: those whose tokens ended long ago leave nothing here.
    fn forget_jobs_that_ended(&mut self, now: Timestamp) {
        let horizon = Timestamp(now.0.saturating_sub(REMEMBERED_MILLIS));
        while let Some((end, id)) = self.job_ends.first().copied().filter(|(end, _)| *end < horizon) {
            self.job_ends.remove(&(end, id));
            let Some(job) = self.jobs.remove(&id) else { continue };
            self.versions.remove(&(job.organization, aggregate(AggregateKind::Job, id)));
            for token in self.holders.remove(&TokenHolder::Job(id)).unwrap_or_default() {
                if let Some(token) = self.tokens.remove(&token) {
                    self.hashes.remove(&token.hash);
                }
            }
        }
    }
}
