//! Identity providers, and signing in with what they say.

use std::collections::BTreeSet;

use events::directory::{JobAdmitted, JobFacts, TokenHolder, TokenIssued};
use events::id::derived_uuid;
use events::requests::authz::{
    BeginSignIn, DistrustProvider, ExchangeCode, ExchangedCode, ListProviders, ProviderKind, ProviderTrust,
    ProviderView, SignIn, SignInAddress, SignedIn, TrustProvider, UnlinkUser, UserView,
};
use events::{Actor, JobId, OrganizationId, Refusal, RefusalKind, Sha256, TokenId, UserId};

use super::queries::services_only;
use super::{Driver, gone};
use crate::call::Call;
use crate::checks;
use crate::identity::{TokenSubject, Verified};
use crate::model::Asker;
use crate::model::identity::{Account, JobClaims, unknown_login};
use crate::model::steps::Step;
use crate::personal;
use crate::secrets::{NewToken, TokenKind};

/// So many organizations are looked at for a person who names none.
const MAXIMUM_ORGANIZATIONS: usize = 64;

impl Driver {
    pub(super) async fn list_providers(
        self,
        asker: Asker,
        _: ListProviders,
    ) -> Result<Vec<ProviderView>, Refusal> {
        let views = self.providers.views();
        Ok(self.directory.read(|directory| {
            let may_know = directory.may_manage_providers(&asker).is_ok();
            let trust = |name: &str| directory.trust(asker.organization, name).filter(|_| may_know).cloned();
            views.into_iter().map(|view| ProviderView { trust: trust(&view.name), ..view }).collect()
        }))
    }

    pub(super) async fn trust_provider(
        self,
        call: Call,
        request: TrustProvider,
    ) -> Result<ProviderView, Refusal> {
        let asker = call.asker();
        self.directory.read(|directory| directory.may_manage_providers(&asker))?;
        let view = self.allowed_provider(&request.provider)?;
        let owners = owners(view.kind, &request.owners)?;
        self.commit(&call, call.key(), Step::TrustProvider { provider: request.provider, owners }).await?;
        let trust = self
            .directory
            .read(|directory| directory.trust(asker.organization, &view.name).cloned())
            .ok_or_else(gone)?;
        Ok(ProviderView { trust: Some(trust), ..view })
    }

    pub(super) async fn distrust_provider(
        self,
        call: Call,
        request: DistrustProvider,
    ) -> Result<ProviderTrust, Refusal> {
        let asker = call.asker();
        let trust = self.directory.read(|directory| {
            directory.may_manage_providers(&asker)?;
            let trust = directory.trust(asker.organization, &request.provider).cloned();
            trust.ok_or_else(|| {
                let what = format!("trust in {:?}", request.provider);
                Refusal { field: Some("provider".to_owned()), ..Refusal::not_found(what) }
            })
        })?;
        self.commit(&call, call.key(), Step::DistrustProvider { provider: request.provider }).await?;
        Ok(trust)
    }

    pub(super) async fn unlink_user(self, call: Call, request: UnlinkUser) -> Result<UserView, Refusal> {
        let asker = call.asker();
        self.directory.read(|directory| directory.may_manage_providers(&asker))?;
        let user = self.another_user(&asker, &request.user).await?;
        self.commit(&call, call.key(), Step::UnlinkUser { user, provider: request.provider }).await?;
        self.user_view(user).await
    }

    fn allowed_provider(&self, name: &str) -> Result<ProviderView, Refusal> {
        let mut views = self.providers.views();
        let known: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
        let message = match known.as_slice() {
            [] => {
                "the operator allows no identity providers (KASBAH_IDENTITY_PROVIDERS names them)".to_owned()
            }
            known => format!("must be one that the operator allows: {}", known.join(", ")),
        };
        let found = views.iter().position(|view| view.name == name);
        found.map(|at| views.swap_remove(at)).ok_or_else(|| Refusal::invalid("provider", message))
    }

    pub(super) async fn begin_sign_in(
        self,
        asker: Asker,
        request: BeginSignIn,
    ) -> Result<SignInAddress, Refusal> {
        services_only(&asker)?;
        Ok(SignInAddress { url: self.providers.sign_in_address(&request).await? })
    }

    pub(super) async fn exchange_code(
        self,
        asker: Asker,
        request: ExchangeCode,
    ) -> Result<ExchangedCode, Refusal> {
        services_only(&asker)?;
        Ok(ExchangedCode { id_token: self.providers.exchange(&request).await? })
    }

    pub(super) async fn sign_in(self, call: Call, request: SignIn) -> Result<SignedIn, Refusal> {
        services_only(&call.asker())?;
        let verified = self.providers.verify(&request.id_token).await?;
        let organization = match &request.organization {
            None => None,
            Some(name) => {
                let found = self.directory.read(|directory| directory.organization_named(name));
                // Who is nobody there does not learn whether it exists.
                Some(found.unwrap_or_else(|| OrganizationId(self.fresh())))
            }
        };
        match verified.said.clone() {
            TokenSubject::Job { claims, facts } => {
                let project = request.project.as_deref();
                self.sign_in_job(call, &verified, (claims, facts), organization, project).await
            }
            TokenSubject::Person { login } => {
                self.sign_in_person(call, &verified, &login, organization).await
            }
        }
    }

