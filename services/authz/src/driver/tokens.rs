//! Agents and tokens.

use bus::page;
use events::directory::{AgentRegistered, TokenHolder, TokenIssued};
use events::requests::authz::{
    Admission, Admit, AgentView, AgentWithToken, Authenticate, DeleteAgent, IssueToken, ListTokens,
    Principal, RegisterAgent, RevokeToken, SecretToken, TokenView,
};
use events::requests::page::{Page, Paged as _};
use events::{Actor, AgentId, Refusal, RefusalKind, Sha256, Timestamp, TokenId};

use super::{Driver, gone};
use crate::call::Call;
use crate::checks;
use crate::model::Asker;
use crate::model::claims::{NameId, Named};
use crate::model::steps::Step;
use crate::model::tokens::TokenUse;
use crate::secrets::{NewToken, TokenKind};

/// What an agent's first token is called.
const FIRST_TOKEN: &str = "first";

/// What a new token is called, and what it is good for.
pub(super) struct NewTokenName<'n> {
    pub(super) name: &'n str,
    pub(super) clusters_only: bool,
}

impl Driver {
    pub(super) async fn register_agent(
        self,
        mut call: Call,
        request: RegisterAgent,
    ) -> Result<AgentWithToken, Refusal> {
        checks::name("name", &request.name)?;
        let asker = call.asker();
        let (project, group) = self.directory.read(|directory| {
            directory.place_for_agent(&asker, &request.project, request.group.as_deref())
        })?;
        let (root, _) = self.root().await?;
        let root_key = root.public_key_base64();
        let fresh = call.pass(self.fresh());
        let token = TokenId(call.pass(self.fresh()));
        let key = call.key();
        let claim = NameId::of(Named::Agent, asker.organization, project.0, &request.name);
        let agent = AgentId(self.claim(&call, claim, fresh, key).await?);
        let made = NewToken::make(&*self.world.random, TokenKind::Agent);
        let holder = TokenHolder::Agent(agent);
        let (hash, name) = (made.hash, FIRST_TOKEN.to_owned());
        let issued = TokenIssued { token, holder, hash, name, expires_at: None, clusters_only: false };
        let replaces = self
            .directory
            .read(|directory| directory.former_agents(asker.organization, (project, group), &request.name));
        let registered = AgentRegistered { agent, name: request.name, project, group, replaces };
        self.commit(&call, key, Step::RegisterAgent { agent: registered, token: issued, key }).await?;
        let view = self.directory.read(|directory| directory.agent_view(agent)).ok_or_else(gone)?;
        Ok(AgentWithToken { agent: view, token: self.shown_once(token, made)?, root_key })
    }

    pub(super) async fn delete_agent(self, call: Call, request: DeleteAgent) -> Result<AgentView, Refusal> {
        let step = Step::DeleteAgent { agent: request.agent };
        let agent = AgentId(self.commit(&call, call.key(), step).await?);
        self.directory.read(|directory| directory.agent_view(agent)).ok_or_else(gone)
    }

    pub(super) async fn issue_token(self, call: Call, request: IssueToken) -> Result<SecretToken, Refusal> {
        checks::label("name", &request.name)?;
        let asker = call.asker();
        let (agent, user) = (request.agent.as_deref(), request.user.as_deref());
        let holder = self.holder(&asker, TokenUse::Issue, agent, user).await?;
        let wanted = request.lifetime_seconds;
        let expires_at = match holder {
            TokenHolder::User(_) => {
                let organization = asker.organization;
                let lifetime =
                    self.directory.read(|directory| directory.personal_lifetime(organization, wanted))?;
                Some(self.in_seconds(lifetime))
            }
            TokenHolder::Agent(_) | TokenHolder::Job(_) if wanted.is_some() => {
                let message = "is not supported: agents' tokens do not expire, because an expired token would disconnect the cluster; issue another and revoke the former";
                return Err(Refusal::invalid("lifetime_seconds", message));
            }
            TokenHolder::Agent(_) | TokenHolder::Job(_) => None,
        };
        let is_own = matches!(&asker.actor, Actor::User(user) if holder == TokenHolder::User(*user));
        if request.clusters_only && !is_own {
            return Err(Refusal::invalid("clusters_only", "is only for your own tokens"));
        }
        let name = NewTokenName { name: &request.name, clusters_only: request.clusters_only };
        self.issue(call, holder, name, expires_at, false).await
    }

