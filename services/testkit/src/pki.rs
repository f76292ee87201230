//! Certificates: an authority and what it issues.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Certified {
    /// Writes `<name>.crt` and `<name>.key` (readable by the owner only) and gives both paths.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let certificate = folder.join(format!("{name}.crt"));
        let key = folder.join(format!("{name}.key"));
        fs::write(&certificate, &self.certificate).with_context(|| format!("cannot write {name}.crt"))?;
        write_private(&key, &self.key)?;
        Ok((certificate, key))
    }
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let open = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
    let written = open.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// A certificate authority of a test's own.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority with a new key.
    pub fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The authority's own certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for a server with these DNS names and addresses.
    pub fn server(&self, names: &[&str], addresses: &[IpAddr]) -> Result<Certified> {
        let mut params = self.params(names.first().copied().unwrap_or("server"), &[])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        self.issue(&params)
    }

    /// A certificate for a client: Kubernetes reads the user from the name and the groups from the organizations.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Certified> {
        let mut params = self.params(user, groups)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&params)
    }

    fn params(&self, name: &str, groups: &[&str]) -> Result<CertificateParams> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        Ok(params)
    }

    fn issue(&self, params: &CertificateParams) -> Result<Certified> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Certified { certificate, key: key.serialize_pem() })
    }
}