    async fn sign_in_job(
        &self,
        call: Call,
        verified: &Verified,
        (claims, facts): (JobClaims, JobFacts),
        organization: Option<OrganizationId>,
        project: Option<&str>,
    ) -> Result<SignedIn, Refusal> {
        let (organization, project) =
            self.directory.read(|directory| directory.project_of_claims(&claims, organization, project))?;
        let job = JobId(derived_uuid(&[b"job of an ID token", &verified.once.0]));
        let (token, made) = self.token_for(verified, TokenHolder::Job(job), &facts.name);
        let step = Step::SignInJob { claims, job: JobAdmitted { job, project, facts }, token };
        self.signed_in(call, organization, Actor::Job(job), verified, step, made).await
    }

    async fn sign_in_person(
        &self,
        call: Call,
        verified: &Verified,
        login: &str,
        organization: Option<OrganizationId>,
    ) -> Result<SignedIn, Refusal> {
        let (account, user) = self.person(verified, login, organization).await?;
        let (mut token, made) = self.token_for(verified, TokenHolder::User(user), &verified.provider);
        let organization = account.organization;
        let lifetimes = self.directory.read(|directory| directory.token_lifetimes(organization));
        token.expires_at = token.expires_at.min(Some(self.in_seconds(lifetimes.longest_seconds)));
        let step = Step::SignInUser { account, token };
        self.signed_in(call, organization, Actor::User(user), verified, step, made).await
    }

    /// Whose account it is, in the only organization that knows them.
    async fn person(
        &self,
        verified: &Verified,
        login: &str,
        wanted: Option<OrganizationId>,
    ) -> Result<(Account, UserId), Refusal> {
        let provider = &verified.provider;
        let trusting_organizations: Vec<OrganizationId> = self.directory.read(|directory| {
            let all = directory.trusting_organizations(provider).map(|(id, _)| id);
            all.filter(|id| wanted.is_none_or(|wanted| wanted == *id)).collect()
        });
        let which = |names: &str| Refusal {
            kind: RefusalKind::Conflict,
            field: Some("organization".to_owned()),
            message: format!("select an organization{names}"),
        };
        if trusting_organizations.len() > MAXIMUM_ORGANIZATIONS {
            return Err(which(""));
        }
        let mut refusal = unknown_login(provider);
        let mut known = Vec::new();
        for organization in trusting_organizations {
            let account = personal::account(&*self.keys, organization, provider, &verified.subject).await?;
            let name = personal::login_claim(&*self.keys, organization, login).await?;
            match self.directory.read(|directory| directory.user_of_account(&account, name)) {
                Ok(user) => known.push((account, user)),
                Err(other) => refusal = other,
            }
        }
        if known.len() > 1 {
            let names = self.directory.read(|directory| {
                let views =
                    known.iter().filter_map(|(account, _)| directory.organization_view(account.organization));
                views.map(|view| view.name).collect::<Vec<_>>()
            });
            return Err(which(&format!(": {}", names.join(", "))));
        }
        known.pop().ok_or(refusal)
    }

    fn token_for(&self, verified: &Verified, holder: TokenHolder, name: &str) -> (TokenIssued, NewToken) {
        let kind = match holder {
            TokenHolder::Job(_) => TokenKind::Job,
            TokenHolder::User(_) | TokenHolder::Agent(_) => TokenKind::Personal,
        };
        let made = NewToken::make(&*self.world.random, kind);
        let lifetime = i64::try_from(verified.token_lifetime.as_millis()).unwrap_or(i64::MAX);
        let issued = TokenIssued {
            token: token_id(verified.once),
            holder,
            hash: made.hash,
            name: name.to_owned(),
            expires_at: Some(self.now().plus_millis(lifetime)),
            clusters_only: false,
        };
        (issued, made)
    }

    async fn signed_in(
        &self,
        call: Call,
        organization: OrganizationId,
        actor: Actor,
        verified: &Verified,
        step: Step,
        made: NewToken,
    ) -> Result<SignedIn, Refusal> {
        let mut call = call.in_organization(organization);
        let token = TokenId(call.pass(token_id(verified.once).0));
        self.commit(&call, call.key(), step).await?;
        let view = self.directory.read(|directory| directory.organization_view(organization));
        let organization_name = view.ok_or_else(gone)?.name;
        Ok(SignedIn { actor, organization, organization_name, token: self.shown_once(token, made)? })
    }
}

/// One for each ID token, so that the log itself knows which were used.
fn token_id(once: Sha256) -> TokenId {
    TokenId(derived_uuid(&[b"token of an ID token", &once.0]))
}

/// Owners, as they are compared.
fn owners(kind: ProviderKind, given: &[String]) -> Result<BTreeSet<String>, Refusal> {
    match (kind, given) {
        (ProviderKind::People, []) => return Ok(BTreeSet::new()),
        (ProviderKind::People, _) => {
            let message = "are only for providers of jobs: for users, an owner creates them";
            return Err(Refusal::invalid("owners", message));
        }
        (_, []) => {
            let message =
                "must name at least one group of GitLab or organization of GitHub: other jobs are refused";
            return Err(Refusal::invalid("owners", message));
        }
        _ => {}
    }
    let tidy = |owner: &String| {
        let owner = owner.trim_matches('/').to_lowercase();
        checks::label("owners", &owner)?;
        if owner.contains(char::is_whitespace) {
            return Err(Refusal::invalid(
                "owners",
                "must be paths without spaces, such as shop or shop/team",
            ));
        }
        Ok(owner)
    };
    given.iter().map(tidy).collect()
}
