//! The connection to NATS.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use async_nats::client::Request;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, RequestErrorKind, ServerAddr};
use async_trait::async_trait;
use bytes::Bytes;
use events::access::inbox;
use futures::Stream;
use tokio::sync::watch;
use world::network::Address;

use super::wire::{HeaderMap, Message, Subscriber, Wire, WireError};
use crate::contract::{BusError, MAXIMUM_MESSAGE_BYTES};

/// A server that answers no ping is given up after two of them.
const PING: Duration = Duration::from_secs(5);
/// Messages that wait in the client for one subscription; what is behind them is lost, and said.
const WAITING: usize = 64 * 1024;
const LONGEST_RECONNECT_WAIT: Duration = Duration::from_secs(2);

/// Where NATS is.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Servers, such as `nats://nats-0:4222`; those of a cluster tell of one another.
    pub servers: Vec<String>,
    /// How the server's monitoring names this process.
    pub name: String,
    /// What kind of process it is, such as `delivery`: it gets answers under `_INBOX.<process>.>` only.
    pub process: String,
    /// Certificate authorities to trust, PEM, for servers named `tls://…`; those that the machine trusts if not given.
    pub ca_file: Option<PathBuf>,
}

/// A connection to a real server.
pub(super) struct Connection {
    client: Client,
    interruptions: watch::Receiver<u64>,
}

impl Connection {
    pub(super) async fn open(options: &NatsOptions) -> Result<Self, BusError> {
        let (sender, interruptions) = watch::channel(0);
        let away = |detail: String| BusError::Away { detail };
        let servers: Vec<Address> = options.servers.iter().map(|server| Address::of(server)).collect();
        let addresses: Result<Vec<ServerAddr>, _> =
            servers.iter().map(|server| server.shown.parse()).collect();
        let addresses = addresses.map_err(|error| away(error.to_string()))?;
        let mut connecting = ConnectOptions::new();
        // The client itself takes no notice of a name and a password in an address, and shows both in its log.
        if let Some((user, password)) = servers.into_iter().next().and_then(|server| server.credentials) {
            connecting = connecting.user_and_password(user, password);
        }
        if let Some(file) = &options.ca_file {
            connecting = connecting.add_root_certificates(file.clone());
        }
        let connecting = connecting
            .name(&options.name)
            .custom_inbox_prefix(inbox(&options.process))
            .ping_interval(PING)
            .subscription_capacity(WAITING)
            .request_timeout(None)
            .reconnect_delay_callback(|attempt| {
                let attempt = u32::try_from(attempt).unwrap_or(u32::MAX).min(10);
                (Duration::from_millis(10) * 2_u32.pow(attempt)).min(LONGEST_RECONNECT_WAIT)
            })
            .event_callback(move |event| {
                match &event {
                    Event::Disconnected | Event::SlowConsumer(_) => {
                        tracing::warn!(%event, "nats");
                        sender.send_modify(|count| *count += 1);
                    }
                    Event::ServerError(_) | Event::ClientError(_) => tracing::warn!(%event, "nats"),
                    _ => tracing::debug!(%event, "nats"),
                }
                std::future::ready(())
            });
        let client = connecting.connect(addresses).await.map_err(|error| away(error.to_string()))?;
        let limit = client.max_payload();
        if limit < MAXIMUM_MESSAGE_BYTES {
            return Err(away(format!(
                "the server takes messages of at most {limit} bytes, and {MAXIMUM_MESSAGE_BYTES} are needed: set its max_payload"
            )));
        }
        Ok(Self { client, interruptions })
    }
}

fn failed(error: impl std::fmt::Display) -> WireError {
    WireError::Failed(error.to_string())
}

#[async_trait]
impl Wire for Connection {
    async fn publish(
        &self,
        to: String,
        reply: Option<String>,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), WireError> {
        let client = &self.client;
        let sent = match (reply, headers.is_empty()) {
            (None, true) => client.publish(to, payload).await,
            (None, false) => client.publish_with_headers(to, headers, payload).await,
            (Some(reply), true) => client.publish_with_reply(to, reply, payload).await,
            (Some(reply), false) => client.publish_with_reply_and_headers(to, reply, headers, payload).await,
        };
        sent.map_err(failed)
    }

    async fn request(&self, to: String, headers: HeaderMap, payload: Bytes) -> Result<Message, WireError> {
        let mut request = Request::new().payload(payload).timeout(None);
        if !headers.is_empty() {
            request = request.headers(headers);
        }
        self.client.send_request(to, request).await.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => WireError::Nobody,
            _ => failed(error),
        })
    }

    async fn subscribe(
        &self,
        subject: String,
        group: Option<String>,
    ) -> Result<Box<dyn Subscriber>, WireError> {
        let subscriber = match group {
            None => self.client.subscribe(subject).await,
            Some(group) => self.client.queue_subscribe(subject, group).await,
        };
        Ok(Box::new(Subscribed(subscriber.map_err(failed)?)))
    }

    fn new_inbox(&self) -> String {
        self.client.new_inbox()
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    fn interruptions(&self) -> watch::Receiver<u64> {
        self.interruptions.clone()
    }
}

struct Subscribed(async_nats::Subscriber);

impl Stream for Subscribed {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        Pin::new(&mut self.0).poll_next(context)
    }
}

#[async_trait]
impl Subscriber for Subscribed {
    async fn drain(&mut self) -> Result<(), WireError> {
        self.0.drain().await.map_err(failed)
    }
}
