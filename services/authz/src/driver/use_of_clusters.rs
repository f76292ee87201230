//! The use of clusters' APIs.

use std::collections::BTreeMap;

use events::directory::Scope;
use events::grants::UserAccessAs;
use events::pass::{AccessAs, Impersonated, Pass, SignedPass};
use events::requests::authz::{Action, Authenticate, CanUse, IssuedPass, SignPass, UseDecision};
use events::{Actor, AgentId, Refusal, RefusalKind, Timestamp, UserId};
use objects::pass::lets_through;

use super::{Driver, gone};
use crate::model::Asker;
use crate::model::grants::Granted;

/// The group of all people whom Kasbah lets in as themselves.
const PEOPLE: &str = "kasbah:user";
/// Largest pass, in bytes: it travels in a header.
const MAXIMUM_PASS_BYTES: usize = 64 * 1024;

impl Driver {
    pub(super) async fn can_use(self, asker: Asker, request: CanUse) -> Result<UseDecision, Refusal> {
        let user = match (&request.user, &asker.actor) {
            (Some(other), _) => self.another_user(&asker, other).await?,
            (None, Actor::User(user)) => *user,
            (None, _) => {
                return Err(Refusal::invalid("user", "must be given, as the asker is no person"));
            }
        };
        let (agent, granted) = self.directory.read(|directory| {
            let (agent, _) = directory.visible_agent(&asker, &request.agent)?;
            Ok::<_, Refusal>((agent, directory.use_granted(agent, user)))
        })?;
        let withheld = |reason| UseDecision { allowed: false, access_as: None, reason };
        let granted = match granted {
            Ok(granted) => granted,
            Err(reason) => return Ok(withheld(reason)),
        };
        let pass = self.pass(agent, user, granted).await?;
        Ok(match lets_through(&pass, &request.attributes) {
            Ok(through) => UseDecision {
                allowed: true,
                access_as: Some(through.access_as),
                reason: through.place.to_owned(),
            },
            Err(error) => withheld(error.to_string()),
        })
    }

    pub(super) async fn sign_pass(self, asker: Asker, request: SignPass) -> Result<IssuedPass, Refusal> {
        self.has_seen(&request.since).await?;
        let holder = self.clone().authenticate(asker, Authenticate { hash: request.hash }).await?;
        let Actor::User(user) = holder.actor else {
            return Err(Refusal::new(RefusalKind::Denied, "this is no person's token"));
        };
        let asker = Asker { actor: holder.actor.clone(), organization: holder.organization };
        let granted = self.directory.read(|directory| match directory.use_granted(request.agent, user) {
            Ok(granted) => Ok(granted),
            // Who may not know of the agent is not told why they are not let in.
            Err(_) if !directory.may(&asker, Action::ReadAgent, Scope::Agent(request.agent)) => {
                Err(Refusal::not_found("agent"))
            }
            Err(reason) => Err(Refusal::new(RefusalKind::Denied, reason)),
        })?;
        let pass = self.pass(request.agent, user, granted).await?;
        let internal = |error: String| Refusal::new(RefusalKind::Internal, error);
        let encoded = events::encode(&pass).map_err(|error| internal(error.to_string()))?;
        if encoded.len() > MAXIMUM_PASS_BYTES {
            let message = format!(
                "{} entries of user_access let this user in, more than a pass holds: name a group instead of its projects",
                pass.grants.iter().map(|grant| grant.groups.len().max(1)).sum::<usize>()
            );
            return Err(Refusal::new(RefusalKind::Denied, message));
        }
        let signature = self.root().await?.sign(&SignedPass::signed_text(&encoded));
        Ok(IssuedPass { pass: SignedPass { pass: encoded, signature }, token_ends: holder.expires_at })
    }

    /// A pass that begins now.
    async fn pass(&self, agent: AgentId, user: UserId, granted: Granted) -> Result<Pass, Refusal> {
        let access_as = match granted.access_as {
            UserAccessAs::Agent => AccessAs::Agent,
            UserAccessAs::User => AccessAs::Impersonated(self.impersonated(user).await?),
        };
        let issued_at = self.now();
        Ok(Pass {
            organization: granted.organization,
            agent,
            holder: Actor::User(user),
            access_as,
            grants: granted.grants,
            issued_at,
            expires_at: Timestamp(issued_at.0.saturating_add(SignPass::LIFETIME_MILLIS)),
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
