//! Whether a batch may be appended.

use events::desired::Applier;
use events::{InstanceId, Text};
use tunnel::wire::{Acknowledged, Batch};

/// Why a batch is refused. The stream is then closed; the agent starts again from what is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchFault {
    /// Delivery did not name this instance for this epoch.
    #[error("epoch {epoch} is not this instance's: it was named for {named:?}")]
    NotNamed {
        /// Of the batch.
        epoch: u64,
        /// The epoch that the instance was named for, if it was.
        named: Option<u64>,
    },
    /// A later applier has written already.
    #[error("epoch {epoch} is over: {newest} has begun")]
    OldEpoch {
        /// Of the batch.
        epoch: u64,
        /// Of what is durable.
        newest: u64,
    },
    /// Something is missing before it.
    #[error("sequence {first} of epoch {epoch} leaves a gap: {expected} is next")]
    Gap {
        /// Of the batch.
        epoch: u64,
        /// Its first sequence.
        first: u64,
        /// What would follow without a gap.
        expected: u64,
    },
}

/// The part of a batch that is new after `accepted`, if any. `applier` is what delivery answered for this instance.
///
/// # Errors
/// See [`BatchFault`].
pub fn check_batch<S: Text>(
    accepted: Acknowledged,
    applier: Option<Applier>,
    instance: InstanceId,
    mut batch: Batch<S>,
) -> Result<Option<Batch<S>>, BatchFault> {
    let Batch { epoch, first, .. } = batch;
    if epoch < accepted.epoch {
        return Err(BatchFault::OldEpoch { epoch, newest: accepted.epoch });
    }
    let named = applier.filter(|applier| applier.instance == instance).map(|applier| applier.epoch);
    if named != Some(epoch) {
        return Err(BatchFault::NotNamed { epoch, named });
    }
    let durable = if epoch == accepted.epoch { accepted.sequence } else { 0 };
    let expected = durable.saturating_add(1);
    if first > expected || first == 0 {
        return Err(BatchFault::Gap { epoch, first, expected });
    }
    if batch.last() < expected {
        return Ok(None);
    }
    let known = usize::try_from(expected.saturating_sub(first)).unwrap_or(usize::MAX);
    batch.observations.drain(..known.min(batch.observations.len()));
    batch.first = expected;
    Ok(Some(batch))
}

#[cfg(test)]
mod tests {
    use events::Timestamp;
    use events::observation::{Observation, Observed};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const ME: InstanceId = InstanceId(Uuid::from_u128(1));
    const OTHER: InstanceId = InstanceId(Uuid::from_u128(2));

    fn batch(epoch: u64, first: u64, count: u64) -> Batch {
        let observation = |number| Observation { at: Timestamp(number), what: Observed::Gap { dropped: 1 } };
        let last = first + count;
        Batch {
            epoch,
            first,
            observations: (first..last).map(|n| observation(i64::try_from(n).unwrap())).collect(),
        }
    }

    fn named(instance: InstanceId, epoch: u64) -> Option<Applier> {
        Some(Applier { instance, epoch })
    }

    fn at(epoch: u64, sequence: u64) -> Acknowledged {
        Acknowledged { epoch, sequence }
    }

    #[test]
    fn only_the_named_instance_writes_and_only_in_its_epoch() {
        assert!(check_batch(at(0, 0), named(ME, 1), ME, batch(1, 1, 2)).unwrap().is_some());
        for applier in [None, named(OTHER, 1), named(ME, 2)] {
            assert!(matches!(
                check_batch(at(0, 0), applier, ME, batch(1, 1, 2)),
                Err(BatchFault::NotNamed { .. })
            ));
        }
        let late = check_batch(at(3, 9), named(ME, 2), ME, batch(2, 5, 1));
        assert_eq!(late, Err(BatchFault::OldEpoch { epoch: 2, newest: 3 }));
    }

    #[test]
    fn a_new_epoch_begins_at_one() {
        assert_eq!(check_batch(at(1, 50), named(ME, 2), ME, batch(2, 1, 3)).unwrap(), Some(batch(2, 1, 3)));
        let gap = check_batch(at(1, 50), named(ME, 2), ME, batch(2, 51, 1));
        assert_eq!(gap, Err(BatchFault::Gap { epoch: 2, first: 51, expected: 1 }));
        assert!(check_batch(at(1, 50), named(ME, 2), ME, batch(2, 0, 3)).is_err());
    }

    proptest! {
        #[test]
        fn what_is_accepted_follows_without_gap_or_double(
            durable in 0_u64..40,
            batches in proptest::collection::vec((1_u64..60, 1_u64..20), 1..20),
        ) {
            let mut accepted = at(4, durable);
            for (first, count) in batches {
                match check_batch(accepted, named(ME, 4), ME, batch(4, first, count)) {
                    Ok(Some(kept)) => {
                        prop_assert_eq!(kept.first, accepted.sequence + 1);
                        prop_assert_eq!(kept.last(), first + count - 1);
                        prop_assert_eq!(&kept, &batch(4, kept.first, kept.last() + 1 - kept.first));
                        accepted.sequence = kept.last();
                    }
                    Ok(None) => prop_assert!(first + count - 1 <= accepted.sequence),
                    Err(_) => prop_assert!(first > accepted.sequence + 1),
                }
            }
        }
    }
}
