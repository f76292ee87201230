//! A NATS server for the bus: what is published goes to each subscriber and to one member of each group, in the order in which it
//! came, at most once. A connection that is cut loses what is under way, and comes back by itself.

mod conn;
mod subscriber;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::nats::wire::{HeaderMap, Message, StatusCode, Subscriber, Wire, WireError};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::executor::{Executor, Life};
use conn::Conn;
use subscriber::SimulatedSubscriber;

/// Messages that a client keeps while there is no connection.
const KEPT: usize = 2_048;

/// How long what a client has taken may take to be sent.
const AHEAD: Duration = Duration::from_millis(3);

/// What a client tells the server.
enum Said {
    Publish { to: String, reply: Option<String>, headers: HeaderMap, payload: Bytes },
    Subscribe { id: u64 },
    Unsubscribe { id: u64 },
}

struct Subscription {
    conn: u64,
    subject: String,
    group: Option<String>,
    to: mpsc::UnboundedSender<Message>,
}

#[derive(Default)]
struct State {
    conns: BTreeMap<u64, Conn>,
    subscriptions: BTreeMap<u64, Subscription>,
    /// What the server knows of: by subject, and by what stands before `.>`.
    exact: BTreeMap<String, BTreeSet<u64>>,
    below: BTreeMap<String, BTreeSet<u64>>,
    /// The same by filters that have one `*` among their tokens.
    between: BTreeMap<String, BTreeSet<u64>>,
    next: u64,
}

/// The server; cheap to clone.
#[derive(Clone)]
pub struct Nats {
    executor: Executor,
    state: Arc<Mutex<State>>,
}

/// Before the names of inboxes on which a client hears answers to its own requests.
const ANSWERS: &str = "_INBOX.answers.";

impl Nats {
    /// A server without clients.
    #[must_use]
    pub fn new(executor: &Executor) -> Self {
        Self { executor: executor.clone(), state: Arc::default() }
    }

    /// Connects a process.
    #[must_use]
    pub fn connect(&self, life: Life) -> Arc<dyn Wire> {
        let mut state = self.state.lock();
        state.next += 1;
        let id = state.next;
        state.conns.insert(id, Conn::new(life));
        Arc::new(Client { nats: self.clone(), id })
    }

    /// A process died: its connections are gone.
    pub fn died(&self, life: Life) {
        let gone: Vec<u64> = self.of(life);
        let mut state = self.state.lock();
        for id in gone {
            state.forget_subscriptions(id);
            state.subscriptions.retain(|_, subscription| subscription.conn != id);
            state.conns.remove(&id);
        }
    }

    fn of(&self, life: Life) -> Vec<u64> {
        let state = self.state.lock();
        state.conns.iter().filter(|(_, conn)| conn.life == life).map(|(id, _)| *id).collect()
    }

    /// Cuts a process off for a while.
    pub fn cut(&self, life: Life, time: Duration) -> bool {
        let conns = self.of(life);
        for id in &conns {
            let told = {
                let mut state = self.state.lock();
                state.forget_subscriptions(*id);
                state.conns.get_mut(id).and_then(Conn::cut)
            };
            if let Some(interruptions) = told {
                interruptions.send_modify(|count| *count += 1);
                let (nats, id) = (self.clone(), *id);
                self.executor.after(time, move || nats.come_back(id));
            }
        }
        !conns.is_empty()
    }

    /// Nothing reaches a process or leaves it for a while; nothing is lost.
    pub fn hold(&self, life: Life, time: Duration) -> bool {
        let until = self.executor.now() + time;
        let conns = self.of(life);
        let mut state = self.state.lock();
        for id in &conns {
            if let Some(conn) = state.conns.get_mut(id) {
                conn.hold(until);
            }
        }
        !conns.is_empty()
    }

    fn come_back(&self, id: u64) {
        let said: Vec<Said> = {
            let mut state = self.state.lock();
            let own: Vec<u64> =
                state.subscriptions.iter().filter(|(_, s)| s.conn == id).map(|(number, _)| *number).collect();
            let Some(conn) = state.conns.get_mut(&id) else { return };
            let Some(kept) = conn.come_back() else { return };
            let again = own.into_iter().map(|id| Said::Subscribe { id });
            again.chain(kept).collect()
        };
        for said in said {
            let _takes = self.say(id, said);
        }
    }

    /// A client says something; it reaches the server later. Gives how long that takes.
    fn say(&self, id: u64, said: Said) -> Duration {
        let latency = self.executor.roll(|dice| dice.between(30, 900));
        let now = self.executor.now();
        let (at, epoch) = {
            let mut state = self.state.lock();
            let Some(conn) = state.conns.get_mut(&id) else { return Duration::ZERO };
            if !conn.connected {
                // Subscriptions are told again anyway.
                if matches!(said, Said::Publish { .. }) && conn.kept.len() < KEPT {
                    conn.kept.push(said);
                }
                return Duration::ZERO;
            }
            (conn.up(now + Duration::from_micros(latency)), conn.epoch)
        };
        let nats = self.clone();
        self.executor.at(at, move || nats.hear(id, epoch, said));
        at.saturating_sub(now)
    }