    pub(super) fn in_seconds(&self, seconds: u64) -> Timestamp {
        self.now().plus_millis(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
    }

    /// Issues a token, or none when it is wanted only `unless_held`: unless the holder has one of that name; that the asker may was asked before.
    pub(super) async fn issue(
        &self,
        mut call: Call,
        holder: TokenHolder,
        NewTokenName { name, clusters_only }: NewTokenName<'_>,
        expires_at: Option<Timestamp>,
        unless_held: bool,
    ) -> Result<SecretToken, Refusal> {
        let kind = match holder {
            TokenHolder::Agent(_) => TokenKind::Agent,
            TokenHolder::User(_) => TokenKind::Personal,
            TokenHolder::Job(_) => TokenKind::Job,
        };
        let token = TokenId(call.pass(self.fresh()));
        let made = NewToken::make(&*self.world.random, kind);
        let (hash, name) = (made.hash, name.to_owned());
        let issued = TokenIssued { token, holder, hash, name, expires_at, clusters_only };
        self.commit(&call, call.key(), Step::IssueToken { token: issued, unless_held }).await?;
        self.shown_once(token, made)
    }

    /// The secret with its view. When the request is a repetition, the log has kept the first one's token, not this.
    pub(super) fn shown_once(&self, token: TokenId, made: NewToken) -> Result<SecretToken, Refusal> {
        let view = self.directory.read(|directory| directory.token_view(token)).ok_or_else(|| {
            let message =
                "this request has already issued its token, which is shown only once; issue another";
            Refusal::new(RefusalKind::Conflict, message)
        })?;
        Ok(SecretToken { view, secret: made.secret })
    }

    pub(super) async fn list_tokens(
        self,
        asker: Asker,
        request: ListTokens,
    ) -> Result<Page<TokenView>, Refusal> {
        let after = request.after()?;
        if let Some(project) = &request.project {
            if request.agent.is_some() || request.user.is_some() {
                return Err(Refusal::invalid("project", "name only one of project, agent and user"));
            }
            return self.directory.read(|directory| {
                let project = directory.project_for_jobs(&asker, project)?;
                let jobs = directory.tokens_of_jobs(project).map(TokenHolder::Job);
                page(&request, directory.tokens_of_all(jobs, after))
            });
        }
        let holder =
            self.holder(&asker, TokenUse::List, request.agent.as_deref(), request.user.as_deref()).await?;
        self.directory
            .read(|directory| page(&request, directory.tokens_of_all(std::iter::once(holder), after)))
    }

    pub(super) async fn revoke_token(self, call: Call, request: RevokeToken) -> Result<TokenView, Refusal> {
        self.commit(&call, call.key(), Step::RevokeToken { token: request.token }).await?;
        self.directory.read(|directory| directory.token_view(request.token)).ok_or_else(gone)
    }

    pub(super) async fn authenticate(
        self,
        asker: Asker,
        request: Authenticate,
    ) -> Result<Principal, Refusal> {
        super::queries::services_only(&asker)?;
        let now = self.now();
        let principal = self.directory.read(|directory| directory.authenticate(request.hash, now))?;
        self.mention_use(&principal, now);
        Ok(principal)
    }

    /// Who holds a token that is shown for the use of a cluster's API.
    pub(super) fn user_of_clusters(&self, asker: &Asker, hash: Sha256) -> Result<Principal, Refusal> {
        super::queries::services_only(asker)?;
        let now = self.now();
        let principal = self.directory.read(|directory| directory.holder_of(hash, now))?;
        self.mention_use(&principal, now);
        Ok(principal)
    }

    pub(super) async fn admit(self, asker: Asker, request: Admit) -> Result<Vec<Admission>, Refusal> {
        super::queries::services_only(&asker)?;
        if request.hashes.len() > Admit::MOST {
            let message = format!("{} tokens at once, {} at most", request.hashes.len(), Admit::MOST);
            return Err(Refusal::invalid("hashes", message));
        }
        let now = self.now();
        let admit = || {
            self.directory.read(|directory| {
                request.hashes.iter().map(|hash| directory.admit(*hash, now)).collect::<Vec<_>>()
            })
        };
        let mut admissions = admit();
        if admissions.iter().any(|admission| !matches!(admission, Admission::Admitted { .. })) {
            // An agent may show a token that another replica issued a moment before.
            self.catch_up().await?;
            admissions = admit();
        }
        for admission in &admissions {
            if let Admission::Admitted { holder, .. } | Admission::Denied { holder, .. } = admission {
                self.mention_use(holder, now);
            }
        }
        Ok(admissions)
    }

    fn mention_use(&self, principal: &Principal, now: Timestamp) {
        if self.directory.read(|directory| directory.use_is_news(principal.token, now)) {
            // A full queue loses a note that the next use makes again.
            let _queued = self.uses.try_send(principal.token);
        }
    }

    async fn holder(
        &self,
        asker: &Asker,
        usage: TokenUse,
        agent: Option<&str>,
        user: Option<&str>,
    ) -> Result<TokenHolder, Refusal> {
        let user = match user {
            Some(user) => Some(self.user_ref(asker.organization, user).await?),
            None => None,
        };
        self.directory.read(|directory| directory.token_holder(asker, usage, agent, user))
    }
}
