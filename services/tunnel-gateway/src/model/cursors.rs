//! How far each agent's observations are durable.

use std::collections::BTreeMap;
use std::fmt;

use events::AgentId;
use events::observation::ObservationBatch;
use events::position::Stream;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use store::{Projection, ReadFilter, Record};
use tunnel::wire::Acknowledged;

/// Epoch and last sequence of each agent that ever wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursors {
    agents: BTreeMap<String, Cursor>,
}

/// How far one agent's observations are durable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Cursor {
    durable: Acknowledged,
    /// First and last sequence of what lies behind a gap: of batches that were on their way at once, one that had to be sent
    /// again is stored behind those after it.
    early: BTreeMap<u64, u64>,
}

/// The head of a record; observations are counted, not read.
#[derive(Deserialize)]
struct Head {
    writer: String,
    epoch: u64,
    first: u64,
    observations: Count,
}

struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;
        impl<'de> Visitor<'de> for Counter {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of observations")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Count, A::Error> {
                let mut count = 0_u64;
                while sequence.next_element::<IgnoredAny>()?.is_some() {
                    count = count.saturating_add(1);
                }
                Ok(Count(count))
            }
        }
        deserializer.deserialize_seq(Counter)
    }
}

impl Head {
    /// Reads a record as it is written here, without looking at the observations: replays are long.
    fn quickly(mut bytes: &[u8]) -> Option<Self> {
        let (mut writer, mut epoch, mut first) = (None, None, None);
        let rest = &mut bytes;
        for _ in 0..rmp::decode::read_map_len(rest).ok()? {
            match text(rest)? {
                "organization" => {
                    let length = rmp::decode::read_bin_len(rest).ok()?;
                    cut(rest, length)?;
                }
                "writer" => writer = Some(text(rest)?.to_owned()),
                "epoch" => epoch = Some(rmp::decode::read_int(rest).ok()?),
                "first" => first = Some(rmp::decode::read_int(rest).ok()?),
                "observations" => {
                    let count = rmp::decode::read_array_len(rest).ok()?;
                    return Some(Self {
                        writer: writer?,
                        epoch: epoch?,
                        first: first?,
                        observations: Count(count.into()),
                    });
                }
                _ => return None,
            }
        }
        None
    }

    fn read(bytes: &[u8]) -> Result<Self, events::DecodeError> {
        Self::quickly(bytes).map_or_else(|| events::decode(bytes), Ok)
    }
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = rmp::decode::read_str_len(rest).ok()?;
    std::str::from_utf8(cut(rest, length)?).ok()
}

fn cut<'a>(rest: &mut &'a [u8], length: u32) -> Option<&'a [u8]> {
    let (piece, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(piece)
}

impl Cursors {
    /// Up to where an agent's observations are durable.
    #[must_use]
    pub fn of(&self, agent: AgentId) -> Acknowledged {
        self.agents
            .get(&ObservationBatch::agent_writer(agent))
            .map_or_else(Acknowledged::default, |cursor| cursor.durable)
    }

    fn fold(&mut self, head: Head) {
        let Head { writer, epoch, first, observations: Count(count) } = head;
        if !writer.starts_with("agent-") || count == 0 {
            return;
        }
        let last = first.saturating_add(count).saturating_sub(1);
        let cursor = self.agents.entry(writer).or_default();
        if epoch > cursor.durable.epoch {
            *cursor = Cursor { durable: Acknowledged { epoch, sequence: 0 }, early: BTreeMap::new() };
        }
        if epoch == cursor.durable.epoch {
            let early = cursor.early.entry(first).or_default();
            *early = last.max(*early);
            cursor.close_gaps();
        }
    }
}

impl Cursor {
    /// What is durable ends where something is missing: from there on the agent sends it again.
    fn close_gaps(&mut self) {
        while let Some(next) = self.early.first_entry()
            && *next.key() <= self.durable.sequence.saturating_add(1)
        {
            self.durable.sequence = self.durable.sequence.max(next.remove());
        }
    }
}

impl Projection for Cursors {
    const NAME: &'static str = "tunnel-gateway-cursors";
    const FOLD_VERSION: u32 = 2;
    const SNAPSHOT_EVERY: u64 = 10_000;

