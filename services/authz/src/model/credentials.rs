//! Git credentials: bound to one host, granted to projects.

use events::directory::{CredentialCreated, CredentialGranted, CredentialRevoked, DirectoryEvent, Scope};
use events::requests::authz::Action;
use events::{AggregateKind, CommitId, CredentialId, ProjectId, Refusal, RefusalKind};

use super::projects::already;
use super::{Asker, Credential, Decided, Directory, aggregate};

impl Directory {
    /// Whether the asker may create credentials.
    ///
    /// # Errors
    /// When not.
    pub fn may_create_credential(&self, asker: &Asker) -> Result<(), Refusal> {
        self.authorize(
            asker,
            Action::CreateCredential,
            Scope::Organization(asker.organization),
            "organization",
        )
    }

    /// Creates a credential under its claimed id. Its secret is in the key ring by now.
    ///
    /// # Errors
    /// Not allowed, or another has the name.
    pub fn create_credential(
        &self,
        asker: &Asker,
        id: CredentialId,
        name: &str,
        host: &str,
        key: CommitId,
    ) -> Result<Decided<()>, Refusal> {
        self.may_create_credential(asker)?;
        if let Some(existing) = self.credentials.get(&id) {
            return already(existing.created_by == key);
        }
        let event = CredentialCreated { credential: id, name: name.to_owned(), host: host.to_owned() };
        let events = vec![DirectoryEvent::CredentialCreated(event)];
        self.draft(asker.organization, aggregate(AggregateKind::Credential, id), events, ())
    }

    /// The credential that the asker means, for an action on it.
    ///
    /// # Errors
    /// Not found or not allowed.
    pub fn own_credential(
        &self,
        asker: &Asker,
        action: Action,
        text: &str,
    ) -> Result<(CredentialId, &Credential), Refusal> {
        self.authorize(asker, action, Scope::Organization(asker.organization), "organization")?;
        self.find_credential(asker.organization, text).ok_or_else(|| Refusal {
            field: Some("credential".to_owned()),
            ..Refusal::not_found("credential")
        })
    }

    /// Lets a project use a credential. The project may be about to be created.
    ///
    /// # Errors
    /// Not found, not allowed, or revoked.
    pub fn grant_credential(
        &self,
        asker: &Asker,
        credential: CredentialId,
        project: ProjectId,
    ) -> Result<Decided<()>, Refusal> {
        let found =
            self.credentials.get(&credential).filter(|found| found.organization == asker.organization);
        let found = found.ok_or_else(|| Refusal::not_found("credential"))?;
        if found.projects.contains(&project) && !found.revoked {
            return Ok(Decided::already(()));
        }
        self.authorize(
            asker,
            Action::GrantCredential,
            Scope::Organization(asker.organization),
            "organization",
        )?;
        if found.revoked {
            return Err(Refusal::new(RefusalKind::Conflict, "this credential was revoked; create a new one"));
        }
        let events = vec![DirectoryEvent::CredentialGranted(CredentialGranted { credential, project })];
        self.draft(asker.organization, aggregate(AggregateKind::Credential, credential), events, ())
    }

    /// Revokes a credential. Its secret is destroyed afterwards, again when the request is repeated.
    ///
    /// # Errors
    /// Not found or not allowed.
    pub fn revoke_credential(&self, asker: &Asker, text: &str) -> Result<Decided<CredentialId>, Refusal> {
        let (credential, found) = self.own_credential(asker, Action::RevokeCredential, text)?;
        if found.revoked {
            return Ok(Decided::already(credential));
        }
        let events = vec![DirectoryEvent::CredentialRevoked(CredentialRevoked { credential })];
        self.draft(asker.organization, aggregate(AggregateKind::Credential, credential), events, credential)
    }
}
