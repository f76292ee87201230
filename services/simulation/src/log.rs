//! A cluster of JetStream servers for the log: what the store expects of the real one, and what that may do to it.

mod client;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use events::Timestamp;
use parking_lot::Mutex;
use store::jetstream::simulated::{Ack, Live, Publish, PublishError, Server, Stored, streams};
use tokio::sync::{mpsc, watch};

use crate::audit::Audit;
use crate::executor::{Executor, Life, NodeId};
use crate::faults::Kind;
use crate::process::wall_millis;
use crate::run::Flaw;
use client::Client;
use stream::{Answer, PartitionedStream, Proposal, REPLICAS, Stream, names};

/// The process whose clock the servers have.
pub const SERVERS: Life = Life { node: NodeId(usize::MAX), incarnation: 0 };

struct Conn {
    life: Life,
    connected: bool,
    epoch: u64,
    last_up: Duration,
    last_down: Duration,
    interruptions: watch::Sender<u64>,
}

struct Listener {
    conn: u64,
    filter: String,
    to: mpsc::Sender<Live>,
}

struct State {
    streams: BTreeMap<String, Stream>,
    conns: BTreeMap<u64, Conn>,
    listeners: BTreeMap<u64, Listener>,
    next: u64,
    /// What will happen to messages, and to how many.
    due: BTreeMap<Kind, u32>,
    fired: BTreeMap<&'static str, u64>,
    audit: Audit,
}

/// The servers; cheap to clone.
#[derive(Clone)]
pub struct LogServers {
    executor: Executor,
    flaw: Option<Flaw>,
    state: Arc<Mutex<State>>,
}

impl State {
    fn count(&mut self, what: &'static str) {
        *self.fired.entry(what).or_default() += 1;
    }

    /// Whether it happens to this message.
    fn befalls(&mut self, kind: Kind) -> bool {
        let Some(due) = self.due.get_mut(&kind).filter(|due| **due > 0) else { return false };
        *due -= 1;
        self.count(kind.name());
        true
    }
}

impl LogServers {
    /// Servers that hold no log yet.
    #[must_use]
    pub fn new(executor: &Executor, partitions: u16, flaw: Option<Flaw>) -> Self {
        let streams = streams(partitions).into_iter().map(|(name, settings)| (name, Stream::new(&settings)));
        let state = State {
            streams: streams.collect(),
            conns: BTreeMap::new(),
            listeners: BTreeMap::new(),
            next: 0,
            due: BTreeMap::new(),
            fired: BTreeMap::new(),
            audit: Audit::default(),
        };
        Self { executor: executor.clone(), flaw, state: Arc::new(Mutex::new(state)) }
    }

    /// Connects a process.
    #[must_use]
    pub fn connect(&self, life: Life) -> Arc<dyn Server> {
        let mut state = self.state.lock();
        state.next += 1;
        let id = state.next;
        let conn = Conn {
            life,
            connected: true,
            epoch: 0,
            last_up: Duration::ZERO,
            last_down: Duration::ZERO,
            interruptions: watch::Sender::new(0),
        };
        state.conns.insert(id, conn);
        Arc::new(Client { servers: self.clone(), id })
    }

    /// A process died.
    pub fn died(&self, life: Life) {
        let mut state = self.state.lock();
        state.conns.retain(|_, conn| conn.life != life);
        let State { conns, listeners, .. } = &mut *state;
        listeners.retain(|_, listener| conns.contains_key(&listener.conn));
    }

    /// How often each thing happened that can only be counted here.
    #[must_use]
    pub fn fired(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().fired.clone()
    }

    /// Looks at what was checked so far.
    pub fn audit<T>(&self, look: impl FnOnce(&mut Audit) -> T) -> T {
        look(&mut self.state.lock().audit)
    }

