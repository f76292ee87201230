//! Secrets and signatures of webhooks, as Standard Webhooks has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::{OrganizationId, SubscriptionId};
use ring::{hkdf, hmac};
use store::{KeyName, KeyRing, KeyRingError, Sealing};
use world::Random;
use zeroize::Zeroizing;

const SUBSCRIPTIONS: &[u8] = b"kasbah subscriptions";
const ADDRESSES: &[u8] = b"kasbah addresses of webhooks";

/// A secret that signs messages.
pub(crate) struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    /// The secret of this number of a subscription, derived from the organization's key.
    ///
    /// # Errors
    /// When the key ring is away.
    pub(crate) async fn of(
        keys: &dyn KeyRing,
        organization: OrganizationId,
        subscription: SubscriptionId,
        number: u32,
    ) -> Result<Self, KeyRingError> {
        let key = keys.get_or_create(KeyName::Organization(organization)).await?;
        Self::derive(&key, subscription, number)
    }

    fn derive(key: &[u8], subscription: SubscriptionId, number: u32) -> Result<Self, KeyRingError> {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, SUBSCRIPTIONS)
            .extract(key)
            .expand(&[subscription.0.as_bytes(), &number.to_be_bytes()], hkdf::HKDF_SHA256)
            .and_then(|expanded| expanded.fill(bytes.as_mut_slice()))
            .map_err(|_| KeyRingError::Failed { detail: "cannot derive a key".to_owned() })?;
        Ok(Self(bytes))
    }

    /// As the receiver gets it.
    pub(crate) fn text(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0.as_slice()))
    }

    fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.0.as_slice());
        let mut context = hmac::Context::with_key(&key);
        context.update(format!("{id}.{seconds}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

/// Seals and opens the addresses of an organization's webhooks.
pub(crate) struct WebhookUrl(Sealing);

impl WebhookUrl {
    /// Of this organization.
    ///
    /// # Errors
    /// When the key ring is away.
    pub(crate) async fn of(keys: &dyn KeyRing, organization: OrganizationId) -> Result<Self, KeyRingError> {
        Sealing::of(keys, organization, ADDRESSES).await.map(Self)
    }

    /// As it goes into the log.
    pub(crate) fn seal(&self, random: &dyn Random, id: SubscriptionId, url: &str) -> String {
        // Sealing fails only over lengths that no address has.
        STANDARD.encode(self.0.seal(random, id.0.as_bytes(), url.as_bytes()).unwrap_or_default())
    }

    /// The address; `None` when it cannot be read any more.
    pub(crate) fn open(&self, id: SubscriptionId, sealed: &str) -> Option<Zeroizing<String>> {
        let opened = self.0.open(id.0.as_bytes(), &STANDARD.decode(sealed).ok()?)?;
        String::from_utf8(opened).ok().map(Zeroizing::new)
    }

    /// What of an address people may see.
    pub(crate) fn shown(url: &str) -> String {
        let uri = url.parse::<http::Uri>().unwrap_or_default();
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        format!("{}://{authority}/…", uri.scheme_str().unwrap_or("https"))
    }
}

/// The signatures of a message, by each secret that counts.
pub(crate) fn signatures(secrets: &[Secret], id: &str, seconds: i64, body: &[u8]) -> String {
    secrets.iter().map(|secret| secret.sign(id, seconds, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification: https://github.com/standard-webhooks/standard-webhooks, `libraries/python/tests`.
    #[test]
    fn a_signature_is_the_one_of_the_specification() {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        bytes[..key.len()].copy_from_slice(&key);
        // HMAC pads a key with zeros: one of 24 bytes signs as the same with zeros behind it.
        let secret = Secret(bytes);
        let body = br#"{"test": 2432232314}"#;
        let signed = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_subscription_and_number_has_a_secret_of_its_own() {
        let id = |number| SubscriptionId(uuid::Uuid::from_u128(number));
        let text = |subscription, number| Secret::derive(&[7; 32], id(subscription), number).unwrap().text();
        assert_eq!(text(1, 1), text(1, 1));
        assert_ne!(text(1, 1), text(1, 2));
        assert_ne!(text(1, 1), text(2, 1));
    }
}
