//! The connection to NATS.

use std::time::Duration;

use async_nats::client::Request;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, RequestErrorKind, ServerAddr};
use bytes::Bytes;
use tokio::sync::watch;
use world::World;
use world::network::Address;

use crate::contract::{BusError, MAXIMUM_MESSAGE_BYTES};

/// A server that answers no ping is given up after two of them.
const PING: Duration = Duration::from_secs(5);
/// Messages that wait in the client for one subscription; what is behind them is lost, and said.
const WAITING: usize = 64 * 1024;
const LONGEST_RECONNECT_WAIT: Duration = Duration::from_secs(2);
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Where NATS is.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Servers, such as `nats://nats-0:4222`; those of a cluster tell of one another.
    pub servers: Vec<String>,
    /// How the server's monitoring names this process.
    pub name: String,
}

/// A connection that comes back by itself.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    interruptions: watch::Receiver<u64>,
}

impl Link {
    pub(super) async fn connect(options: &NatsOptions) -> Result<Self, BusError> {
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
        let connecting = connecting
            .name(&options.name)
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

    /// Changes whenever messages may have been lost.
    pub(super) fn interruptions(&self) -> watch::Receiver<u64> {
        let mut interruptions = self.interruptions.clone();
        interruptions.mark_unchanged();
        interruptions
    }

    /// Ends when messages may have been lost from now on; an error when the connection is lost already.
    pub(super) fn lost(&self) -> Result<impl Future<Output = ()> + Send + use<>, BusError> {
        let mut interruptions = self.interruptions();
        if self.client.connection_state() != State::Connected {
            return Err(BusError::Away { detail: "no server is connected".to_owned() });
        }
        Ok(async move {
            // An error means that the client is gone, and with it the connection.
            let _gone = interruptions.changed().await;
        })
    }

    /// Waits until the server has heard all that was said so far: a question that nobody answers comes back from it.
    pub(super) async fn settled(&self, world: &World) -> Result<(), BusError> {
        let away = |detail: &str| BusError::Away { detail: detail.to_owned() };
        let lost = self.lost()?;
        let nobody = self.client.new_inbox();
        let question = Request::new().payload(Bytes::new()).timeout(None);
        tokio::select! {
            biased;
            answer = self.client.send_request(nobody, question) => match answer {
                Err(error) if error.kind() != RequestErrorKind::NoResponders => Err(away(&error.to_string())),
                _ => Ok(()),
            },
            () = world.clock.sleep(SETTLE_TIME) => Err(away("the server does not answer")),
            () = lost => Err(away("the connection was lost")),
        }
    }
}