    /// The server hears a client.
    fn hear(&self, id: u64, epoch: u64, said: Said) {
        let mut state = self.state.lock();
        if !state.conns.get(&id).is_some_and(|conn| conn.connected && conn.epoch == epoch) {
            return;
        }
        match said {
            Said::Subscribe { id } => state.enter(id),
            Said::Unsubscribe { id: number } => {
                state.leave(number);
                drop(state);
                self.deliver(id, Delivery::End(number));
            }
            Said::Publish { to, reply, headers, payload } => {
                drop(state);
                self.route(&to, reply, headers, payload);
            }
        }
    }

    fn route(&self, to: &str, reply: Option<String>, headers: HeaderMap, payload: Bytes) {
        let headers = (!headers.is_empty()).then_some(headers);
        let length = payload.len();
        let message = Message {
            subject: to.into(),
            reply: reply.clone().map(Into::into),
            payload,
            headers,
            status: None,
            description: None,
            length,
        };
        if let Some((conn, number)) = answered(to) {
            self.deliver(conn, Delivery::Answer(number, message));
            return;
        }
        let chosen = self.chosen(to);
        if chosen.is_empty() {
            if let Some(reply) = reply {
                self.say_nobody(&reply);
            }
            return;
        }
        for (conn, subscription) in chosen {
            self.deliver(conn, Delivery::Message(subscription, message.clone()));
        }
    }

    /// Who gets a message: all of no group, and one of each group.
    fn chosen(&self, to: &str) -> Vec<(u64, u64)> {
        let state = self.state.lock();
        let mut matching: Vec<u64> = state.exact.get(to).into_iter().flatten().copied().collect();
        for (at, _) in to.match_indices('.') {
            let before = to.get(..at).unwrap_or_default();
            matching.extend(state.below.get(before).into_iter().flatten());
        }
        if !state.between.is_empty() {
            let tokens: Vec<&str> = to.split('.').collect();
            for at in 0..tokens.len() {
                let any =
                    tokens.iter().enumerate().map(|(index, token)| if index == at { "*" } else { token });
                let filter = any.collect::<Vec<_>>().join(".");
                matching.extend(state.between.get(&filter).into_iter().flatten());
            }
        }
        let mut groups: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        let mut chosen = Vec::new();
        for id in matching {
            let Some(subscription) = state.subscriptions.get(&id) else { continue };
            match &subscription.group {
                None => chosen.push((subscription.conn, id)),
                Some(group) => groups.entry(group).or_default().push((subscription.conn, id)),
            }
        }
        chosen.extend(
            groups.values().filter_map(|members| self.executor.roll(|dice| dice.one_of(members).copied())),
        );
        chosen
    }

    fn say_nobody(&self, reply: &str) {
        let message = Message {
            subject: reply.into(),
            reply: None,
            payload: Bytes::new(),
            headers: None,
            status: Some(StatusCode::NO_RESPONDERS),
            description: None,
            length: 0,
        };
        match answered(reply) {
            Some((conn, number)) => self.deliver(conn, Delivery::Answer(number, message)),
            None => {
                for (conn, subscription) in self.chosen(reply) {
                    self.deliver(conn, Delivery::Message(subscription, message.clone()));
                }
            }
        }
    }

    /// The server sends something to a client; it comes later.
    fn deliver(&self, id: u64, delivery: Delivery) {
        let latency = self.executor.roll(|dice| dice.between(30, 900));
        let now = self.executor.now();
        let (at, epoch) = {
            let mut state = self.state.lock();
            let Some(conn) = state.conns.get_mut(&id) else { return };
            (conn.down(now + Duration::from_micros(latency)), conn.epoch)
        };
        let nats = self.clone();
        self.executor.at(at, move || nats.take(id, epoch, delivery));
    }

    /// A client gets something.
    fn take(&self, id: u64, epoch: u64, delivery: Delivery) {
        let mut state = self.state.lock();
        let State { conns, subscriptions, .. } = &mut *state;
        let Some(conn) = conns.get_mut(&id).filter(|conn| conn.connected && conn.epoch == epoch) else {
            return;
        };
        match delivery {
            Delivery::Answer(number, message) => {
                let waiting = conn.waiting.remove(&number);
                drop(state);
                if let Some(waiting) = waiting {
                    // Whoever asked may have given up.
                    let _unheard = waiting.send(message);
                }
            }
            Delivery::Message(number, message) => {
                let to = subscriptions.get(&number).map(|subscription| subscription.to.clone());
                drop(state);
                if let Some(to) = to {
                    let _unheard = to.send(message);
                }
            }
            Delivery::End(number) => {
                let ended = subscriptions.remove(&number);
                drop(state);
                drop(ended);
            }
        }
    }
}