    /// The first of what was acknowledged and is not stored.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        let state = self.state.lock();
        state.audit.acknowledged().find_map(|(stream, sequence, id)| {
            let there = state.streams.get(stream).is_some_and(|known| known.has(*sequence, id.as_deref()));
            (!there).then(|| format!("{sequence} of {stream} was acknowledged and is not there"))
        })
    }

    /// Whether some message holds these bytes.
    #[must_use]
    pub fn holds(&self, bytes: &[u8]) -> bool {
        self.state.lock().streams.values().any(|stream| stream.holds(bytes))
    }

    /// Lets something happen to one of the next messages.
    pub fn will(&self, kind: Kind) {
        *self.state.lock().due.entry(kind).or_default() += 1;
    }

    /// Nothing bad is due any more.
    pub fn heal(&self) {
        let now = self.executor.now();
        let mut state = self.state.lock();
        state.due.clear();
        for stream in state.streams.values_mut() {
            stream.leaderless_until = stream.leaderless_until.min(now);
            stream.stalled_until = stream.stalled_until.min(now);
            stream.parted = None;
        }
    }

    /// Cuts a process off for a while.
    pub fn cut(&self, life: Life, time: Duration) -> bool {
        let ids: Vec<u64> = {
            let state = self.state.lock();
            state.conns.iter().filter(|(_, conn)| conn.life == life).map(|(id, _)| *id).collect()
        };
        for id in &ids {
            let told = {
                let mut state = self.state.lock();
                state.conns.get_mut(id).map(|conn| {
                    conn.connected = false;
                    conn.epoch += 1;
                    conn.interruptions.clone()
                })
            };
            if let Some(interruptions) = told {
                interruptions.send_modify(|count| *count += 1);
            }
            let (servers, id) = (self.clone(), *id);
            self.executor.after(time, move || {
                if let Some(conn) = servers.state.lock().conns.get_mut(&id) {
                    conn.connected = true;
                }
            });
        }
        !ids.is_empty()
    }

    /// Another server leads some stream of the log, after a while without one. What was under way is stored or not; whoever sent
    /// it is not told. `parted`: the old leader goes on answering some of its clients from what it knew.
    pub fn change_leader(&self, parted: bool) {
        let now = self.executor.now();
        let (chosen, election, survivors, stale) = self.executor.roll(|dice| {
            let election = Duration::from_millis(dice.between(50, 3_000));
            (dice.next(), election, dice.next(), Duration::from_millis(dice.between(500, 6_000)))
        });
        let mut state = self.state.lock();
        let conns: Vec<u64> = state.conns.keys().copied().collect();
        let half = self
            .executor
            .roll(|dice| conns.iter().copied().filter(|_| dice.permille(400)).collect::<Vec<u64>>());
        let busy = state.streams.values_mut().filter(|stream| stream.last > 0);
        let mut busy: Vec<&mut Stream> = busy.collect();
        let count = busy.len() as u64;
        let index = usize::try_from(chosen.checked_rem(count).unwrap_or(0)).unwrap_or(0);
        let Some(stream) = busy.get_mut(index) else { return };
        stream.leaderless_until = now + election;
        let kept = usize::try_from(survivors % (stream.proposals.len() as u64 + 1)).unwrap_or(0);
        let gone: Vec<u64> = stream.proposals.keys().skip(kept).copied().collect();
        for number in gone {
            stream.proposals.remove(&number);
        }
        for proposal in stream.proposals.values_mut() {
            proposal.asked = None;
        }
        if parted {
            stream.parted =
                Some(PartitionedStream { until: now + election + stale, sequence: stream.last, conns: half });
        }
    }

    /// No stream stores anything for a while.
    pub fn stall(&self, time: Duration) {
        let until = self.executor.now() + time;
        for stream in self.state.lock().streams.values_mut() {
            stream.stalled_until = until;
        }
    }

    /// A server stands still for a while; it begins anew if its disk is lost.
    pub fn replica_falls_behind(&self, time: Duration, lost: bool) {
        let until = self.executor.now() + time;
        let replica = self.executor.roll(|dice| dice.index(REPLICAS));
        for stream in self.state.lock().streams.values_mut() {
            stream.lag(replica, until, lost);
        }
    }

    /// As if all that is stored were older than the time in which servers know ids.
    pub fn window_passes(&self) -> usize {
        self.state.lock().streams.values_mut().map(Stream::forget_all_ids).sum()
    }

    fn publish(&self, conn: u64, message: Publish, answer: Answer) {
        let latency = self.executor.roll(|dice| Duration::from_micros(dice.between(30, 900)));
        let now = self.executor.now();
        let (at, epoch) = {
            let mut state = self.state.lock();
            let Some(known) = state.conns.get_mut(&conn) else { return };
            known.last_up = (now + latency).max(known.last_up);
            (known.last_up, known.epoch)
        };
        let servers = self.clone();
        self.executor.at(at, move || servers.hear(conn, epoch, message, answer));
    }

    fn hear(&self, conn: u64, epoch: u64, message: Publish, answer: Answer) {
        let now = self.executor.now();
        let mut state = self.state.lock();
        if state.befalls(Kind::LostRequest) {
            return;
        }
        if state.befalls(Kind::LateRequest) {
            drop(state);
            let time = self.executor.roll(|dice| Duration::from_millis(dice.between(5_100, 20_000)));
            let servers = self.clone();
            self.executor.after(time, move || servers.hear(conn, epoch, message, answer));
            return;
        }
        let verdict = self.judge(&mut state, conn, &message, now);
        match verdict {
            Verdict::Nothing => {}
            Verdict::Say(outcome) => {
                drop(state);
                self.tell(conn, epoch, answer, outcome);
            }
            Verdict::Propose => {
                let delay = self.executor.roll(|dice| Duration::from_micros(dice.between(100, 3_000)));
                let name = message.stream.clone();
                let Some(stream) = state.streams.get_mut(&name) else { return };
                let early = self.flaw == Some(Flaw::AcknowledgesEarly);
                let (asked, told) =
                    if early { (None, Some(answer)) } else { (Some((conn, epoch, answer)), None) };
                let sequence = stream.last + stream.proposals.len() as u64 + 1;
                let id = message.id.clone();
                let (number, at) = stream.propose(Proposal { message, asked }, now + delay);
                if let Some(answer) = told {
                    state.audit.note_acknowledged(&name, sequence, id);
                    drop(state);
                    self.tell(conn, epoch, answer, Ok(Ack { sequence, duplicate: false }));
                }
                let servers = self.clone();
                self.executor.at(at, move || servers.commit(&name, number));
            }
        }
    }

    fn judge(&self, state: &mut State, conn: u64, message: &Publish, now: Duration) -> Verdict {
        let Some(stream) = state.streams.get_mut(&message.stream) else {
            let detail = format!("there is no stream {}", message.stream);
            return Verdict::Say(Err(PublishError::Refused(detail)));
        };
        if stream.parted.as_ref().is_some_and(|parted| parted.until > now && parted.conns.contains(&conn)) {
            state.count("sent to a leader that is none");
            return Verdict::Nothing;
        }
        if stream.leaderless_until > now {
            return Verdict::Say(Err(PublishError::Away("nobody leads the stream".to_owned())));
        }
        stream.forget_ids(now);
        if let Some(id) = &message.id {
            if let Some(sequence) = stream.stored_under(id) {
                state.count("duplicate acknowledged");
                return Verdict::Say(Ok(Ack { sequence, duplicate: true }));
            }
            if stream.is_id_under_way(id) {
                state.count("10158");
                return Verdict::Say(Err(PublishError::UnderWay));
            }
        }
        if message.copied.is_some_and(|copied| copied.behind != stream.last || !stream.proposals.is_empty()) {
            return Verdict::Say(Err(PublishError::Expectation));
        }
        if let Some(expected) = message.expected.filter(|_| self.flaw != Some(Flaw::ForgetsExpectations)) {
            let what = match (stream.last_of(&message.subject) != expected, message) {
                (true, _) => Some("10071"),
                (false, message) if stream.is_subject_under_way(&message.subject) => Some("10164"),
                _ => None,
            };
            if let Some(what) = what {
                state.count(what);
                return Verdict::Say(Err(PublishError::Expectation));
            }
        }
        Verdict::Propose
    }

    /// Most servers have it.
    fn commit(&self, name: &str, number: u64) {
        let now = self.executor.now();
        let mut state = self.state.lock();
        let Some(mut stream) = state.streams.get_mut(name) else { return };
        let later = stream.leaderless_until.max(stream.stalled_until);
        if later > now {
            let (servers, name) = (self.clone(), name.to_owned());
            drop(state);
            self.executor.at(later, move || servers.commit(&name, number));
            return;
        }
        // Those before it go first; one that is not there any more was lost with its leader.
        while let Some(proposal) = stream.next_until(number) {
            let now_there = Timestamp(wall_millis(&self.executor, SERVERS));
            let original = proposal.message.copied.map(|copied| copied.recorded_at);
            let recorded_at = original.map_or(now_there, |original| original.min(now_there));
            let stored = stream.store(proposal.message, now, recorded_at);
            let again = stream.sent_again(&stored.subject);
            state.audit.note_stored(name, &stored, now);
            if let Some((conn, epoch, answer)) = proposal.asked {
                state.audit.note_acknowledged(name, stored.sequence, stored.id.clone());
                let lost = state.befalls(Kind::LostAcknowledgement);
                if !lost {
                    let ack = Ack { sequence: stored.sequence, duplicate: false };
                    self.tell_locked(&mut state, conn, epoch, answer, Ok(ack));
                }
            }
            if let Some((subject, headers_only)) = again {
                self.send_again(&mut state, &subject, stored, headers_only);
            }
            let Some(known) = state.streams.get_mut(name) else { return };
            stream = known;
        }
    }

    fn tell(&self, conn: u64, epoch: u64, answer: Answer, outcome: Result<Ack, PublishError>) {
        self.tell_locked(&mut self.state.lock(), conn, epoch, answer, outcome);
    }

    fn tell_locked(
        &self,
        state: &mut State,
        conn: u64,
        epoch: u64,
        answer: Answer,
        outcome: Result<Ack, PublishError>,
    ) {
        self.send(state, conn, Some(epoch), move || {
            // Whoever asked may have given up.
            let _unheard = answer.send(outcome);
        });
    }

    /// Something reaches a client later, unless the connection is lost meanwhile.
    fn send(&self, state: &mut State, conn: u64, epoch: Option<u64>, what: impl FnOnce() + Send + 'static) {
        let latency = self.executor.roll(|dice| Duration::from_micros(dice.between(30, 900)));
        let Some(known) = state.conns.get_mut(&conn) else { return };
        let epoch = epoch.unwrap_or(known.epoch);
        known.last_down = (self.executor.now() + latency).max(known.last_down);
        let (at, servers) = (known.last_down, self.clone());
        self.executor.at(at, move || {
            let there = |conn: &Conn| conn.connected && conn.epoch == epoch;
            let arrives = servers.state.lock().conns.get(&conn).is_some_and(there);
            if arrives {
                what();
            }
        });
    }

    fn send_again(&self, state: &mut State, subject: &str, mut stored: Stored, headers_only: bool) {
        if headers_only {
            stored.payload = bytes::Bytes::new();
        }
        let hearing: Vec<(u64, mpsc::Sender<Live>)> = state
            .listeners
            .values()
            .filter(|listener| names(&listener.filter, subject))
            .map(|listener| (listener.conn, listener.to.clone()))
            .collect();
        for (conn, to) in hearing {
            if state.befalls(Kind::LostCopy) {
                continue;
            }
            let times = if state.befalls(Kind::DoubledCopy) { 2 } else { 1 };
            for _ in 0..times {
                let (to, stored) = (to.clone(), stored.clone());
                self.send(state, conn, None, move || {
                    // Whoever is too slow looks by itself.
                    let _unheard = to.try_send(Live::Stored(stored));
                });
            }
        }
    }
}

enum Verdict {
    Nothing,
    Say(Result<Ack, PublishError>),
    Propose,
}

#[cfg(test)]
mod tests;
