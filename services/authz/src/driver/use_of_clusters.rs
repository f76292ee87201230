//! The use of clusters' APIs.

use std::collections::BTreeMap;

use events::directory::Scope;
use events::grants::UserAccessAs;
use events::pass::{AccessAs, Impersonated, Pass, SignedPass};
use events::requests::authz::{Action, CanUse, IssuedPass, SignPass, UseDecision};
use events::{Actor, AgentId, JobId, Refusal, RefusalKind, Timestamp, UserId};
use objects::pass::check_pass;

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
        let agent =
            self.directory.read(|directory| match directory.visible_agent(&asker, &request.agent) {
                Ok((agent, _)) => Ok(agent),
                Err(missing) => directory.agent_granted_to(&asker, &request.agent).ok_or(missing),
            })?;
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
        let internal = |error: String| Refusal::new(RefusalKind::Internal, error);
        let encoded = events::encode(&pass).map_err(|error| internal(error.to_string()))?;
        if encoded.len() > MAXIMUM_PASS_BYTES {
            let message = format!(
                "{} entries of user_access permit this user, more than a pass can contain: name a group instead of its projects",
                pass.grants.iter().map(|grant| grant.groups.len().max(1)).sum::<usize>()
            );
            return Err(Refusal::new(RefusalKind::Denied, message));
        }
        let (root, roots) = self.root().await?;
        let signature = root.sign(&SignedPass::signed_text(&encoded));
        let pass = SignedPass { pass: encoded, signature };
        Ok(IssuedPass { pass, token_ends: holder.expires_at, roots })
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
