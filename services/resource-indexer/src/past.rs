//! The index as it was at a moment of the past, made of the history of the objects that are asked about.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use events::position::Stream;
use events::requests::index::{HealthState, Moment};
use events::{AgentId, Position, Refusal, RefusalKind, Timestamp};
use serde_json::Value;

use crate::driver::{Driver, State};
use crate::imported::{ForOneQuestion, Imported};
use crate::model::{
    Declaring, Facts, Groups, Index, Instant, Kind, Link, Matcher, Record, Slot, Text, Verdict, Writer,
    asks_pods, before_imported, options_of, own_verdict, query, verdict_with_pods,
};
use crate::store::{Partitions, Reader, Standing, StoreError};

/// Objects that one question about the past looks at.
const LOOKED_AT: usize = 100_000;

/// What is asked about, and the database as it was then.
pub(crate) struct Scope {
    records: Vec<Arc<Record>>,
    declaring: Declaring,
    /// Judges and relates by what is declared today, and not by what was declared then.
    todays_rules: bool,
    reader: Arc<Reader>,
    /// The environments' rules of today.
    groups: Arc<Groups>,
}

/// The index at a moment.
pub(crate) struct Past {
    pub(crate) index: Index,
    /// The instant at which it was judged.
    pub(crate) judged_at: Timestamp,
    pub(crate) reader: Arc<Reader>,
}

/// Up to where changes count.
struct Until {
    moment: Moment,
    partitions: Partitions,
}

impl Until {
    fn covers(&self, agent: AgentId, recorded_at: Timestamp, sequence: u64) -> bool {
        match &self.moment {
            Moment::Time(time) => recorded_at <= *time,
            Moment::Position(position) => {
                sequence <= position.sequence((Stream::Objects, self.partitions.of(agent)))
            }
        }
    }
}

/// Which objects matter for an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Reach {
    /// All that may be related.
    #[default]
    All,
    /// Those that are named, with what may be related to them.
    Around,
    /// Those that are named, with what they are judged with.
    Named,
}

fn objects_of(index: &Index, agent: AgentId) -> impl Iterator<Item = (Slot, &Record)> {
    let kinds = index.kinds(agent).into_iter().flat_map(|kinds| kinds.values());
    kinds.flat_map(|of_kind| of_kind.values()).filter_map(|slot| Some((*slot, index.get(*slot)?)))
}

/// Whether other objects are judged with it: workloads with their pods and Events, claims with classes of storage.
fn judges_others(record: &Record) -> bool {
    let Kind { group, kind } = &record.kind;
    matches!(
        (&**group, &**kind),
        ("", "Pod" | "Event") | ("apps", "ReplicaSet") | ("storage.k8s.io", "StorageClass")
    )
}

impl Scope {
    /// The objects that a filter means at a moment, with what they are judged or shown with. What is related to an object may be of any
    /// kind and name, in its namespace or in none.
    pub(crate) fn of(
        (matcher, reach): (&Matcher, Reach),
        (moment, todays_rules): (&Moment, bool),
        state: &State,
    ) -> Result<Self, Refusal> {
        check_horizon(moment, matcher.agents(), state)?;
        let mut records = Vec::new();
        for agent in matcher.agents() {
            let index = &state.fold.index;
            if let Some(environments) = matcher.environments() {
                let mut found = index.around(environments, *agent, LOOKED_AT.saturating_add(1));
                if !found.is_empty() {
                    found.extend(query::mesh_wide_policies(index, *agent));
                }
                records.extend(found.into_iter().filter_map(|slot| index.shared(slot)));
                not_too_many(&records)?;
                continue;
            }
            let all = || objects_of(index, *agent);
            let named = all().filter(|(_, record)| matcher.names(record));
            let named: BTreeSet<&Text> = named.map(|(_, record)| &record.namespace).collect();
            let in_place = |record: &Record| {
                let namespace = matcher.namespace();
                namespace.is_none_or(|meant| record.namespace.is_empty() || *meant == record.namespace)
            };
            let found = all().filter(|(_, record)| match reach {
                Reach::All => in_place(record),
                Reach::Around => {
                    record.namespace.is_empty()
                        || named.contains(&record.namespace)
                        || query::is_mesh_wide(record)
                }
                Reach::Named => {
                    matcher.names(record)
                        || (judges_others(record)
                            && (record.namespace.is_empty() || named.contains(&record.namespace)))
                }
            });
            let found = found.take(LOOKED_AT.saturating_add(1));
            records.extend(found.filter_map(|(slot, _)| index.shared(slot)));
            not_too_many(&records)?;
        }
        let declaring = state.fold.index.declaring().clone();
        let (reader, groups) = (Arc::clone(&state.reader), Arc::clone(state.fold.index.groups()));
        Ok(Self { records, declaring, todays_rules, reader, groups })
    }

