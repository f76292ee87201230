//! Programs outside that are sent events by webhooks: what each does with them, and what must hold of what it is sent.

mod front;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use events::export::{EventFilter, GAP};
use events::{CloudEvent, OrganizationId};
use parking_lot::Mutex;
use world::World;

use crate::executor::{Executor, hash_of};
use crate::exports::Exported;
use crate::faults::Kind;
use crate::run::Flaw;

/// The port of the first one.
const FIRST_PORT: u16 = 9001;
/// Of so many events a choosy one does not want one, of all at most so many: it takes a minute until one is given up.
const UNWANTED: u64 = 12;
const MOST_UNWANTED: usize = 2;
/// In a world without faults an event is at a receiver that takes it within this time, whatever becomes of others.
pub(crate) const PROMPT: Duration = Duration::from_secs(30);

/// A receiver, and which events it is to be sent.
pub(crate) struct Receiver {
    /// The name of its subscription.
    pub(crate) name: &'static str,
    pub(crate) types: &'static [&'static str],
}

/// The one that takes everything, the one that is in trouble while nothing else goes wrong, and the one that does not want everything.
pub(crate) const RECEIVERS: [Receiver; 3] = [
    Receiver { name: "prompt", types: &[] },
    Receiver { name: "troubled", types: &["kasbah.sync.*", "kasbah.configuration.*"] },
    Receiver { name: "choosy", types: &["kasbah.token.*", "kasbah.source.*"] },
];
const PROMPT_ONE: usize = 0;
const TROUBLED_ONE: usize = 1;
const CHOOSY_ONE: usize = 2;

/// What may be wrong with a receiver.
const TROUBLES: [Kind; 3] = [Kind::ReceiverAway, Kind::ReceiverErrors, Kind::ReceiverSilent];

/// What a receiver does with a message.
enum Reaction {
    Takes,
    /// It takes it, and its answer is lost.
    TakesUnheard,
    /// Somebody else says that it took it.
    NeverHears,
    DoesNotWantIt,
    AnswersWithErrors,
    IsSilent,
}

#[derive(Default)]
struct Known {
    /// Whose events it is sent, since it subscribed.
    organization: Option<OrganizationId>,
    filter: EventFilter,
    /// What is wrong with it, and until when.
    trouble: Option<(Kind, Duration)>,
    has: BTreeSet<String>,
    /// The number of the last event of each subject.
    reached: BTreeMap<String, u64>,
    unwanted: BTreeSet<String>,
    /// Numbers of events that it was told it misses.
    missed: Vec<(u64, u64)>,
    dead_letters: BTreeSet<String>,
    /// It has all exports before this place that it wants.
    whole: usize,
}

struct State {
    known: Vec<Known>,
    answers_to_lose: u64,
    fired: BTreeMap<Kind, u64>,
    violations: Vec<String>,
}

/// All receivers; cheap to clone.
#[derive(Clone)]
pub(crate) struct Receivers {
    executor: Executor,
    flaw: Option<Flaw>,
    state: Arc<Mutex<State>>,
}

/// The port of a receiver.
pub(crate) fn port_of(number: usize) -> u16 {
    FIRST_PORT.saturating_add(u16::try_from(number).unwrap_or(u16::MAX))
}

/// Whether a receiver has this port.
pub(crate) fn is_port(port: u16) -> bool {
    (0..RECEIVERS.len()).any(|number| port_of(number) == port)
}

impl Receivers {
    pub(crate) fn new(executor: &Executor, flaw: Option<Flaw>) -> Self {
        let known = RECEIVERS.iter().map(|_| Known::default()).collect();
        let state = State { known, answers_to_lose: 0, fired: BTreeMap::new(), violations: Vec::new() };
        Self { executor: executor.clone(), flaw, state: Arc::new(Mutex::new(state)) }
    }

    /// One of them listens, as a process of its own.
    pub(crate) fn listen(&self, number: usize, world: &World) {
        front::listen(self.clone(), number, world.clone());
    }

    /// A receiver is to be sent events from the first one on.
    pub(crate) fn subscribed(&self, number: usize, organization: OrganizationId, filter: EventFilter) {
        if let Some(known) = self.state.lock().known.get_mut(number) {
            (known.organization, known.filter) = (Some(organization), filter);
        }
    }

    /// One of them is in trouble for a while.
    pub(crate) fn trouble(&self, kind: Kind, time: Duration) {
        let number = self.executor.roll(|dice| dice.index(RECEIVERS.len()));
        self.begin(number, kind, self.executor.now() + time);
    }

    fn begin(&self, number: usize, kind: Kind, until: Duration) {
        if let Some(known) = self.state.lock().known.get_mut(number) {
            known.trouble = Some((kind, until));
        }
    }

    /// All are well but for one, which is in trouble until all are well.
    pub(crate) fn keep_one_in_trouble(&self) {
        self.heal();
        let kind = self.executor.roll(|dice| dice.one_of(&TROUBLES).copied());
        kind.into_iter().for_each(|kind| self.begin(TROUBLED_ONE, kind, Duration::MAX));
    }

    /// All are well.
    pub(crate) fn heal(&self) {
        let mut state = self.state.lock();
        state.answers_to_lose = 0;
        state.known.iter_mut().for_each(|known| known.trouble = None);
    }

    /// Some of the next answers are lost.
    pub(crate) fn lose_answers(&self, count: u64) {
        self.state.lock().answers_to_lose += count;
    }

    /// How often each fault took effect.
    pub(crate) fn fired(&self) -> BTreeMap<Kind, u64> {
        self.state.lock().fired.clone()
    }