    fn filter() -> ReadFilter {
        ReadFilter::streams(&[Stream::Observations])
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, record: &Record) {
        match Head::read(&record.bytes) {
            Ok(head) => self.fold(head),
            Err(error) => {
                tracing::error!(sequence = record.sequence, %error, "observation record is not readable here");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use events::observation::{Observation, Observed};
    use events::{OrganizationId, Timestamp};
    use uuid::Uuid;

    use super::*;

    fn agent() -> AgentId {
        AgentId(Uuid::from_u128(1))
    }

    fn record(writer: &str, epoch: u64, first: u64, count: u64) -> Record {
        let observation: Observation = Observation { at: Timestamp(0), what: Observed::Gap { dropped: 1 } };
        let batch = ObservationBatch {
            organization: OrganizationId::SYSTEM,
            writer: writer.to_owned(),
            epoch,
            first,
            observations: (0..count).map(|_| observation.clone()).collect(),
        };
        let bytes = events::encode(&batch).unwrap().into();
        Record::new((Stream::Observations, 0), 1, Timestamp(0), OrganizationId::SYSTEM, bytes)
    }

    fn folded(batches: &[(u64, u64, u64)]) -> Acknowledged {
        let mut cursors = Cursors::start();
        for (epoch, first, count) in batches {
            cursors.apply(&record(&ObservationBatch::agent_writer(agent()), *epoch, *first, *count));
        }
        assert_eq!(Cursors::restore(Cursors::FOLD_VERSION, &cursors.snapshot()), Some(cursors.clone()));
        cursors.of(agent())
    }

    #[test]
    fn batches_doubles_gaps_and_epochs() {
        assert_eq!(folded(&[]), Acknowledged { epoch: 0, sequence: 0 });
        assert_eq!(folded(&[(1, 1, 10), (1, 11, 5)]), Acknowledged { epoch: 1, sequence: 15 });
        assert_eq!(folded(&[(1, 1, 10), (1, 4, 3)]), Acknowledged { epoch: 1, sequence: 10 });
        assert_eq!(folded(&[(1, 1, 10), (1, 9, 4)]), Acknowledged { epoch: 1, sequence: 12 });
        assert_eq!(folded(&[(1, 1, 10), (1, 12, 4)]), Acknowledged { epoch: 1, sequence: 10 });
        assert_eq!(folded(&[(1, 1, 10), (3, 1, 2), (1, 11, 2)]), Acknowledged { epoch: 3, sequence: 2 });
        assert_eq!(folded(&[(3, 2, 2)]), Acknowledged { epoch: 3, sequence: 0 });
    }

    #[test]
    fn what_was_stored_late_closes_the_gap_before_what_was_stored_early() {
        assert_eq!(folded(&[(1, 1, 1), (1, 9, 3), (1, 2, 7)]), Acknowledged { epoch: 1, sequence: 11 });
        assert_eq!(folded(&[(1, 9, 3), (1, 5, 4), (1, 1, 4)]), Acknowledged { epoch: 1, sequence: 11 });
        assert_eq!(folded(&[(1, 9, 3), (1, 9, 1), (1, 1, 8)]), Acknowledged { epoch: 1, sequence: 11 });
        assert_eq!(folded(&[(1, 9, 3), (2, 1, 1), (1, 1, 8)]), Acknowledged { epoch: 2, sequence: 1 });
    }

    #[test]
    fn a_head_is_read_quickly_and_slowly_alike() {
        for (epoch, first, count) in [(0, 1, 1), (1, 127, 15), (300, 128, 16), (u64::MAX, 70_000, 70_000)] {
            let bytes = record("agent-x", epoch, first, count).bytes;
            let (quick, slow) = (Head::quickly(&bytes).unwrap(), events::decode::<Head>(&bytes).unwrap());
            let shown = |head: Head| (head.writer, head.epoch, head.first, head.observations.0);
            assert_eq!(shown(quick), shown(slow));
        }
        assert!(Head::quickly(b"").is_none() && Head::quickly(&[0x81, 0xa1]).is_none());
    }

    #[test]
    fn gateways_have_no_cursor() {
        let mut cursors = Cursors::start();
        cursors.apply(&record("gateway-1", 1, 1, 3));
        assert_eq!(cursors, Cursors::start());
    }
}
