//! The key ring: every secret key of an installation, in one place, under one master key.

use async_trait::async_trait;
use events::{CredentialId, OrganizationId, RootId, UserId};
use zeroize::Zeroizing;

/// Names a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyName {
    /// An organization's blob key (encryption and addresses derive from it).
    Organization(OrganizationId),
    /// A person's key.
    Person(UserId),
    /// A Git credential: `user:secret` in UTF-8.
    Credential(CredentialId),
    /// The Ed25519 root (PKCS#8) that signs passes; agents pin its public half.
    Root,
    /// A root that took the place of the one before; the log says which.
    LaterRoot(RootId),
    /// The certificate authority's key and certificate, PEM.
    CertificateAuthority,
    /// What seals the TLS tickets of agents, so that those who come back resume at whichever gateway they find.
    TunnelTickets,
}

/// Keys by name. Exempt from the law that state is a fold: it is backed up apart, and it can destroy.
#[async_trait]
pub trait KeyRing: Send + Sync {
    /// The key, if there is one.
    async fn get(&self, name: KeyName) -> Result<Option<Zeroizing<Vec<u8>>>, KeyRingError>;

    /// The key; if there is none, a new one of 32 random bytes (a root's in PKCS#8). Two callers get the same.
    async fn get_or_create(&self, name: KeyName) -> Result<Zeroizing<Vec<u8>>, KeyRingError>;

    /// Stores a key unless there is one by that name; returns the one that is stored now.
    async fn put_new(
        &self,
        name: KeyName,
        key: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, KeyRingError>;

    /// Destroys a key for good.
    async fn destroy(&self, name: KeyName) -> Result<(), KeyRingError>;
}

/// The key ring could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// The master key does not open it.
    #[error("the master key does not open the key ring: use the one it was made with")]
    WrongMasterKey,
    /// Stored bytes are damaged.
    #[error("the key ring is damaged: restore it from its backup")]
    Damaged,
    /// Input or output failed.
    #[error("cannot reach the key ring: {detail}")]
    Failed {
        /// What happened.
        detail: String,
    },
}
