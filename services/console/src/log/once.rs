//! Observations once each: what was stored while its gateway died, unheard by the agent, the next gateway stores again.

use std::collections::BTreeMap;

use events::CloudEvent;

/// Which observations were said. Nothing but observations is ever twice in the log.
#[derive(Debug, Default)]
pub struct Once {
    /// Runs of sequences that leave no gap, by writer and epoch: the last of each by its first.
    said: BTreeMap<String, BTreeMap<u64, BTreeMap<u64, u64>>>,
}

impl Once {
    /// Whether this event was not said before, by this reader; from now on it was.
    pub fn is_new(&mut self, event: &CloudEvent) -> bool {
        let Some((writer, epoch, sequence)) = observation(event) else { return true };
        if !self.said.contains_key(writer) {
            self.said.insert(writer.to_owned(), BTreeMap::new());
        }
        let Some(epochs) = self.said.get_mut(writer) else { return true };
        let runs = epochs.entry(epoch).or_default();
        let before = runs.range(..=sequence).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| sequence <= last) {
            return false;
        }
        let follows = before.filter(|(_, last)| last.saturating_add(1) == sequence);
        let behind = sequence.checked_add(1).and_then(|next| runs.remove(&next));
        runs.insert(follows.map_or(sequence, |(first, _)| first), behind.unwrap_or(sequence));
        true
    }
}

/// Writer, epoch and sequence of an observation: its id.
fn observation(event: &CloudEvent) -> Option<(&str, u64, u64)> {
    let numbers = event.id.strip_prefix(event.subject.as_str())?.strip_prefix('/')?;
    let (epoch, sequence) = numbers.split_once('/')?;
    Some((&event.subject, epoch.parse().ok()?, sequence.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn observed(writer: u8, epoch: u64, sequence: u64) -> CloudEvent {
        CloudEvent {
            specversion: "1.0".to_owned(),
            id: format!("agent-{writer}/{epoch}/{sequence}"),
            source: String::new(),
            event_type: "kasbah.observed.gap".to_owned(),
            subject: format!("agent-{writer}"),
            time: events::Timestamp(0),
            datacontenttype: String::new(),
            actor: None,
            correlationid: None,
            causationid: None,
            traceparent: None,
            schemaversion: None,
            aggregateversion: None,
            recordedat: events::Timestamp(0),
            project: None,
            agent: None,
            environment: None,
            exportlog: None,
            exportsequence: None,
            exportrun: None,
            position: None,
            data: serde_json::Value::Null,
        }
    }

    proptest! {
        #[test]
        fn each_is_new_once(seen in prop::collection::vec((0_u8..3, 1_u64..3, 1_u64..20), 0..200)) {
            let (mut once, mut before) = (Once::default(), BTreeSet::new());
            for (writer, epoch, sequence) in seen {
                let is_new = once.is_new(&observed(writer, epoch, sequence));
                prop_assert_eq!(is_new, before.insert((writer, epoch, sequence)));
            }
            for runs in once.said.values().flat_map(BTreeMap::values) {
                let joined = runs.values().any(|last| runs.contains_key(&(last + 1)));
                prop_assert!(!joined, "runs that touch are one: {:?}", runs);
            }
        }
    }

    #[test]
    fn what_is_no_observation_is_always_new() {
        let mut once = Once::default();
        let event = CloudEvent { id: "01a2".to_owned(), ..observed(1, 1, 1) };
        assert!(once.is_new(&event) && once.is_new(&event));
    }
}
