//! The use of clusters' APIs.

use std::collections::BTreeMap;

use events::directory::Scope;
use events::grants::UserAccessAs;
use events::pass::{AccessAs, Impersonated, Pass, Purpose, SignedPass};
use events::requests::authz::{
    Action, CanUse, IssuedPass, IssuedReview, ListUsableAgents, SignPass, SignReview, UsableAgent,
    UseDecision,
};
use events::requests::page::{Page, Paged as _};
use events::root::RootLink;
use events::{Actor, AgentId, JobId, Refusal, RefusalKind, Timestamp, UserId};
use objects::pass::check_pass;

use super::queries::services_only;
use super::{Driver, gone};
use crate::model::job_grants::JobGranted;
use crate::model::{self, Asker};

/// The group of all people whom Kasbah lets in as themselves.
const PEOPLE: &str = "kasbah:user";
/// Largest pass, in bytes: it travels in a header.
const MAXIMUM_PASS_BYTES: usize = 64 * 1024;

/// What lets somebody use a cluster's API.
enum Granted {
    ToUser(UserId, model::grants::Granted),
    ToJob(JobId, Box<JobGranted>),
}

impl Driver {
    pub(super) async fn can_use(self, asker: Asker, request: CanUse) -> Result<UseDecision, Refusal> {
        let holder = match (&request.user, &asker.actor) {
            (Some(other), _) => Actor::User(self.another_user(&asker, other).await?),
            (None, Actor::User(_) | Actor::Job(_)) => asker.actor.clone(),
            (None, _) => {
                return Err(Refusal::invalid(
                    "user",
                    "is required, because the caller is neither a user nor a job",
                ));
            }
        };
        let agent = self.directory.read(|directory| directory.agent_known_to(&asker, &request.agent))?;
        let withheld = |reason| UseDecision { allowed: false, access_as: None, reason };
        let granted = match self.lent(agent, &holder)? {
            Ok(granted) => granted,
            Err(reason) => return Ok(withheld(reason)),
        };
        let pass = self.pass(agent, holder, granted).await?;
        Ok(match check_pass(&pass, &request.attributes) {
            Ok(through) => UseDecision {
                allowed: true,
                access_as: Some(through.access_as),
                reason: through.place.to_owned(),
            },
            Err(error) => withheld(error.to_string()),
        })
    }

    pub(super) async fn sign_pass(self, asker: Asker, request: SignPass) -> Result<IssuedPass, Refusal> {
        self.wait_for_position(&request.since).await?;
        let holder = self.user_of_clusters(&asker, request.hash)?;
        let granted = self.lent(request.agent, &holder.actor)?.map_err(|reason| {
            let asker = Asker { actor: holder.actor.clone(), organization: holder.organization };
            let scope = Scope::Agent(request.agent);
            // Who may not know of the agent is not told why they are not let in.
            if self.directory.read(|directory| directory.may(&asker, Action::ReadAgent, scope)) {
                Refusal::new(RefusalKind::Denied, reason)
            } else {
                Refusal::not_found("agent")
            }
        })?;
        let pass = self.pass(request.agent, holder.actor, granted).await?;
        let (pass, roots) = self.signed(&pass, Purpose::Requests).await?;
        Ok(IssuedPass { pass, token_ends: holder.expires_at, roots })
    }

    pub(super) async fn sign_review(
        self,
        asker: Asker,
        request: SignReview,
    ) -> Result<IssuedReview, Refusal> {
        services_only(&asker)?;
        self.wait_for_position(&request.since).await?;
        let denied = |reason| Refusal::new(RefusalKind::Denied, reason);
        let granted = self.lent(request.agent, &request.actor)?.map_err(denied)?;
        let pass = self.pass(request.agent, request.actor, granted).await?;
        if pass.organization != asker.organization {
            return Err(Refusal::not_found("agent"));
        }
        let (pass, roots) = self.signed(&pass, Purpose::Review).await?;
        Ok(IssuedReview { pass, roots })
    }

