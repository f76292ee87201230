//! One stream: what is stored, what is under way, and how far its replicas are.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use events::Timestamp;
use serde_json::{Map, Value};
use store::jetstream::simulated::{Ack, Extent, Publish, PublishError, Stored};
use tokio::sync::oneshot;

/// Replicas of a stream; the first leads, or whoever is said to.
pub(super) const REPLICAS: usize = 3;

/// An answer to a publish, and whether the connection that asked is told.
pub(super) type Answer = oneshot::Sender<Result<Ack, PublishError>>;

/// A message that the leader proposed to the others.
pub(super) struct Proposal {
    pub(super) message: Publish,
    /// Whom to tell; nobody once another leads.
    pub(super) asked: Option<(u64, u64, Answer)>,
}

/// A replica that does not keep up.
#[derive(Clone, Copy, Default)]
struct Lag {
    until: Duration,
    sequence: u64,
}

/// A leader that does not know that it is none any more.
pub(super) struct PartitionedStream {
    pub(super) until: Duration,
    /// What it knows.
    pub(super) sequence: u64,
    /// Whose connections end there.
    pub(super) conns: Vec<u64>,
}

struct StoredMessage {
    stored: Stored,
    at: Duration,
}

pub(super) struct Stream {
    most_of_subject: Option<usize>,
    republish: Option<(String, String, bool)>,
    window: Duration,
    messages: BTreeMap<u64, StoredMessage>,
    /// Of all messages.
    bytes: u64,
    pub(super) last: u64,
    by_subject: HashMap<String, VecDeque<u64>>,
    ids: HashMap<String, u64>,
    ids_by_age: VecDeque<(Duration, String)>,
    pub(super) proposals: BTreeMap<u64, Proposal>,
    next_proposal: u64,
    last_commit: Duration,
    pub(super) leaderless_until: Duration,
    pub(super) stalled_until: Duration,
    pub(super) parted: Option<PartitionedStream>,
    lags: [Lag; REPLICAS],
}

/// Whether a filter, which may end in `>`, names a subject.
pub(super) fn names(filter: &str, subject: &str) -> bool {
    match filter.strip_suffix('>') {
        Some(before) => subject.starts_with(before) && subject.len() > before.len(),
        None => filter == subject,
    }
}

impl Stream {
    pub(super) fn new(settings: &Map<String, Value>) -> Self {
        let text = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
        let republish = settings.get("republish").and_then(|value| {
            let headers_only = value.get("headers_only").and_then(Value::as_bool).unwrap_or(false);
            Some((text(value, "src")?, text(value, "dest")?, headers_only))
        });
        let most = settings.get("max_msgs_per_subject").and_then(Value::as_i64).unwrap_or(-1);
        let window = settings.get("duplicate_window").and_then(Value::as_u64).unwrap_or(0);
        Self {
            most_of_subject: usize::try_from(most).ok(),
            republish,
            window: Duration::from_nanos(window),
            messages: BTreeMap::new(),
            bytes: 0,
            last: 0,
            by_subject: HashMap::new(),
            ids: HashMap::new(),
            ids_by_age: VecDeque::new(),
            proposals: BTreeMap::new(),
            next_proposal: 0,
            last_commit: Duration::ZERO,
            leaderless_until: Duration::ZERO,
            stalled_until: Duration::ZERO,
            parted: None,
            lags: [Lag::default(); REPLICAS],
        }
    }

    /// Forgets ids that are older than the window.
    pub(super) fn forget_ids(&mut self, now: Duration) {
        while let Some((at, _)) = self.ids_by_age.front()
            && *at + self.window <= now
        {
            if let Some((_, id)) = self.ids_by_age.pop_front() {
                self.ids.remove(&id);
            }
        }
    }

    /// As if the window were over for all that is stored.
    pub(super) fn forget_all_ids(&mut self) -> usize {
        self.ids_by_age.clear();
        let forgotten = self.ids.len();
        self.ids.clear();
        forgotten
    }

    pub(super) fn stored_under(&self, id: &str) -> Option<u64> {
        self.ids.get(id).copied()
    }

    pub(super) fn is_id_under_way(&self, id: &str) -> bool {
        self.proposals.values().any(|proposal| proposal.message.id.as_deref() == Some(id))
    }

    pub(super) fn is_subject_under_way(&self, subject: &str) -> bool {
        self.proposals.values().any(|proposal| proposal.message.subject == subject)
    }

    pub(super) fn last_of(&self, subject: &str) -> u64 {
        self.by_subject.get(subject).and_then(|all| all.back()).copied().unwrap_or(0)
    }

    /// Takes a message up; its number, and when it is to be stored.
    pub(super) fn propose(&mut self, proposal: Proposal, at: Duration) -> (u64, Duration) {
        self.next_proposal += 1;
        self.proposals.insert(self.next_proposal, proposal);
        self.last_commit = at.max(self.last_commit).max(self.stalled_until);
        (self.next_proposal, self.last_commit)
    }

