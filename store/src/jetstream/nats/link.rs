//! The connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::client::Request;
use async_nats::connection::State;
use async_nats::{
    Client, ConnectOptions, Event, HeaderMap, Message, ReconnectToServer, RequestErrorKind, Server,
    ServerAddr, ServerInfo, Subscriber,
};
use bytes::Bytes;
use events::access::inbox;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use world::World;
use world::network::Address;

use super::ANSWER_TIME;
use super::group::Groups;
use crate::jetstream::Options;
use crate::jetstream::server::ServerError;

/// A server that answers no ping is given up after two of them.
const PING: Duration = Duration::from_secs(5);
/// Messages that wait in the client for one subscription; what is behind them is lost, and said.
const WAITING: usize = 16 * 1024;
/// How long no leader may answer before another server is looked for: this one may be parted from the others, and stay so.
const USELESS_AFTER: Duration = Duration::from_secs(6);
const LONGEST_RECONNECT_WAIT: Duration = Duration::from_secs(2);

/// A connection that comes back by itself; cheap to clone.
#[derive(Clone)]
pub(in crate::jetstream) struct Link {
    pub(super) world: World,
    client: Client,
    interruptions: watch::Receiver<u64>,
    /// Commits wait for one another where the server syncs each by itself.
    pub(super) groups: Option<Arc<Groups>>,
    /// Since when no leader has answered, by the monotonic clock.
    leaderless: Arc<Mutex<Option<Duration>>>,
}

/// No answer came.
#[derive(Debug, thiserror::Error)]
pub(in crate::jetstream) enum AskError {
    #[error("{0}")]
    NotSent(String),
    #[error("no responder")]
    Nobody,
    #[error("{0}")]
    NoAnswer(String),
}

impl From<AskError> for ServerError {
    fn from(error: AskError) -> Self {
        Self(error.to_string())
    }
}

impl Link {
    pub(in crate::jetstream) async fn connect(
        world: &World,
        Options { servers, name, process, ca_file, .. }: &Options,
    ) -> Result<Self, ServerError> {
        let (sender, interruptions) = watch::channel(0);
        let failed = |error: &dyn std::fmt::Display| ServerError(error.to_string());
        let servers: Vec<Address> = servers.iter().map(|server| Address::of(server)).collect();
        let addresses: Result<Vec<ServerAddr>, _> =
            servers.iter().map(|server| server.shown.parse()).collect();
        let addresses = addresses.map_err(|error| failed(&error))?;
        let mut options = ConnectOptions::new();
        // The client itself takes no notice of a name and a password in an address, and shows both in its log.
        if let Some((user, password)) = servers.into_iter().next().and_then(|server| server.credentials) {
            options = options.user_and_password(user, password);
        }
        if let Some(file) = ca_file {
            options = options.add_root_certificates(file.clone());
        }
        let connecting = options
            .name(name)
            .custom_inbox_prefix(inbox(process))
            .ping_interval(PING)
            .subscription_capacity(WAITING)
            .request_timeout(None)
            .reconnect_delay_callback(|attempt| {
                let attempt = u32::try_from(attempt).unwrap_or(u32::MAX).min(10);
                (Duration::from_millis(10) * 2_u32.pow(attempt)).min(LONGEST_RECONNECT_WAIT)
            })
            .reconnect_to_server_callback(one_after_another())
            .event_callback(move |event| {
                match &event {
                    Event::Disconnected | Event::SlowConsumer(_) => {
                        tracing::warn!(%event, "nats of the log");
                        sender.send_modify(|count| *count += 1);
                    }
                    Event::ServerError(_) | Event::ClientError(_) => {
                        tracing::warn!(%event, "nats of the log")
                    }
                    _ => tracing::debug!(%event, "nats of the log"),
                }
                std::future::ready(())
            });
        let client = connecting.connect(addresses).await.map_err(|error| failed(&error))?;
        Ok(Self { world: world.clone(), client, interruptions, groups: None, leaderless: Arc::default() })
    }

    /// Stores commits together where many come at once.
    pub(in crate::jetstream) fn grouping(self) -> Self {
        Self { groups: Some(Arc::default()), ..self }
    }

    pub(in crate::jetstream) fn connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    pub(in crate::jetstream) fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    /// Bytes that a message may have.
    pub(in crate::jetstream) fn largest_message(&self) -> usize {
        self.client.max_payload()
    }

    /// Changes whenever messages may have been lost.
    pub(super) fn interruptions(&self) -> watch::Receiver<u64> {
        let mut interruptions = self.interruptions.clone();
        interruptions.mark_unchanged();
        interruptions
    }

