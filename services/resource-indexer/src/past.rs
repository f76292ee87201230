//! The index as it was at a moment of the past, made of the history of the objects that are asked about.

mod bodies;
mod kept;
mod then;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use events::position::Stream;
use events::requests::index::{HealthState, Moment, ObjectFilter};
use events::{AgentId, Position, Refusal, RefusalKind, Timestamp};
use serde_json::Value;

use crate::driver::{Driver, State};
use crate::imported::{ForOneQuestion, Imported};
use crate::model::{
    Declarations, Declaring, Groups, Index, Instant, Kind, Matcher, OfKind, Record, Rights, Slot, Text,
    Verdict, query,
};
use crate::store::{Reader, Standing, StoreError};
pub(crate) use kept::Moments;
use then::Until;

/// Objects that one question about the past looks at.
const LOOKED_AT: usize = 100_000;

/// What a moment is made of, besides the history of the objects.
pub(crate) struct Scope {
    /// The objects as they are.
    records: Vec<Arc<Record>>,
    declaring: Declaring,
    /// Judges and relates by what is declared today, and not by what was declared then.
    todays_rules: bool,
    /// The environments' rules of today.
    groups: Arc<Groups>,
}

/// The index at a moment.
pub(crate) struct Past {
    pub(crate) judged: Arc<Judged>,
    pub(crate) reader: Arc<Reader>,
}

/// Objects as they were, and how.
pub(crate) struct Judged {
    pub(crate) index: Index,
    /// The instant at which they were judged.
    pub(crate) at: Timestamp,
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
    kinds.flat_map(OfKind::slots).filter_map(|slot| Some((slot, index.get(slot)?)))
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
        let mut records: Vec<Arc<Record>> = Vec::new();
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
        let groups = Arc::clone(state.fold.index.groups());
        Ok(Self { records, declaring, todays_rules, groups })
    }

    /// Whether the same comes of another one: objects are shared until they change.
    fn is(&self, other: &Self) -> bool {
        let are_same = |left: &[Arc<Record>], right: &[Arc<Record>]| {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| Arc::ptr_eq(left, right))
        };
        self.todays_rules == other.todays_rules
            && Arc::ptr_eq(&self.groups, &other.groups)
            && self.declaring.is(&other.declaring)
            && are_same(&self.records, &other.records)
    }

    /// The index of it at a moment, and whether another question would be answered with the same: what imported rules did not say in time is
    /// asked again.
    fn at(
        &self,
        moment: &Moment,
        reader: &Reader,
        imported: &Imported,
    ) -> Result<(Judged, bool), StoreError> {
        let until = Until { moment: moment.clone(), partitions: reader.partitions() };
        // In which order the index came to know the objects is no part of the answer.
        let mut records: Vec<&Arc<Record>> = self.records.iter().collect();
        records.sort_by(|left, right| place_of(left).cmp(&place_of(right)));
        let then = then::found_then(reader, &records, &until)?;
        let at = match moment {
            Moment::Time(time) => *time,
            Moment::Position(_) => then.iter().map(then::Then::changed_at).max().unwrap_or(Timestamp(0)),
        };
        let mut index = Index::of_a_moment(self.declared(moment, at));
        index.set_groups(Arc::clone(&self.groups));
        then::put_then(reader, &mut index, (then, &self.declaring), at)?;
        let is_final = ask_imported(reader, &mut index, &imported.for_one_question(), at)?;
        bodies::judge_workloads(&mut index, reader, at);
        Ok((Judged { index, at }, is_final))
    }

    /// By what the moment is judged.
    fn declared(&self, moment: &Moment, time: Timestamp) -> Declarations {
        if self.todays_rules {
            return self.declaring.today.clone();
        }
        let position = match moment {
            Moment::Position(position) => Some(position),
            Moment::Time(_) => None,
        };
        self.declaring.then(Instant { time, position })
    }
}

/// Where an object stands among all.
fn place_of(record: &Record) -> (AgentId, &Kind, [&Text; 3]) {
    (record.agent, &record.kind, [&record.namespace, &record.name, &record.uid])
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

/// Asks the imported rules of the objects that wait for them; says whether all of them answered.
fn ask_imported(
    reader: &Reader,
    index: &mut Index,
    imported: &ForOneQuestion<'_>,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let mut is_final = true;
    for slot in index.asking(LOOKED_AT) {
        let Some(record) = index.get(slot) else { continue };
        let Some(script) = index.imported_rule(record.agent, &record.kind) else { continue };
        let own = match parsed(body_of(reader, record)?) {
            Some(body) => imported.judge(script, &body, at),
            None => Verdict::unknown("its body is not known"),
        };
        is_final &= own.state != HealthState::Unknown;
        index.judge(slot, own);
    }
    Ok(is_final)
}

/// The body that a record of the past has.
pub(crate) fn body_of(reader: &Reader, record: &Record) -> Result<Option<Bytes>, StoreError> {
    reader.body_after(record.agent, &record.uid, record.changes())
}

pub(crate) fn parsed(body: Option<Bytes>) -> Option<Value> {
    serde_json::from_slice(&body?).ok()
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
    /// The index as it was at a moment, of what a filter means. Folding waits while the objects are looked up, and not while they are
    /// turned back.
    pub(crate) fn then(
        &self,
        rights: &Rights,
        (filter, reach): (&ObjectFilter, Reach),
        (moment, todays_rules): (&Moment, bool),
    ) -> Result<Past, Refusal> {
        let (scope, reader) = self.look(rights, |view, state| {
            let matcher = Matcher::read(filter, view)?;
            let scope = Scope::of((&matcher, reach), (moment, todays_rules), state)?;
            Ok((scope, Arc::clone(&state.reader)))
        })?;
        let now = self.deps.world.clock.monotonic();
        if let Some(judged) = self.moments.get(&scope, moment, now) {
            return Ok(Past { judged, reader });
        }
        let made = scope.at(moment, &reader, &self.imported);
        let (judged, is_final) = made.map_err(|error| self.broken(&error))?;
        let judged = Arc::new(judged);
        if is_final {
            self.moments.keep(scope, moment, &judged, now);
        }
        Ok(Past { judged, reader })
    }

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