    /// The first thing that does not hold.
    pub(crate) fn violation(&self) -> Option<String> {
        self.state.lock().violations.first().cloned()
    }

    /// What is wrong with a receiver now; it counts if somebody meets it.
    fn trouble_of(&self, number: usize) -> Option<Kind> {
        let now = self.executor.now();
        let (kind, _) = self.state.lock().known.get(number)?.trouble.filter(|(_, until)| *until > now)?;
        Some(kind)
    }

    fn met(&self, kind: Kind) {
        *self.state.lock().fired.entry(kind).or_default() += 1;
    }

    /// Whether connections to a receiver are not taken at all.
    fn is_closed(&self, number: usize) -> bool {
        let is_shared = self.flaw == Some(Flaw::SharesTheWay);
        let is_held_up = is_shared && (0..RECEIVERS.len()).any(|other| self.trouble_of(other).is_some());
        let is_away = self.trouble_of(number) == Some(Kind::ReceiverAway);
        if is_away {
            self.met(Kind::ReceiverAway);
        }
        is_away || is_held_up
    }

    fn react(&self, number: usize, event: &CloudEvent) -> Reaction {
        if let Some(kind) = self.trouble_of(number).filter(|kind| *kind != Kind::ReceiverAway) {
            self.met(kind);
            return if kind == Kind::ReceiverSilent {
                Reaction::IsSilent
            } else {
                Reaction::AnswersWithErrors
            };
        }
        if self.flaw == Some(Flaw::AnswersForReceivers) && self.executor.roll(|dice| dice.permille(20)) {
            return Reaction::NeverHears;
        }
        let mut state = self.state.lock();
        let loses = state.answers_to_lose > 0;
        let Some(known) = state.known.get_mut(number) else { return Reaction::NeverHears };
        if number == CHOOSY_ONE && known.does_not_want(event) {
            return Reaction::DoesNotWantIt;
        }
        if let Err(violation) = known.take(event) {
            state.violations.push(format!("{}: {violation}", name_of(number)));
        }
        if !loses {
            return Reaction::Takes;
        }
        state.answers_to_lose -= 1;
        *state.fired.entry(Kind::ReceiverAnswerLost).or_default() += 1;
        Reaction::TakesUnheard
    }

    fn violated(&self, number: usize, violation: String) {
        self.state.lock().violations.push(format!("{}: {violation}", name_of(number)));
    }

    /// What the relay gave up on the way to a receiver. Nothing else may be.
    pub(crate) fn dead_letters(&self, number: usize, ids: impl Iterator<Item = String>) {
        let mut state = self.state.lock();
        let Some(known) = state.known.get_mut(number) else { return };
        known.dead_letters = ids.collect();
        let given_up = known.dead_letters.difference(&known.unwanted).next();
        if let Some(violation) =
            given_up.map(|id| format!("{}: {id} is a dead letter, and was never refused", name_of(number)))
        {
            state.violations.push(violation);
        }
    }

    /// An export that a receiver was to get and did not, of those that were stored until then.
    pub(crate) fn lacks(&self, number: usize, exports: &[Exported], until: Duration) -> Option<String> {
        let mut state = self.state.lock();
        let known = state.known.get_mut(number)?;
        while exports.get(known.whole).is_some_and(|exported| !known.waits_for(exported)) {
            known.whole += 1;
        }
        let exported = exports.get(known.whole).filter(|exported| exported.at <= until)?;
        let CloudEvent { id, event_type, exportsequence, .. } = &exported.event;
        let number_of = exportsequence.unwrap_or_default();
        Some(format!("{} has not got export {number_of}, {event_type} {id}", name_of(number)))
    }

    /// The same of the one that takes everything.
    pub(crate) fn prompt_one_lacks(&self, exports: &[Exported], until: Duration) -> Option<String> {
        self.lacks(PROMPT_ONE, exports, until)
    }
}

fn name_of(number: usize) -> &'static str {
    RECEIVERS.get(number).map_or("nobody", |receiver| receiver.name)
}

impl Known {
    fn does_not_want(&mut self, event: &CloudEvent) -> bool {
        let is_new = hash_of(&event.id).is_multiple_of(UNWANTED) && self.unwanted.len() < MOST_UNWANTED;
        if is_new && !self.has.contains(&event.id) {
            self.unwanted.insert(event.id.clone());
        }
        self.unwanted.contains(&event.id)
    }

    /// Takes an event: of each subject in their order, and as often as it comes.
    fn take(&mut self, event: &CloudEvent) -> Result<(), String> {
        let number = event.exportsequence.unwrap_or_default();
        if event.event_type == GAP {
            let end = |name: &str| event.data.get(name).and_then(serde_json::Value::as_u64);
            let missed = end("first").zip(end("last")).ok_or("a gap does not say what is missing")?;
            self.missed.push(missed);
            return Ok(());
        }
        if !self.filter.wants(event) {
            return Err(format!("it is sent a {} that it does not want", event.event_type));
        }
        if !self.has.insert(event.id.clone()) {
            return Ok(());
        }
        let last = self.reached.insert(event.subject.clone(), number);
        match last.filter(|last| *last > number) {
            Some(last) => Err(format!("it is sent export {number} of {} after {last}", event.subject)),
            None => Ok(()),
        }
    }

    /// Whether it is to get an export, and has neither that nor the word that it does not.
    fn waits_for(&self, exported: &Exported) -> bool {
        let CloudEvent { id, exportsequence, .. } = &exported.event;
        let number = exportsequence.unwrap_or_default();
        self.organization == Some(exported.organization)
            && self.filter.wants(&exported.event)
            && !self.has.contains(id)
            && !self.dead_letters.contains(id)
            && !self.missed.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }
}