    /// A pass as it travels, and how agents come to the root that signed it.
    async fn signed(&self, pass: &Pass, purpose: Purpose) -> Result<(SignedPass, Vec<RootLink>), Refusal> {
        let internal = |error: String| Refusal::new(RefusalKind::Internal, error);
        let encoded = events::encode(pass).map_err(|error| internal(error.to_string()))?;
        if encoded.len() > MAXIMUM_PASS_BYTES {
            let message = format!(
                "{} entries of user_access permit this user, more than a pass can contain: name a group instead of its projects",
                pass.grants.iter().map(|grant| grant.groups.len().max(1)).sum::<usize>()
            );
            return Err(Refusal::new(RefusalKind::Denied, message));
        }
        let (root, roots) = self.root().await?;
        let signature = root.sign(&SignedPass::signed_text(purpose, &encoded));
        Ok((SignedPass { pass: encoded, signature }, roots))
    }

    pub(super) async fn list_usable_agents(
        self,
        asker: Asker,
        request: ListUsableAgents,
    ) -> Result<Page<UsableAgent>, Refusal> {
        services_only(&asker)?;
        let after = request.after()?;
        self.wait_for_position(&request.since).await?;
        self.directory.read(|directory| {
            let usable = directory.usable_agents(asker.organization, &request.actor, after);
            bus::page(&request, usable.map(|usable| (usable.agent, usable)))
        })
    }

    /// What lets the holder use the API of an agent's cluster, or what is missing.
    fn lent(&self, agent: AgentId, holder: &Actor) -> Result<Result<Granted, String>, Refusal> {
        self.directory.read(|directory| match holder {
            Actor::User(id) => {
                Ok(directory.use_granted(agent, *id).map(|granted| Granted::ToUser(*id, granted)))
            }
            Actor::Job(id) => {
                Ok(directory.granted_to_job(agent, *id).map(|granted| Granted::ToJob(*id, Box::new(granted))))
            }
            Actor::Agent(_) | Actor::Service(_) => {
                Err(Refusal::new(RefusalKind::Denied, "this is not a token of a user or a job"))
            }
        })
    }

    /// A pass that begins now.
    async fn pass(&self, agent: AgentId, holder: Actor, granted: Granted) -> Result<Pass, Refusal> {
        let (organization, access_as, grants, audit, record_sessions) = match granted {
            Granted::ToUser(user, granted) => {
                let access_as = match granted.access_as {
                    UserAccessAs::Agent => AccessAs::Agent,
                    UserAccessAs::User => AccessAs::Impersonated(self.impersonated(user).await?),
                };
                let (audit, record_sessions) = (granted.audit, granted.record_sessions);
                (granted.organization, access_as, granted.grants, audit, record_sessions)
            }
            Granted::ToJob(job, granted) => {
                let JobGranted { organization, access_as, grant, audit, record_sessions, .. } = *granted;
                let access_as = self.directory.read(|directory| directory.job_as(agent, job, access_as));
                (organization, access_as, vec![grant], audit, record_sessions)
            }
        };
        let issued_at = self.now();
        let expires_at = Timestamp(issued_at.0.saturating_add(SignPass::LIFETIME_MILLIS));
        Ok(Pass {
            organization,
            agent,
            holder,
            access_as,
            grants,
            audit,
            record_sessions,
            issued_at,
            expires_at,
        })
    }

    /// A person as the cluster sees them.
    async fn impersonated(&self, user: UserId) -> Result<Impersonated, Refusal> {
        let view = self.directory.read(|directory| directory.user_view(user)).ok_or_else(gone)?;
        let name = self.named_view(view).await?.name;
        let name = name.ok_or_else(|| Refusal::new(RefusalKind::Denied, "the user's name was erased"))?;
        Ok(Impersonated {
            username: format!("{PEOPLE}:{name}"),
            groups: vec![PEOPLE.to_owned()],
            uid: user.to_string(),
            extra: BTreeMap::new(),
        })
    }
}