    /// One question, one answer.
    pub(super) async fn ask(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, AskError> {
        let mut interruptions = self.interruptions();
        if !self.connected() {
            return Err(AskError::NotSent("no server is connected".to_owned()));
        }
        let mut request = Request::new().payload(payload).timeout(None);
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        tokio::select! {
            biased;
            answer = self.client.send_request(subject.to_owned(), request) => {
                answer.map_err(|error| match error.kind() {
                    RequestErrorKind::NoResponders => AskError::Nobody,
                    _ => AskError::NoAnswer(error.to_string()),
                })
            }
            _ = interruptions.changed() => {
                Err(AskError::NoAnswer("the connection was lost before the answer came".to_owned()))
            }
            () = self.world.clock.sleep(ANSWER_TIME) => {
                Err(AskError::NoAnswer(format!("no answer within {ANSWER_TIME:?}")))
            }
        }
    }

    /// To be told whether a leader answered. When none has for too long, another server is looked for.
    pub(super) async fn note_leader(&self, heard: bool) {
        let useless = {
            let now = self.world.clock.monotonic();
            let mut leaderless = self.leaderless.lock();
            if heard {
                *leaderless = None;
                return;
            }
            let since = *leaderless.get_or_insert(now);
            let useless = self.connected() && now.saturating_sub(since) > USELESS_AFTER;
            if useless {
                *leaderless = None;
            }
            useless
        };
        if useless {
            tracing::warn!(after = ?USELESS_AFTER, "no leader has answered, connecting to another server");
            // What is under way ends with it, and is tried again.
            let _gone = self.client.force_reconnect().await;
        }
    }

    /// A question to the JetStream API.
    pub(in crate::jetstream) async fn api<A: DeserializeOwned>(
        &self,
        name: &str,
        question: &impl Serialize,
    ) -> Result<A, ServerError> {
        let question = serde_json::to_vec(question).map_err(|error| ServerError(error.to_string()))?;
        let answer = self.ask(&format!("$JS.API.{name}"), None, question.into()).await?;
        serde_json::from_slice(&answer.payload)
            .map_err(|error| ServerError(format!("the answer to {name} is not readable: {error}")))
    }

    /// A question that has many answers.
    pub(super) async fn ask_all(
        &self,
        subject: String,
        question: &impl Serialize,
    ) -> Result<Answers, ServerError> {
        let interruptions = self.interruptions();
        if !self.connected() {
            return Err(ServerError("no server is connected".to_owned()));
        }
        let question = serde_json::to_vec(question).map_err(|error| ServerError(error.to_string()))?;
        let inbox = self.new_inbox();
        let subscriber = self.subscribe(&inbox).await?;
        self.publish_with_reply(subject, inbox, question.into()).await?;
        Ok(Answers { subscriber, interruptions })
    }

    pub(super) fn new_inbox(&self) -> String {
        self.client.new_inbox()
    }

    pub(super) async fn publish_with_reply(
        &self,
        subject: String,
        reply: String,
        payload: Bytes,
    ) -> Result<(), ServerError> {
        let published = self.client.publish_with_reply(subject, reply, payload).await;
        published.map_err(|error| ServerError(error.to_string()))
    }

    /// Without an answer.
    pub(super) async fn publish_with_headers(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), ServerError> {
        let published = self.client.publish_with_headers(subject.to_owned(), headers, payload).await;
        published.map_err(|error| ServerError(error.to_string()))
    }

    pub(super) async fn subscribe(&self, filter: &str) -> Result<Subscriber, ServerError> {
        let subscribed = self.client.subscribe(filter.to_owned()).await;
        subscribed.map_err(|error| ServerError(error.to_string()))
    }
}

type Choice = std::future::Ready<Option<ReconnectToServer>>;

/// Takes the servers in turn. The client by itself prefers those that it could connect to, and so the one that it just left.
fn one_after_another() -> impl Fn(Vec<Server>, ServerInfo) -> Choice + Send + Sync + 'static {
    let turn = AtomicUsize::new(0);
    move |servers, info| {
        // The first time it tries all by itself.
        let next = if info.server_id.is_empty() {
            None
        } else {
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            servers.get(turn.checked_rem(servers.len()).unwrap_or(0))
        };
        std::future::ready(next.map(|server| ReconnectToServer { addr: server.addr.clone(), delay: None }))
    }
}

/// Answers to one question.
pub(super) struct Answers {
    subscriber: Subscriber,
    interruptions: watch::Receiver<u64>,
}

impl Answers {
    /// The next one; `None` when the connection is gone for good.
    pub(super) async fn next(&mut self, link: &Link) -> Result<Option<Message>, ServerError> {
        tokio::select! {
            biased;
            _ = self.interruptions.changed() => Err(ServerError("the connection was lost before all answers came".to_owned())),
            answer = self.subscriber.next() => Ok(answer),
            () = link.world.clock.sleep(ANSWER_TIME) => Err(ServerError(format!("no answer within {ANSWER_TIME:?}"))),
        }
    }
}
