//! Checks the chains of one organization's decisions, and the partition that they are in.

use std::collections::BTreeMap;

use events::position::Stream;
use events::subject::partition_of_organization;
use events::{AggregateRef, ChainHash, Commit, Event, OrganizationId};
use schemars::JsonSchema;
use serde::Serialize;
use store::{Checkpoint, EventLog, PartitionCheck, ReadError, ReadFilter, Record};

/// What was checked, and what does not fit first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Verified {
    /// Everything fits.
    pub ok: bool,
    /// The partition of the organization's decisions has a checkpoint, which fits as well: its end is not lost.
    pub checkpoint: bool,
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
    /// Which aggregate; `partition` where it is not one aggregate's chain.
    pub aggregate: String,
    /// Its version there; 0 of a partition.
    pub version: u64,
    /// What does not fit.
    pub detail: String,
}

/// Reads the partition of an organization's decisions; checks that it holds what its checkpoint counts, and of the organization that
/// versions are dense and each commit names the hash of the one before.
///
/// # Errors
/// When the log cannot be read at all.
pub async fn verify(log: &dyn EventLog, organization: OrganizationId) -> Result<Verified, ReadError> {
    let partition = partition_of_organization(organization, log.partitions());
    let checkpoint = log.checkpoints(Stream::Decisions).await?.remove(&partition);
    verify_against(checkpoint, log, organization).await
}

async fn verify_against(
    checkpoint: Option<Checkpoint>,
    log: &dyn EventLog,
    organization: OrganizationId,
) -> Result<Verified, ReadError> {
    let shard = (Stream::Decisions, partition_of_organization(organization, log.partitions()));
    let mut partition = PartitionCheck::new(checkpoint);
    // Nothing of the other partitions is read.
    let mut from = log.position(&[Stream::Decisions]).await?;
    from.0.remove(&shard);
    let mut records = log.read(&from, &ReadFilter::decisions(&[])).await?;
    let mut check = Check::default();
    check.verified.checkpoint = partition.has_checkpoint();
    while let Some(record) = records.recv().await {
        let record = record?;
        if record.shard != shard {
            continue;
        }
        let added = partition.add(&record).map_err(|detail| broken("partition", 0, detail));
        let of_organization = record.organization == organization;
        if let Err(broken) = added.and_then(|()| if of_organization { check.add(&record) } else { Ok(()) }) {
            return Ok(Verified { ok: false, broken: Some(broken), ..check.done() });
        }
    }
    Ok(match partition.end() {
        Ok(_) => check.done(),
        Err((_, detail)) => {
            Verified { ok: false, broken: Some(broken("partition", 0, detail)), ..check.done() }
        }
    })
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
            return Err(broken("it does not carry the hash of the previous commit"));
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

#[cfg(test)]
mod tests {
    use events::directory::{DirectoryEvent, TokenUsed};
    use events::{Actor, AggregateKind, CommitId, CorrelationId, Sha256, Timestamp, TokenId};
    use store::checkpoint::Left;
    use store::embedded::{Options, open};
    use store::{NewCommit, Tally};
    use uuid::Uuid;
    use world::World;

    use super::*;

    const HOME: OrganizationId = OrganizationId(Uuid::from_u128(1));
    const OTHER: OrganizationId = OrganizationId(Uuid::from_u128(2));

    async fn append(world: &World, log: &dyn EventLog, organization: OrganizationId, expected: u64) {
        let used = TokenUsed { token: TokenId(Uuid::from_u128(7)), at: Timestamp(1) };
        let commit = NewCommit {
            id: CommitId(world.new_uuid()),
            organization,
            aggregate: AggregateRef::new(AggregateKind::Agent, "one"),
            expected,
            actor: Actor::service("test"),
            correlation_id: CorrelationId(world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(1),
            command: None,
            grounds: None,
            events: store::new_events(world, [Event::from(DirectoryEvent::TokenUsed(used))]).unwrap(),
        };
        log.append(commit).await.unwrap();
    }

    #[tokio::test]
    async fn the_partition_is_compared_with_its_checkpoint_and_tells_nothing_of_others() {
        let (world, folder) = (World::real(), tempfile::tempdir().unwrap());
        // One partition, in which both are.
        let options = Options { partitions: Some(1), ..Options::default() };
        let log = open(&world, folder.path(), options).unwrap().log;
        for expected in 0..3 {
            append(&world, &*log, HOME, expected).await;
            append(&world, &*log, OTHER, expected).await;
        }
        let verified = verify(&*log, HOME).await.unwrap();
        assert_eq!((verified.ok, verified.checkpoint, verified.commits), (true, false, 3));
        let whole = log.verify().await.unwrap().streams[0].partitions[0];
        for (sequence, tally, wrong) in [
            (6, whole, None),
            (7, Tally { count: 7, ..whole }, Some("the end is lost")),
            (6, Tally { hash: Sha256([1; 32]), ..whole }, Some("are not those that the partition's")),
        ] {
            let checkpoint = Some(Checkpoint { sequence, tally, left: Left::default() });
            let verified = verify_against(checkpoint, &*log, HOME).await.unwrap();
            assert_eq!((verified.ok, verified.checkpoint), (wrong.is_none(), true));
            let broken = verified.broken.map(|broken| (broken.aggregate, broken.version, broken.detail));
            match wrong {
                None => assert_eq!((verified.commits, broken), (3, None)),
                Some(wrong) => {
                    let (aggregate, version, detail) = broken.unwrap();
                    assert_eq!((aggregate.as_str(), version), ("partition", 0));
                    assert!(detail.contains(wrong), "{detail}");
                }
            }
        }
    }
}
