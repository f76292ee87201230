//! CI jobs.

use bus::page;
use events::directory::{JobAdmitted, JobEnvironment, JobFacts, TokenHolder, TokenIssued};
use events::requests::authz::{IssueJobToken, JobAgent, ListJobAgents, SecretToken};
use events::requests::page::{Page, Paged as _};
use events::{Actor, JobId, Refusal, RefusalKind, TokenId};

use super::Driver;
use crate::call::Call;
use crate::checks;
use crate::model::Asker;
use crate::model::steps::Step;
use crate::secrets::{NewToken, TokenKind};

/// Longest lifetime of a job's token, in seconds: a year.
const MAXIMUM_LIFETIME: u64 = 366 * 24 * 3600;

impl Driver {
    pub(super) async fn issue_job_token(
        self,
        mut call: Call,
        request: IssueJobToken,
    ) -> Result<SecretToken, Refusal> {
        checks::label("name", &request.name)?;
        if let Some(JobEnvironment { name, tier }) = &request.environment {
            checks::label("environment.name", name)?;
            if !tier.is_empty() {
                checks::label("environment.tier", tier)?;
            }
        }
        let seconds = request.lifetime_seconds.unwrap_or(IssueJobToken::LIFETIME_SECONDS);
        if seconds == 0 || seconds > MAXIMUM_LIFETIME {
            return Err(Refusal::invalid("lifetime_seconds", format!("must be 1 to {MAXIMUM_LIFETIME}")));
        }
        let asker = call.asker();
        let project =
            self.directory.read(|directory| directory.project_for_jobs(&asker, &request.project))?;
        let job = JobId(call.pass(self.fresh()));
        let token = TokenId(call.pass(self.fresh()));
        let made = NewToken::make(&*self.world.random, TokenKind::Job);
        let lifetime = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        let issued = TokenIssued {
            token,
            holder: TokenHolder::Job(job),
            hash: made.hash,
            name: request.name.clone(),
            expires_at: Some(self.now().plus_millis(lifetime)),
            clusters_only: false,
        };
        let facts = JobFacts {
            name: request.name,
            is_protected: request.protected,
            environment: request.environment,
            ..JobFacts::default()
        };
        let admitted = JobAdmitted { job, project, facts };
        self.commit(&call, call.key(), Step::AdmitJob { job: admitted, token: issued }).await?;
        self.shown_once(token, made)
    }

    pub(super) async fn list_job_agents(
        self,
        asker: Asker,
        request: ListJobAgents,
    ) -> Result<Page<JobAgent>, Refusal> {
        let after = request.after()?;
        let Actor::Job(job) = asker.actor else {
            let message = "this is not a job's token: `kasbah kubeconfig --agent` is for users";
            return Err(Refusal::new(RefusalKind::Denied, message));
        };
        self.directory.read(|directory| {
            let agents = directory.agents_of_job(job, after).filter_map(|(id, agent, granted)| {
                let agent = JobAgent {
                    id,
                    name: agent.name.clone(),
                    project_path: directory.project_path_of(agent)?,
                    default_namespace: granted.default_namespace,
                    access_as: granted.access_as,
                    is_for_environment: granted.is_for_environment,
                    place: granted.grant.place,
                };
                Some((id, agent))
            });
            page(&request, agents)
        })
    }
}
