use events::{
    Actor, CorrelationId, EventId, NewEvent, RefusalKind, Timestamp,
    directory::{AgentDeleted, DirectoryEvent},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use events::ChainHash;

use super::*;
use crate::log::NewCommit;
use crate::model::{Heads, ReadSet};
use crate::projection::Projection;
use crate::reading::{Committed, Fact};

const ORGANIZATION: OrganizationId = OrganizationId(Uuid::from_u128(1));

/// Counts commits of one organization, and takes as many as `LIMIT`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Counter<const LIMIT: u64> {
    versions: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Count {
    id: String,
    /// How many commits there are of all aggregates, as the decision saw it.
    in_all: u64,
}

fn event() -> Event {
    DirectoryEvent::AgentDeleted(AgentDeleted { agent: events::AgentId(Uuid::nil()) }).into()
}

impl<const LIMIT: u64> Projection for Counter<LIMIT> {
    const NAME: &'static str = "counter";
    const FOLD_VERSION: u32 = 1;
    const SNAPSHOT_EVERY: u64 = 10;

    type Event = Event;

    fn filter() -> ReadFilter {
        ReadFilter::decisions(&[AggregateKind::Agent])
    }

    fn start() -> Self {
        Self::default()
    }

    fn apply(&mut self, fact: Fact<'_, Event>) {
        let Fact::Commit(Committed { commit, .. }) = fact else { panic!("decisions only") };
        self.versions.insert(commit.aggregate.id.clone(), commit.version);
    }
}

impl<const LIMIT: u64> Decides for Counter<LIMIT> {
    const DECIDES: &'static [AggregateKind] = &[AggregateKind::Agent];

    type Given = Count;

    fn make(&self, given: &Count) -> Result<Option<Draft>, Refusal> {
        let in_all: u64 = self.versions.values().sum();
        if in_all != given.in_all {
            return Err(Refusal::new(RefusalKind::Conflict, format!("{in_all}, not {}", given.in_all)));
        }
        let aggregate = AggregateRef::new(AggregateKind::Agent, &given.id);
        let expected = self.version_of(ORGANIZATION, &aggregate);
        let draft = Draft { organization: ORGANIZATION, aggregate, expected, events: vec![event()] };
        Ok((expected < LIMIT).then_some(draft))
    }

    fn read_set(&self, _: &Count) -> ReadSet {
        ReadSet::decisions_of(ORGANIZATION)
    }

    fn version_of(&self, _: OrganizationId, aggregate: &AggregateRef) -> u64 {
        self.versions.get(&aggregate.id).copied().unwrap_or(0)
    }

    fn describe(&self, _: OrganizationId, aggregate: &AggregateRef) -> Option<String> {
        self.versions.get(&aggregate.id).map(ToString::to_string)
    }
}

/// Replicas that decide, and the log that they share.
#[derive(Default)]
struct Given {
    records: Vec<Record>,
    heads: BTreeMap<String, ChainHash>,
}

impl Given {
    /// Decides on the first `seen` records, as a replica that is behind would.
    fn decided(&mut self, id: &str, seen: usize) {
        let mut state = Counter::<100>::start();
        let mut heads = Heads::default();
        for record in &self.records[..seen] {
            heads.advance(record).unwrap();
            state.fold(record);
        }
        let given = Count { id: id.to_owned(), in_all: seen as u64 };
        let draft = state.make(&given).unwrap().unwrap();
        let grounds =
            heads.grounds(&given, state.read_set(&given), ORGANIZATION, &draft.aggregate, Vec::new).unwrap();
        self.appended(draft, Some(grounds));
    }

    fn appended(&mut self, draft: Draft, grounds: Option<Grounds>) {
        let sequence = self.records.len() as u64 + 1;
        let previous = self.heads.get(&draft.aggregate.id).copied().unwrap_or_default();
        let id = draft.aggregate.id.clone();
        let commit = NewCommit {
            id: CommitId(Uuid::from_u128(100 + u128::from(sequence))),
            organization: ORGANIZATION,
            aggregate: draft.aggregate,
            expected: draft.expected,
            actor: Actor::service("test"),
            correlation_id: CorrelationId(Uuid::nil()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(1),
            command: None,
            grounds,
            events: vec![NewEvent { id: EventId(Uuid::nil()), body: event().encode().unwrap() }],
        };
        let bytes = commit.encode(previous).unwrap();
        self.heads.insert(id, ChainHash::of(&bytes));
        let shard = (Stream::Decisions, 0);
        self.records.push(Record::new(shard, sequence, Timestamp(1), ORGANIZATION, bytes.into()));
    }

    fn again<P: Decides>(&self) -> Vec<Redecided> {
        again::<P>(self.records.iter().cloned())
    }
}

fn again<P: Decides>(records: impl IntoIterator<Item = Record>) -> Vec<Redecided> {
    let mut recorded = Recorded::default();
    records.into_iter().for_each(|record| recorded.add(record));
    let mut all = Vec::new();
    Model::of::<P>().redecide(&recorded, &mut |_, _, remade| all.push(remade));
    all
}

/// Two replicas; the second one is behind, and goes on being so.
fn two_replicas() -> Given {
    let mut given = Given::default();
    given.decided("a", 0);
    given.decided("b", 0);
    given.decided("a", 2);
    given.decided("b", 2);
    given.decided("c", 1);
    given.decided("a", 5);
    given
}

#[test]
fn each_decision_comes_out_the_same_on_the_state_that_it_was_made_on() {
    assert_eq!(two_replicas().again::<Counter<100>>(), vec![Redecided::Same; 6]);
}

#[test]
fn a_model_that_decides_otherwise_is_found_out() {
    let remade = two_replicas().again::<Counter<2>>();
    assert_eq!(remade[..5], vec![Redecided::Same; 5], "as far as both decide the same");
    let Redecided::Differs { recorded, made } = &remade[5] else { panic!("{:?}", remade[5]) };
    assert_eq!((recorded.len(), &**made), (1, &Ok(None)));
}

#[test]
fn a_decision_without_grounds_is_counted_and_folded_all_the_same() {
    let mut given = two_replicas();
    let aggregate = AggregateRef::new(AggregateKind::Agent, "c");
    let draft = Draft { organization: ORGANIZATION, aggregate, expected: 1, events: vec![event()] };
    given.appended(draft, None);
    given.decided("c", 7);
    let remade = given.again::<Counter<100>>();
    assert_eq!((&remade[6], &remade[7]), (&Redecided::WithoutGrounds, &Redecided::Same));
}

#[test]
fn what_a_decision_was_made_on_must_be_there() {
    let given = two_replicas();
    let without_the_first = again::<Counter<100>>(given.records[1..].iter().cloned());
    let missing = |remade: &Redecided| matches!(remade, Redecided::NotHere { .. });
    let found: Vec<bool> = without_the_first.iter().map(missing).collect();
    assert_eq!(found, [false, true, true, true, true], "b was decided on nothing");
    let without_one = [0, 1, 3, 4, 5].map(|index| given.records[index].clone());
    let found: Vec<bool> = again::<Counter<100>>(without_one).iter().map(missing).collect();
    assert_eq!(found, [false, false, false, false, true], "only the last one saw what is missing");
}

#[test]
fn a_state_is_shown_step_by_step() {
    let given = two_replicas();
    let mut fold = Model::of::<Counter<100>>().start();
    let aggregate = AggregateRef::new(AggregateKind::Agent, "a");
    let mut seen = Vec::new();
    for record in &given.records {
        fold.apply(record);
        seen.push(fold.describe(ORGANIZATION, &aggregate).unwrap());
    }
    assert_eq!(seen, ["1", "1", "2", "2", "2", "3"]);
}

#[test]
fn state_is_shown_as_yaml_whatever_its_keys_are() {
    #[derive(serde::Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Key {
        kind: &'static str,
        name: &'static str,
    }
    #[derive(serde::Serialize)]
    struct State {
        suspended: Option<&'static str>,
        message: String,
        owned: BTreeMap<Key, u8>,
        by: BTreeMap<OrganizationId, (u64, u64)>,
    }
    let message = "long words ".repeat(20);
    let state = State {
        suspended: None,
        message: message.clone(),
        owned: BTreeMap::from([(Key { kind: "Pod", name: "web" }, 7)]),
        by: BTreeMap::from([(ORGANIZATION, (1, 2))]),
    };
    let shown = yaml(&state);
    for line in
        ["suspended: null", "kind: Pod", "name: web", &message.trim_end()[..100], &ORGANIZATION.to_string()]
    {
        assert!(shown.lines().any(|shown| shown.contains(line)), "{line} is not in\n{shown}");
    }
}
