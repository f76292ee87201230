//! What each service says and hears. Its permissions on NATS are made of this, and of nothing else.

use std::collections::BTreeSet;

use crate::aggregate::AggregateKind;
use crate::position::Stream;

/// What one service says on the bus and writes into the log, and what it hears and reads there.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// The service, as in the names of its requests. It serves all of those.
    pub service: &'static str,
    /// Requests that it makes: [`crate::Request::NAME`].
    pub asks: &'static [&'static str],
    /// Notices that it gives: [`crate::Notice::NAME`].
    pub announces: &'static [&'static str],
    /// Notices that it takes.
    pub hears: &'static [&'static str],
    /// Its replicas share work, and so tell each other that they live.
    pub shares_work: bool,
    /// Services of whose replicas it knows which live.
    pub knows: &'static [&'static str],
    /// Kinds of aggregates that it decides.
    pub decides: &'static [AggregateKind],
    /// Streams other than decisions that it appends to.
    pub appends: &'static [Stream],
    /// Streams other than decisions that it reads. Decisions are read by all.
    pub reads: &'static [Stream],
    /// What it does with blobs.
    pub blobs: Use,
    /// Keys that it makes or destroys. All services read keys: they open nothing without the master key.
    pub keys: &'static [Keys],
    /// Its projections, which it keeps snapshots of.
    pub projections: &'static [&'static str],
    /// Streams that it lets old records leave.
    pub lets_go: &'static [Stream],
    /// Projections, of whichever service, for which it keeps the snapshots that stand for what has left.
    pub anchors: &'static [&'static str],
    /// It makes and deletes the consumers from which programs outside fetch exported events.
    pub makes_consumers: bool,
    /// It makes the log's streams, and widens them when there are more servers. All others wait for it.
    pub makes_log: bool,
}

/// What a service does with blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nothing.
    None,
    /// Reads them.
    Reads,
    /// Reads and stores them.
    Writes,
}

/// Groups of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Organizations' blob keys.
    Organizations,
    /// Persons' keys.
    Persons,
    /// Git credentials.
    Credentials,
    /// The root that signs.
    Root,
    /// The certificate authority.
    CertificateAuthority,
    /// What seals agents' TLS tickets.
    TunnelTickets,
}

impl Access {
    /// Nothing but its own requests and the log of decisions.
    #[must_use]
    pub const fn of(service: &'static str) -> Self {
        Self {
            service,
            asks: &[],
            announces: &[],
            hears: &[],
            shares_work: false,
            knows: &[],
            decides: &[],
            appends: &[],
            reads: &[],
            blobs: Use::None,
            keys: &[],
            projections: &[],
            lets_go: &[],
            anchors: &[],
            makes_consumers: false,
            makes_log: false,
        }
    }
}

/// What a user of NATS may do: subjects, with wildcards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// What it may publish to.
    pub publish: BTreeSet<String>,
    /// What it may subscribe to.
    pub subscribe: BTreeSet<String>,
}

impl Permissions {
    /// May publish to this, too.
    pub fn allow_publish(&mut self, subject: impl Into<String>) {
        self.publish.insert(subject.into());
    }

    /// May subscribe to this, too.
    pub fn allow_subscribe(&mut self, subject: impl Into<String>) {
        self.subscribe.insert(subject.into());
    }

    /// May do all that another may.
    pub fn extend(&mut self, other: Self) {
        self.publish.extend(other.publish);
        self.subscribe.extend(other.subscribe);
    }
}

/// The beginning of the subjects under which a process gets answers, so that nobody may hear those of another service.
#[must_use]
pub fn inbox(process: &str) -> String {
    format!("_INBOX.{process}")
}
