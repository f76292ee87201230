//! What identity providers say, and what an organization believes of it.

use std::collections::BTreeSet;

use events::directory::{
    DirectoryEvent, IdentityProviderDistrusted, IdentityProviderTrusted, JobAdmitted, Scope, TokenHolder,
    TokenIssued, UserLinked, UserUnlinked,
};
use events::requests::authz::{Action, ProviderTrust};
use events::{AggregateKind, OrganizationId, ProjectId, Refusal, RefusalKind, Sha256, Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::claims::NameId;
use super::tokens::holder_aggregate;
use super::{Asker, Decided, Directory, Project, aggregate};

/// Whose repositories' jobs one organization may let in.
const MAXIMUM_OWNERS: usize = 64;

/// An account at an identity provider, as one organization knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Account {
    /// Who knows it.
    pub organization: OrganizationId,
    /// Where it is.
    pub provider: String,
    /// Its id there, under a key of the organization.
    pub subject: Sha256,
}

/// What an identity provider says of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobClaims {
    /// Who says it.
    pub provider: String,
    /// Whose the repository is: by path, and as `id:` with a number, which stays when paths change hands.
    pub owners: Vec<String>,
    /// Where the repository is, without a `.git` at its end.
    pub repository: String,
    /// The repository's number there.
    pub external_id: Option<u64>,
}

impl Directory {
    /// The organizations that believe a provider.
    pub fn trusting_organizations<'a>(
        &'a self,
        provider: &'a str,
    ) -> impl Iterator<Item = (OrganizationId, &'a ProviderTrust)> {
        self.trusts.iter().filter(move |((_, name), _)| name == provider).map(|((id, _), trust)| (*id, trust))
    }

    /// How an organization believes a provider.
    #[must_use]
    pub fn trust(&self, organization: OrganizationId, provider: &str) -> Option<&ProviderTrust> {
        self.trusts.get(&(organization, provider.to_owned()))
    }

    /// Believes a provider from now on.
    ///
    /// # Errors
    /// Not allowed, or too many owners.
    pub fn trust_provider(
        &self,
        asker: &Asker,
        provider: &str,
        owners: &BTreeSet<String>,
    ) -> Result<Decided<()>, Refusal> {
        self.may_manage_providers(asker)?;
        if owners.len() > MAXIMUM_OWNERS {
            return Err(Refusal::invalid("owners", format!("must be {MAXIMUM_OWNERS} at most")));
        }
        let owners: Vec<String> = owners.iter().cloned().collect();
        if self.trust(asker.organization, provider).is_some_and(|trust| trust.owners == owners) {
            return Ok(Decided::already(()));
        }
        let event = IdentityProviderTrusted { provider: provider.to_owned(), owners };
        self.draft_of_organization(asker, DirectoryEvent::IdentityProviderTrusted(event))
    }

    /// Believes a provider no more.
    ///
    /// # Errors
    /// Not allowed.
    pub fn distrust_provider(&self, asker: &Asker, provider: &str) -> Result<Decided<()>, Refusal> {
        self.may_manage_providers(asker)?;
        if self.trust(asker.organization, provider).is_none() {
            return Ok(Decided::already(()));
        }
        let event = IdentityProviderDistrusted { provider: provider.to_owned() };
        self.draft_of_organization(asker, DirectoryEvent::IdentityProviderDistrusted(event))
    }

    /// Whether the asker may say which providers are believed.
    ///
    /// # Errors
    /// When not.
    pub fn may_manage_providers(&self, asker: &Asker) -> Result<(), Refusal> {
        let organization = Scope::Organization(asker.organization);
        self.authorize(asker, Action::ManageIdentityProviders, organization, "organization")
    }

    fn draft_of_organization(&self, asker: &Asker, event: DirectoryEvent) -> Result<Decided<()>, Refusal> {
        let of = aggregate(AggregateKind::Organization, asker.organization);
        self.draft(asker.organization, of, vec![event], ())
    }

    /// The project whose job it is, among those of organizations that believe who says it.
    ///
    /// # Errors
    /// None, or several; what to do about it.
    pub fn project_of_claims(
        &self,
        claims: &JobClaims,
        organization: Option<OrganizationId>,
        project: Option<&str>,
    ) -> Result<(OrganizationId, ProjectId), Refusal> {
        let refuse = |message: String| Refusal::new(RefusalKind::Denied, message);
        let trusting_organizations: Vec<OrganizationId> = self
            .trusting_organizations(&claims.provider)
            .filter(|(id, trust)| organization.is_none_or(|wanted| wanted == *id) && owns(trust, claims))
            .map(|(id, _)| id)
            .collect();
        if trusting_organizations.is_empty() {
            return Err(refuse(format!(
                "no organization trusts jobs of {} from {}: an owner runs `kasbah provider trust {} --owner …`",
                claims.repository, claims.provider, claims.provider,
            )));
        }
        let mut found: Vec<(OrganizationId, ProjectId)> = Vec::new();
        for organization in trusting_organizations {
            let meant = project.map(|text| self.find_project(organization, text).map(|(id, _)| id));
            let projects = self.projects.iter().filter(|(id, project)| {
                project.organization == organization
                    && meant.is_none_or(|meant| meant == Some(**id))
                    && is_repository(project, claims)
            });
            found.extend(projects.map(|(id, _)| (organization, *id)));
        }
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(refuse(format!(
                "no project has the repository {}: create one with it, or correct the repository and the external id of yours",
                claims.repository
            ))),
            several => {
                let field = if several.iter().all(|(id, _)| several.first().is_some_and(|one| one.0 == *id)) {
                    "project"
                } else {
                    "organization"
                };
                Err(Refusal {
                    field: Some(field.to_owned()),
                    ..Refusal::new(
                        RefusalKind::Conflict,
                        format!(
                            "several projects have the repository {}: select the {field}",
                            claims.repository
                        ),
                    )
                })
            }
        }
    }

    /// Lets a job in that an identity provider speaks for, in one commit. Its id derives from what was said, so that it is let in once.
    ///
    /// # Errors
    /// Nobody believes it any more, too many live jobs, or it was let in already.
    pub fn sign_in_job(
        &self,
        claims: &JobClaims,
        job: JobAdmitted,
        token: TokenIssued,
        now: Timestamp,
    ) -> Result<Decided<()>, Refusal> {
        let gone = || Refusal::not_found("project");
        let organization = self.projects.get(&job.project).ok_or_else(gone)?.organization;
        let project = job.project.to_string();
        self.project_of_claims(claims, Some(organization), Some(&project))?;
        if self.jobs.contains_key(&job.job) {
            return Err(used());
        }
        self.job_with_token(organization, job, token, now)
    }

    /// Whose an account is: the user to whom it is linked, or else the one with its login name.
    ///
    /// # Errors
    /// Nobody's, or the user has another account there.
    pub fn user_of_account(&self, account: &Account, login: NameId) -> Result<UserId, Refusal> {
        if let Some(user) = self.accounts.get(account) {
            return Ok(*user);
        }
        let user = self.named(login).map(UserId).ok_or_else(|| unknown_login(&account.provider))?;
        self.has_no_other_account(user, account)?;
        Ok(user)
    }

    fn has_no_other_account(&self, user: UserId, account: &Account) -> Result<(), Refusal> {
        let mut others = self.accounts.iter().filter(|(_, holder)| **holder == user);
        if others.any(|(other, _)| other.provider == account.provider) {
            let message = format!(
                "the user of this login name has another account at {}: an owner runs `kasbah user unlink` if this is the same person",
                account.provider
            );
            return Err(Refusal::new(RefusalKind::Denied, message));
        }
        Ok(())
    }

    /// Signs a user in: links the account if it is not yet, and issues the token, whose id derives from what was said.
    ///
    /// # Errors
    /// The organization does not believe the provider, the account is somebody else's, or it was used already.
    pub fn sign_in_user(
        &self,
        account: &Account,
        token: TokenIssued,
        now: Timestamp,
    ) -> Result<Decided<()>, Refusal> {
        let TokenHolder::User(user) = token.holder else { return Err(Refusal::not_found("user")) };
        if self.trust(account.organization, &account.provider).is_none() {
            return Err(unknown_login(&account.provider));
        }
        match self.accounts.get(account) {
            Some(holder) if *holder == user => {}
            Some(_) => return Err(Refusal::new(RefusalKind::Denied, "the account is another user's")),
            None => self.has_no_other_account(user, account)?,
        }
        if self.tokens.contains_key(&token.token) {
            return Err(used());
        }
        if self.is_disabled(user) {
            return Err(Refusal::new(
                RefusalKind::Denied,
                "the user is disabled: an owner runs `kasbah user enable`",
            ));
        }
        self.has_room_for_token(token.holder, now)?;
        let mut events = Vec::new();
        if !self.accounts.contains_key(account) {
            let (provider, subject) = (account.provider.clone(), account.subject);
            events.push(DirectoryEvent::UserLinked(UserLinked { user, provider, subject }));
        }
        let of = holder_aggregate(token.holder);
        events.push(DirectoryEvent::TokenIssued(token));
        self.draft(account.organization, of, events, ())
    }

    /// Takes a user's account at a provider from them.
    ///
    /// # Errors
    /// Not allowed.
    pub fn unlink_user(&self, asker: &Asker, user: UserId, provider: &str) -> Result<Decided<()>, Refusal> {
        self.may_manage_providers(asker)?;
        let mut accounts = self.accounts.iter();
        if !accounts.any(|(account, holder)| *holder == user && account.provider == provider) {
            return Ok(Decided::already(()));
        }
        let event = UserUnlinked { user, provider: provider.to_owned() };
        let of = aggregate(AggregateKind::User, user);
        self.draft(asker.organization, of, vec![DirectoryEvent::UserUnlinked(event)], ())
    }
}

