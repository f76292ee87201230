//! People's data: encrypted under a key per person; login names claimed under a hash keyed per organization.
//!
//! Once a person's key is destroyed their data is unreadable, in the log and in every copy of it. The claim of the login name
//! tells nobody the name: it is a hash under a key that only this installation has.

use std::collections::BTreeMap;

use events::directory::PersonalData;
use events::{OrganizationId, Refusal, RefusalKind, Sha256, UserId};
use parking_lot::Mutex;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use store::{KeyName, KeyRing, KeyRingError};
use world::Random;
use zeroize::Zeroizing;

use crate::model::claims::{NameId, Named};
use crate::model::identity::Account;

const PERSONAL: &[u8] = b"kasbah personal data";
const LOGIN_NAMES: &[u8] = b"kasbah login names";
const ACCOUNTS: &[u8] = b"kasbah accounts at identity providers";

/// Names that were decrypted; `None` of those whose key is gone.
#[derive(Debug, Default)]
pub struct Names {
    known: Mutex<BTreeMap<UserId, Option<String>>>,
}

impl Names {
    /// The name in clear; `None` once its key is destroyed.
    ///
    /// # Errors
    /// When the key ring is away.
    pub async fn open(
        &self,
        keys: &dyn KeyRing,
        user: UserId,
        data: &PersonalData,
    ) -> Result<Option<String>, Refusal> {
        if let Some(known) = self.known.lock().get(&user) {
            return Ok(known.clone());
        }
        let key = keys.get(KeyName::Person(user)).await.map_err(|error| away(&error))?;
        let name = key.and_then(|key| open(&key, user, data));
        self.known.lock().insert(user, name.clone());
        Ok(name)
    }
}

/// Encrypts a person's data under their key, which is made if there is none.
///
/// # Errors
/// When the key ring is away.
pub async fn seal(
    keys: &dyn KeyRing,
    random: &dyn Random,
    user: UserId,
    text: &str,
) -> Result<PersonalData, Refusal> {
    let key = keys.get_or_create(KeyName::Person(user)).await.map_err(|error| away(&error))?;
    let mut nonce = [0_u8; NONCE_LEN];
    random.fill(&mut nonce);
    let mut sealed = text.as_bytes().to_vec();
    personal_key(&key)
        .and_then(|key| {
            let aad = Aad::from(user.0.into_bytes());
            key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
        })
        .map_err(|_| internal("cannot encrypt"))?;
    Ok(PersonalData([nonce.as_slice(), &sealed].concat()))
}

/// The claim of a login name.
///
/// # Errors
/// When the key ring is away.
pub async fn login_claim(
    keys: &dyn KeyRing,
    organization: OrganizationId,
    name: &str,
) -> Result<NameId, Refusal> {
    let tag = keyed(keys, organization, LOGIN_NAMES, name.as_bytes()).await?;
    Ok(NameId::of(Named::User, organization, organization.0, &hex::encode(tag.0)))
}

/// An account at an identity provider, as an organization knows it: `subject` is its id there.
///
/// # Errors
/// When the key ring is away.
pub async fn account(
    keys: &dyn KeyRing,
    organization: OrganizationId,
    provider: &str,
    subject: &str,
) -> Result<Account, Refusal> {
    let said = [provider.as_bytes(), b"\0", subject.as_bytes()].concat();
    let subject = keyed(keys, organization, ACCOUNTS, &said).await?;
    Ok(Account { organization, provider: provider.to_owned(), subject })
}

/// What only this installation can tell of a person's data: a hash under a key of the organization.
async fn keyed(
    keys: &dyn KeyRing,
    organization: OrganizationId,
    purpose: &[u8],
    data: &[u8],
) -> Result<Sha256, Refusal> {
    let secret =
        keys.get_or_create(KeyName::Organization(organization)).await.map_err(|error| away(&error))?;
    let key = derive(&secret, purpose).map_err(|_| internal("cannot derive a key"))?;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_slice()), data);
    tag.as_ref().try_into().map(Sha256).map_err(|_| internal("a hash has another length"))
}

fn open(key: &[u8], user: UserId, data: &PersonalData) -> Option<String> {
    let (nonce, sealed) = data.0.split_at_checked(NONCE_LEN)?;
    let mut sealed = sealed.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let clear =
        personal_key(key).ok()?.open_in_place(nonce, Aad::from(user.0.into_bytes()), &mut sealed).ok()?;
    String::from_utf8(clear.to_vec()).ok()
}

fn personal_key(secret: &[u8]) -> Result<LessSafeKey, ring::error::Unspecified> {
    let key = derive(secret, PERSONAL)?;
    UnboundKey::new(&CHACHA20_POLY1305, key.as_slice()).map(LessSafeKey::new)
}

fn derive(secret: &[u8], purpose: &[u8]) -> Result<Zeroizing<[u8; 32]>, ring::error::Unspecified> {
    let mut key = Zeroizing::new([0_u8; 32]);
    let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(secret);
    pseudorandom.expand(&[purpose], hkdf::HKDF_SHA256)?.fill(key.as_mut_slice())?;
    Ok(key)
}

/// The key ring cannot be reached.
pub(crate) fn away(error: &KeyRingError) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("{error}; retry"))
}

fn internal(message: &str) -> Refusal {
    Refusal::new(RefusalKind::Internal, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(key: &[u8], user: UserId, text: &str) -> PersonalData {
        let mut sealed = text.as_bytes().to_vec();
        let nonce = Nonce::assume_unique_for_key([7; NONCE_LEN]);
        personal_key(key)
            .unwrap()
            .seal_in_place_append_tag(nonce, Aad::from(user.0.into_bytes()), &mut sealed)
            .unwrap();
        PersonalData([[7; NONCE_LEN].as_slice(), &sealed].concat())
    }

    #[test]
    fn only_the_persons_own_key_opens_their_data() {
        let (ada, bob) = (UserId(uuid::Uuid::from_u128(1)), UserId(uuid::Uuid::from_u128(2)));
        let data = sealed(&[1; 32], ada, "ada");
        assert_eq!(open(&[1; 32], ada, &data).as_deref(), Some("ada"));
        assert_eq!(open(&[2; 32], ada, &data), None);
        assert_eq!(open(&[1; 32], bob, &data), None, "data of one person must not pass as another's");
        assert!(!data.0.windows(3).any(|bytes| bytes == b"ada"));
        assert_eq!(open(&[1; 32], ada, &PersonalData(vec![1, 2, 3])), None);
    }
}