    /// The index of it at a moment.
    pub(crate) fn at(self, moment: &Moment, imported: &Imported) -> Result<Past, StoreError> {
        let Self { records, declaring, todays_rules, reader, groups } = self;
        let until = Until { moment: moment.clone(), partitions: reader.partitions() };
        let mut then = Vec::new();
        for record in records {
            then.extend(record_at(&reader, record, &until)?);
        }
        let judged_at = match moment {
            Moment::Time(time) => *time,
            Moment::Position(_) => {
                then.iter().map(|then| then.record.changed_at).max().unwrap_or(Timestamp(0))
            }
        };
        let position = match moment {
            Moment::Position(position) => Some(position),
            Moment::Time(_) => None,
        };
        let instant = Instant { time: judged_at, position };
        let declared = if todays_rules { declaring.today.clone() } else { declaring.then(instant) };
        let mut index = Index::with_declarations(declared);
        index.set_groups(groups);
        let mut put: Vec<(Arc<Record>, bool)> = Vec::new();
        for Then { mut record, is_as_now } in then {
            let (today, then) = (declaring.today.get(&record.agent), index.declared(record.agent));
            let is_declared_alike = match (today, then) {
                (Some(today), Some(then)) => Arc::ptr_eq(today, then),
                (today, then) => today.is_none() && then.is_none(),
            };
            let is_as_now = is_as_now && is_declared_alike;
            if !is_as_now {
                let links = links_then(&reader, &index, &record)?;
                Arc::make_mut(&mut record).declared = links;
            }
            put.push((record, is_as_now));
        }
        let (records, are_as_now): (Vec<_>, Vec<bool>) = put.into_iter().unzip();
        let slots = index.put_all(records);
        // What they are judged with is in it by now.
        for (slot, is_as_now) in slots.into_iter().zip(are_as_now) {
            judge(&reader, &mut index, (slot, is_as_now), judged_at)?;
        }
        ask_imported(&reader, &mut index, &imported.for_one_question(), judged_at)?;
        judge_workloads(&mut index, &reader, judged_at);
        Ok(Past { index, judged_at, reader })
    }
}

fn not_too_many(records: &[Arc<Record>]) -> Result<(), Refusal> {
    if records.len() <= LOOKED_AT {
        return Ok(());
    }
    let message = format!(
        "more than {LOOKED_AT} objects are to be looked up in the past: name an agent, a namespace or a kind"
    );
    Err(Refusal::new(RefusalKind::Conflict, message))
}

/// An object as it was.
struct Then {
    record: Arc<Record>,
    /// It has not changed since, and is judged and related as it is now.
    is_as_now: bool,
}

/// An object as it was; `None` where it was not there.
fn record_at(reader: &Reader, record: Arc<Record>, until: &Until) -> Result<Option<Then>, StoreError> {
    let Record { agent, changed_at, sequence, .. } = *record;
    if until.covers(agent, changed_at, sequence) {
        return Ok(record.is_there().then_some(Then { record, is_as_now: true }));
    }
    for change in reader.changes_back(agent, &record.uid, record.changes.saturating_sub(1))? {
        let change = change?;
        if !until.covers(agent, change.recorded_at, change.sequence) {
            continue;
        }
        if change.what.is_end() {
            return Ok(None);
        }
        let body = parsed(reader.body_after(agent, &record.uid, change.number)?);
        let record = Record {
            facts: body.as_ref().map(Facts::of).unwrap_or_default(),
            // That is known of now only.
            digest: None,
            awaits_body: false,
            changed_at: change.recorded_at,
            sequence: change.sequence,
            gone_at: None,
            changes: change.number,
            writer: change.writer.as_ref().map(Writer::of),
            set: None,
            hand: None,
            ..(*record).clone()
        };
        return Ok(Some(Then { record: Arc::new(record), is_as_now: false }));
    }
    Ok(None)
}

/// The links that an object had by the relations that were declared.
fn links_then(reader: &Reader, index: &Index, record: &Record) -> Result<Box<[Link]>, StoreError> {
    let declared = index.declared(record.agent);
    if !declared.is_some_and(|declared| declared.relations.begins_at(&record.kind)) {
        return Ok(Box::default());
    }
    let body = parsed(body_of(reader, record)?);
    Ok(body.map(|body| index.declared_links(record.agent, &record.kind, &body)).unwrap_or_default())
}

