//! The head of a batch: by whom it is and how many observations it holds, without a look at them.

use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::DecodeError;

/// Head of an [`super::ObservationBatch`]. What is not known here counts as all else does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchHead {
    /// By whom.
    pub writer: String,
    /// The writer's epoch.
    pub epoch: u64,
    /// Sequence of the first observation.
    pub first: u64,
    /// How many observations there are.
    pub count: u64,
}

#[derive(Deserialize)]
struct Slow {
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

impl BatchHead {
    /// Reads the head of a record.
    ///
    /// # Errors
    /// When the bytes are no batch.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::quickly(bytes).map_or_else(|| Self::slowly(bytes), Ok)
    }

    /// Reads a record as it is written here, without a look at the observations: replays are long.
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
                    let count = rmp::decode::read_array_len(rest).ok()?.into();
                    return Some(Self { writer: writer?, epoch: epoch?, first: first?, count });
                }
                _ => return None,
            }
        }
        None
    }

    fn slowly(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Slow { writer, epoch, first, observations: Count(count) } = crate::decode(bytes)?;
        Ok(Self { writer, epoch, first, count })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Observation, ObservationBatch, Observed};
    use crate::{OrganizationId, Timestamp};

    #[test]
    fn a_head_is_read_quickly_and_slowly_alike() {
        for (epoch, first, count) in [(0, 1, 1), (1, 127, 15), (300, 128, 16), (u64::MAX, 70_000, 70_000)] {
            let observation: Observation =
                Observation { at: Timestamp(0), what: Observed::Gap { dropped: 1 } };
            let (organization, writer) = (OrganizationId::SYSTEM, "agent-x".to_owned());
            let observations = (0..count).map(|_| observation.clone()).collect();
            let batch = ObservationBatch { organization, writer, epoch, first, observations };
            let bytes = crate::encode(&batch).unwrap();
            let expected = BatchHead { writer: "agent-x".to_owned(), epoch, first, count };
            assert_eq!(BatchHead::quickly(&bytes), Some(expected.clone()));
            assert_eq!(BatchHead::slowly(&bytes), Ok(expected));
        }
        assert!(BatchHead::quickly(b"").is_none() && BatchHead::quickly(&[0x81, 0xa1]).is_none());
    }
}