/// Whether the organization lets in jobs of the repository's owner, or of one above it.
fn owns(trust: &ProviderTrust, claims: &JobClaims) -> bool {
    let is_at_or_below = |path: &str, owner: &str| {
        let (path, owner) = (path.to_lowercase(), owner.to_lowercase());
        path == owner || path.strip_prefix(&owner).is_some_and(|rest| rest.starts_with('/'))
    };
    trust.owners.iter().any(|owner| claims.owners.iter().any(|path| is_at_or_below(path, owner)))
}

/// Whether a project is the one that the claims name; a project that knows the repository's number believes the number, too.
fn is_repository(project: &Project, claims: &JobClaims) -> bool {
    let plain = |text: &str| text.trim_end_matches('/').trim_end_matches(".git").to_lowercase();
    plain(&project.settings.repository) == plain(&claims.repository)
        && project.settings.external_id.is_none_or(|known| claims.external_id == Some(known))
}

/// Nobody whom the person could be; whether an organization believes the provider is not told.
#[must_use]
pub fn unknown_login(provider: &str) -> Refusal {
    let message = format!(
        "no organization that trusts {provider} knows this login name: an owner runs `kasbah provider trust {provider}` and `kasbah user create`"
    );
    Refusal::new(RefusalKind::Denied, message)
}

fn used() -> Refusal {
    let message =
        "this ID token was already used, and it is valid only once: request another from the provider";
    Refusal::new(RefusalKind::Unauthenticated, message)
}

#[cfg(test)]
mod tests;