/// Judges an object as of then. One that is well now and has not changed since was well then.
fn judge(
    reader: &Reader,
    index: &mut Index,
    (slot, is_as_now): (Slot, bool),
    at: Timestamp,
) -> Result<(), StoreError> {
    if index.get(slot).is_some_and(|record| record.with_pods.is_some()) {
        index.judge_with_pods(slot, None);
    }
    let Some(record) = index.get(slot) else { return Ok(()) };
    let is_well = matches!(record.own.state, HealthState::Healthy | HealthState::None);
    if is_as_now && is_well && record.own.recheck_at.is_none() && !record.own.asks {
        return Ok(());
    }
    let own = match parsed(body_of(reader, record)?) {
        Some(body) => own_verdict(&body, at, &options_of(index, record.agent, &record.kind)),
        None => Verdict::unknown("its body is not known"),
    };
    let own = before_imported(index, (record.agent, &record.kind), own, &Verdict::none());
    index.judge(slot, own);
    Ok(())
}

/// Asks the imported rules of the objects that wait for them.
fn ask_imported(
    reader: &Reader,
    index: &mut Index,
    imported: &ForOneQuestion<'_>,
    at: Timestamp,
) -> Result<(), StoreError> {
    for slot in index.asking(LOOKED_AT) {
        let Some(record) = index.get(slot) else { continue };
        let Some(script) = index.imported_rule(record.agent, &record.kind) else { continue };
        let own = match parsed(body_of(reader, record)?) {
            Some(body) => imported.judge(script, &body, at),
            None => Verdict::unknown("its body is not known"),
        };
        index.judge(slot, own);
    }
    Ok(())
}

/// The body that a record of the past has.
pub(crate) fn body_of(reader: &Reader, record: &Record) -> Result<Option<Bytes>, StoreError> {
    reader.body_after(record.agent, &record.uid, record.changes)
}

pub(crate) fn parsed(body: Option<Bytes>) -> Option<Value> {
    serde_json::from_slice(&body?).ok()
}

fn judge_workloads(index: &mut Index, reader: &Reader, at: Timestamp) {
    let asks = |slot: &Slot| index.get(*slot).is_some_and(asks_pods);
    let open: Vec<Slot> = index.slots().filter(asks).collect();
    for slot in open {
        let body = |record: &Record| parsed(body_of(reader, record).ok()?);
        let verdict = verdict_with_pods(index, slot, at, &body);
        index.judge_with_pods(slot, verdict);
    }
}

/// Refuses a moment of which not all is known any more, of the clusters that are asked about.
fn check_horizon(moment: &Moment, agents: &[AgentId], state: &State) -> Result<(), Refusal> {
    let Standing { horizon, base, .. } = &state.standing;
    let partitions = state.reader.partitions();
    let before = match moment {
        Moment::Time(time) => horizon.is_some_and(|horizon| *time < horizon).then(|| time.to_string()),
        Moment::Position(position) => {
            let shards = agents.iter().map(|agent| (Stream::Objects, partitions.of(*agent)));
            let mut left = shards.filter(|shard| position.sequence(*shard) < base.sequence(*shard));
            left.next().map(|_| "this position".to_owned())
        }
    };
    let Some(before) = before else { return Ok(()) };
    let horizon = horizon.map_or_else(|| "the log's horizon".to_owned(), |at| format!("the horizon, {at}"));
    let message = format!("{before} is before {horizon}: what was before that is not known any more");
    Err(Refusal::invalid("at", message))
}

impl Driver {
    /// Refuses a moment that is not past, and a position that says nothing of objects.
    pub(crate) fn check_moment(&self, moment: &Moment) -> Result<(), Refusal> {
        match moment {
            Moment::Time(time) if *time > self.now() => {
                Err(Refusal::invalid("at", format!("{time} is in the future")))
            }
            Moment::Position(position) if position.in_streams(&[Stream::Objects]) == Position::start() => {
                let message = "this position says nothing of objects: give the position of an answer about objects, of an event of the stream objects, or a time";
                Err(Refusal::invalid("at", message))
            }
            _ => Ok(()),
        }
    }

    /// Waits until a position of the past is folded.
    pub(crate) async fn reaches(&self, moment: &Moment) -> Result<(), Refusal> {
        match moment {
            Moment::Time(_) => Ok(()),
            Moment::Position(position) => self.covers(position).await,
        }
    }
}