/// What the server sends to a client.
enum Delivery {
    Answer(u64, Message),
    Message(u64, Message),
    /// Of a subscription.
    End(u64),
}

/// The connection and request that an inbox for answers belongs to.
fn answered(subject: &str) -> Option<(u64, u64)> {
    let (conn, number) = subject.strip_prefix(ANSWERS)?.split_once('.')?;
    Some((conn.parse().ok()?, number.parse().ok()?))
}

impl State {
    fn list(&mut self, id: u64) -> Option<(&mut BTreeMap<String, BTreeSet<u64>>, String)> {
        let subject = &self.subscriptions.get(&id)?.subject;
        if subject.contains(".*.") {
            let filter = subject.clone();
            return Some((&mut self.between, filter));
        }
        Some(match subject.strip_suffix(".>") {
            Some(before) => {
                let before = before.to_owned();
                (&mut self.below, before)
            }
            None => {
                let subject = subject.clone();
                (&mut self.exact, subject)
            }
        })
    }

    fn enter(&mut self, id: u64) {
        if let Some((list, key)) = self.list(id) {
            list.entry(key).or_default().insert(id);
        }
    }

    fn leave(&mut self, id: u64) {
        if let Some((list, key)) = self.list(id)
            && let Some(all) = list.get_mut(&key)
        {
            all.remove(&id);
            if all.is_empty() {
                list.remove(&key);
            }
        }
    }

    /// The server knows no subscription of that connection any more.
    fn forget_subscriptions(&mut self, conn: u64) {
        let own: Vec<u64> =
            self.subscriptions.iter().filter(|(_, s)| s.conn == conn).map(|(id, _)| *id).collect();
        for id in own {
            self.leave(id);
        }
    }
}

/// One process's connection.
struct Client {
    nats: Nats,
    id: u64,
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut state = self.nats.state.lock();
        state.forget_subscriptions(self.id);
        state.conns.remove(&self.id);
    }
}

#[async_trait]
impl Wire for Client {
    async fn publish(
        &self,
        to: String,
        reply: Option<String>,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), WireError> {
        let takes = self.nats.say(self.id, Said::Publish { to, reply, headers, payload });
        // A client takes only so much more than it has sent.
        let too_long = takes.saturating_sub(AHEAD);
        if !too_long.is_zero() {
            self.nats.executor.sleep(too_long).await;
        }
        Ok(())
    }

    async fn request(&self, to: String, headers: HeaderMap, payload: Bytes) -> Result<Message, WireError> {
        let (give, answer) = oneshot::channel();
        let reply = {
            let mut state = self.nats.state.lock();
            state.next += 1;
            let number = state.next;
            let closed = || WireError::Failed("the client is closed".to_owned());
            let conn = state.conns.get_mut(&self.id).ok_or_else(closed)?;
            conn.waiting.retain(|_, waiting| !waiting.is_closed());
            conn.waiting.insert(number, give);
            format!("{ANSWERS}{}.{number}", self.id)
        };
        let _takes = self.nats.say(self.id, Said::Publish { to, reply: Some(reply), headers, payload });
        let answer = answer.await.map_err(|_| WireError::Failed("the client is closed".to_owned()))?;
        if answer.status == Some(StatusCode::NO_RESPONDERS) { Err(WireError::Nobody) } else { Ok(answer) }
    }

    async fn subscribe(
        &self,
        subject: String,
        group: Option<String>,
    ) -> Result<Box<dyn Subscriber>, WireError> {
        let (to, messages) = mpsc::unbounded_channel();
        let id = {
            let mut state = self.nats.state.lock();
            state.next += 1;
            let id = state.next;
            state.subscriptions.insert(id, Subscription { conn: self.id, subject, group, to });
            id
        };
        let _takes = self.nats.say(self.id, Said::Subscribe { id });
        Ok(Box::new(SimulatedSubscriber { nats: self.nats.clone(), conn: self.id, id, messages }))
    }

    fn new_inbox(&self) -> String {
        let mut state = self.nats.state.lock();
        state.next += 1;
        format!("_INBOX.{}.{}", self.id, state.next)
    }

    fn is_connected(&self) -> bool {
        self.nats.state.lock().conns.get(&self.id).is_some_and(|conn| conn.connected)
    }

    fn connects(&self) -> u64 {
        self.nats.state.lock().conns.get(&self.id).map_or(0, |conn| conn.epoch + 1)
    }

    fn interruptions(&self) -> watch::Receiver<u64> {
        let state = self.nats.state.lock();
        match state.conns.get(&self.id) {
            Some(conn) => conn.interruptions.subscribe(),
            None => watch::Sender::new(0).subscribe(),
        }
    }
}

#[cfg(test)]
mod tests;
