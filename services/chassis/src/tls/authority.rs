//! A certificate authority of our own.

use std::net::IpAddr;
use std::time::Duration;

use events::{Sha256, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType, date_time_ymd,
};
use zeroize::Zeroizing;

use super::TlsError;

/// How long an authority's certificate is valid.
const AUTHORITY_VALID: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// How long before now a certificate begins, so that clocks may differ a little.
const BACKDATED_MILLIS: i64 = 5 * 60 * 1000;

/// Issues certificates to servers. Its key lives in the key ring; its certificate is public.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, both PEM.
pub struct Issued {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its private key, PEM; erased from memory when dropped.
    pub key: Zeroizing<String>,
}

impl Authority {
    /// A new authority with a new key; `now` is when its certificate begins.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn generate(now: Timestamp) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = authority_params(&key);
        set_validity(&mut params, now, AUTHORITY_VALID);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The authority whose certificate and key were kept.
    ///
    /// # Errors
    /// When the key is no private key.
    pub fn from_pem(certificate: String, key: &str) -> Result<Self, TlsError> {
        let key = KeyPair::from_pem(key)?;
        Ok(Self { certificate, issuer: Issuer::new(authority_params(&key), key) })
    }

    /// Its certificate, PEM: what `--ca-file` takes.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its private key, PEM, for keeping in the key ring.
    #[must_use]
    pub fn key(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// Issues a certificate to a server that is reached under `names` (host names, wildcards, IP addresses), valid from a few
    /// minutes before `now` for `valid`.
    ///
    /// # Errors
    /// When a name is neither host name nor IP address.
    pub fn issue(&self, names: &[String], now: Timestamp, valid: Duration) -> Result<Issued, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named("Kasbah server");
        params.subject_alt_names =
            names.iter().map(|name| alternative_name(name)).collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, valid);
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate, key: Zeroizing::new(key.serialize_pem()) })
    }
}

/// The same for the same key, so that the issuer can be made again from the key alone. The name has a digest of the key, so
/// that two authorities never share a name.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let digest = Sha256::of(&key.subject_public_key_info()).to_string();
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&format!("Kasbah authority {}", digest.get(..12).unwrap_or(&digest)));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn alternative_name(name: &str) -> Result<SanType, TlsError> {
    let bad = || TlsError::BadName { name: name.to_owned() };
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let host = name.strip_prefix("*.").unwrap_or(name);
    rustls_pki_types::DnsName::try_from(host).map_err(|_| bad())?;
    Ok(SanType::DnsName(name.try_into().map_err(|_| bad())?))
}

/// Sets beginning and end.
fn set_validity(params: &mut CertificateParams, now: Timestamp, valid: Duration) {
    let epoch = date_time_ymd(1970, 1, 1);
    let since_epoch = |moment: Timestamp| Duration::from_millis(u64::try_from(moment.0).unwrap_or(0));
    params.not_before = epoch + since_epoch(now.plus_millis(-BACKDATED_MILLIS));
    params.not_after = epoch + since_epoch(now) + valid;
}
