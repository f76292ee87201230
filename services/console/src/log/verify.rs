//! Checks the chains of one organization's decisions.

use std::collections::BTreeMap;

use events::position::Stream;
use events::{AggregateRef, ChainHash, Commit, Event, OrganizationId, Position};
use schemars::JsonSchema;
use serde::Serialize;
use store::{EventLog, ReadError, ReadFilter, Record};

/// What was checked, and what does not fit first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Verified {
    /// Everything fits.
    pub ok: bool,
    /// Aggregates whose chains were checked.
    pub aggregates: u64,
    /// Commits that were checked.
    pub commits: u64,
    /// Events in them.
    pub events: u64,
    /// Events of a type or version that this server does not know.
    pub unknown: u64,
    /// What does not fit first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
}

/// Where a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Broken {
    /// Which aggregate.
    pub aggregate: String,
    /// Its version there.
    pub version: u64,
    /// What does not fit.
    pub detail: String,
}

/// Reads all decisions of an organization and checks that versions are dense and each commit names the hash of the one before.
///
/// # Errors
/// When the log cannot be read at all.
pub async fn verify(log: &dyn EventLog, organization: OrganizationId) -> Result<Verified, ReadError> {
    let filter = ReadFilter { organization: Some(organization), ..ReadFilter::decisions(&[]) };
    let mut records = log.read(&Position::start(), &filter).await?;
    let mut check = Check::default();
    while let Some(record) = records.recv().await {
        let record = record?;
        if record.organization != organization || record.shard.0 != Stream::Decisions {
            continue;
        }
        if let Err(broken) = check.add(&record) {
            return Ok(Verified { ok: false, broken: Some(broken), ..check.done() });
        }
    }
    Ok(check.done())
}

#[derive(Default)]
struct Check {
    heads: BTreeMap<AggregateRef, (u64, ChainHash)>,
    verified: Verified,
}

impl Check {
    fn add(&mut self, record: &Record) -> Result<(), Broken> {
        let Some(commit) = record.commit() else {
            return Err(broken("unknown", 0, "the commit cannot be read"));
        };
        let (version, hash) = self.heads.get(&commit.aggregate).copied().unwrap_or_default();
        let broken = |detail: &str| broken(&commit.aggregate.to_string(), commit.version, detail);
        if commit.version != version + 1 {
            return Err(broken("a version is missing or out of order"));
        }
        if commit.previous != hash {
            return Err(broken("it does not carry the hash of the commit before"));
        }
        self.heads.insert(commit.aggregate.clone(), (commit.version, ChainHash::of(&record.bytes)));
        self.count(commit);
        Ok(())
    }

    fn count(&mut self, commit: &Commit) {
        self.verified.commits += 1;
        for event in &commit.events {
            self.verified.events += 1;
            self.verified.unknown += u64::from(Event::decode(&event.body).is_err());
        }
    }

    fn done(self) -> Verified {
        Verified { ok: true, aggregates: self.heads.len() as u64, ..self.verified }
    }
}

fn broken(aggregate: &str, version: u64, detail: &str) -> Broken {
    Broken { aggregate: aggregate.to_owned(), version, detail: detail.to_owned() }
}
