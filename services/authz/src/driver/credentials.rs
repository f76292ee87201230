//! Git credentials. The secret is in the key ring before any event names it.

use events::requests::authz::{Action, CreateCredential, CredentialView, GrantCredential, RevokeCredential};
use events::{CredentialId, Refusal};
use store::KeyName;
use zeroize::Zeroizing;

use super::{Driver, gone};
use crate::call::Call;
use crate::checks;
use crate::model::claims::{NameId, Named};
use crate::model::steps::Step;
use crate::personal::away;

/// Longest secret, in bytes.
const MAXIMUM_SECRET: usize = 16 * 1024;

impl Driver {
    pub(super) async fn create_credential(
        self,
        mut call: Call,
        request: CreateCredential,
    ) -> Result<CredentialView, Refusal> {
        checks::name("name", &request.name)?;
        checks::host(&request.host)?;
        let secret = secret(request.user.as_deref(), request.secret)?;
        let asker = call.asker();
        self.directory.read(|directory| directory.may_create_credential(&asker))?;
        let fresh = call.pass(self.fresh());
        let key = call.key();
        let claim = NameId::of(Named::Credential, asker.organization, asker.organization.0, &request.name);
        let id = CredentialId(self.claim(&call, claim, fresh, key).await?);
        self.keys.put_new(KeyName::Credential(id), secret).await.map_err(|error| away(&error))?;
        let step = Step::CreateCredential { claim, id, name: request.name, host: request.host, key };
        self.commit(&call, key, step).await?;
        self.credential(id)
    }

    pub(super) async fn grant_credential(
        self,
        call: Call,
        request: GrantCredential,
    ) -> Result<CredentialView, Refusal> {
        let asker = call.asker();
        let (id, project) = self.directory.read(|directory| {
            let (id, _) = directory.own_credential(&asker, Action::GrantCredential, &request.credential)?;
            let (project, _) = directory.visible_project(&asker, &request.project)?;
            Ok::<_, Refusal>((id, project))
        })?;
        self.commit(&call, call.key(), Step::GrantCredential { credential: id, project }).await?;
        self.credential(id)
    }

    pub(super) async fn revoke_credential(
        self,
        call: Call,
        request: RevokeCredential,
    ) -> Result<CredentialView, Refusal> {
        let step = Step::RevokeCredential { credential: request.credential };
        let id = CredentialId(self.commit(&call, call.key(), step).await?);
        self.keys.destroy(KeyName::Credential(id)).await.map_err(|error| away(&error))?;
        self.credential(id)
    }

    fn credential(&self, id: CredentialId) -> Result<CredentialView, Refusal> {
        self.directory.read(|directory| directory.credential_view(id)).ok_or_else(gone)
    }
}

/// `user:secret`, as the key ring holds it.
fn secret(user: Option<&str>, secret: String) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let secret = Zeroizing::new(secret);
    let user = user.unwrap_or("git");
    let printable = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if !printable(user) || user.contains(':') || user.len() > 255 {
        return Err(Refusal::invalid("user", "must be 1 to 255 printable characters without a colon"));
    }
    if !printable(&secret) || secret.len() > MAXIMUM_SECRET {
        return Err(Refusal::invalid("secret", "must be 1 to 16384 bytes without control characters"));
    }
    Ok(Zeroizing::new([user.as_bytes(), b":", secret.as_bytes()].concat()))
}