    /// The oldest message under way, unless it came behind that number.
    pub(super) fn next_until(&mut self, number: u64) -> Option<Proposal> {
        let first = self.proposals.first_entry().filter(|first| *first.key() <= number)?;
        Some(first.remove())
    }

    /// Stores a message that most replicas have.
    pub(super) fn store(&mut self, message: Publish, at: Duration, recorded_at: Timestamp) -> Stored {
        self.last += 1;
        let sequence = self.last;
        let Publish { subject, id, payload, .. } = message;
        if let Some(id) = &id {
            self.ids.insert(id.clone(), sequence);
            self.ids_by_age.push_back((at, id.clone()));
        }
        let stored = Stored { subject, sequence, recorded_at, id, payload };
        let of_subject = self.by_subject.entry(stored.subject.clone()).or_default();
        of_subject.push_back(sequence);
        let over = self.most_of_subject.map_or(0, |most| of_subject.len().saturating_sub(most));
        for old in of_subject.drain(..over).collect::<Vec<_>>() {
            self.remove(old);
        }
        self.bytes += stored.payload.len() as u64;
        self.messages.insert(sequence, StoredMessage { stored: stored.clone(), at });
        stored
    }

    /// Under which subject a stored message is sent again, and whether its content goes with it.
    pub(super) fn sent_again(&self, subject: &str) -> Option<(String, bool)> {
        let (from, to, headers_only) = self.republish.as_ref()?;
        let (from, to) = (from.strip_suffix('>')?, to.strip_suffix('>')?);
        Some((format!("{to}{}", subject.strip_prefix(from)?), *headers_only))
    }

    /// The newest message of a subject up to a sequence.
    pub(super) fn newest(&self, subject: &str, up_to: u64) -> Option<Stored> {
        let of_subject = self.by_subject.get(subject)?;
        let sequence = of_subject.iter().rev().find(|sequence| **sequence <= up_to)?;
        self.messages.get(sequence).map(|kept| kept.stored.clone())
    }

    /// Messages from a sequence on, up to another.
    pub(super) fn page(&self, from: u64, up_to: u64, most: usize, filter: Option<&str>) -> Vec<Stored> {
        if from > up_to {
            return Vec::new();
        }
        let found = |kept: &StoredMessage| kept.stored.clone();
        if let Some(of_subject) = filter.and_then(|subject| self.by_subject.get(subject)) {
            let wanted = of_subject.iter().filter(|sequence| (from..=up_to).contains(*sequence));
            return wanted.filter_map(|sequence| self.messages.get(sequence)).take(most).map(found).collect();
        }
        let wanted = self.messages.range(from..=up_to).map(|(_, kept)| kept);
        let wanted = wanted.filter(|kept| filter.is_none_or(|filter| names(filter, &kept.stored.subject)));
        wanted.take(most).map(found).collect()
    }

    /// Up to where a replica has the stream, if it lags behind by so much.
    pub(super) fn visible(&self, replica: usize, now: Duration, behind: Duration) -> u64 {
        let lag = self.lags.get(replica).copied().unwrap_or_default();
        if lag.until > now {
            return lag.sequence.min(self.last);
        }
        let newest = self.messages.values().rev().find(|kept| kept.at + behind <= now);
        newest.map_or(0, |kept| kept.stored.sequence)
    }

    /// A replica gets nothing new for a while; without its disk it begins at the start.
    pub(super) fn lag(&mut self, replica: usize, until: Duration, lost: bool) {
        let sequence = if lost { 0 } else { self.last };
        if let Some(lag) = self.lags.get_mut(replica) {
            *lag = Lag { until, sequence };
        }
    }

    pub(super) fn extent(&self, last: u64) -> Extent {
        let first = self.messages.keys().next().copied();
        Extent {
            first: first.unwrap_or(if self.last > 0 { self.last + 1 } else { 0 }),
            last,
            bytes: self.bytes,
        }
    }

    pub(super) fn purge(&mut self, filter: &str, before: u64) {
        let old: Vec<(u64, String)> = self
            .messages
            .range(..before)
            .filter(|(_, kept)| names(filter, &kept.stored.subject))
            .map(|(sequence, kept)| (*sequence, kept.stored.subject.clone()))
            .collect();
        for (sequence, subject) in old {
            self.remove(sequence);
            if let Some(of_subject) = self.by_subject.get_mut(&subject) {
                of_subject.retain(|known| *known != sequence);
            }
        }
    }

    fn remove(&mut self, sequence: u64) {
        if let Some(kept) = self.messages.remove(&sequence) {
            self.bytes -= kept.stored.payload.len() as u64;
        }
    }

    pub(super) fn holds(&self, bytes: &[u8]) -> bool {
        self.messages.values().any(|kept| kept.stored.payload.windows(bytes.len()).any(|part| part == bytes))
    }

    /// Whether a message is stored under a sequence with that id.
    pub(super) fn has(&self, sequence: u64, id: Option<&str>) -> bool {
        self.messages.get(&sequence).is_some_and(|kept| id.is_none() || kept.stored.id.as_deref() == id)
    }
}
