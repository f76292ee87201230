//! The receiving end of a subscription.

use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bus::nats::wire::{Message, Subscriber, WireError};
use futures::Stream;
use tokio::sync::mpsc;

use super::{Nats, Said};

pub(super) struct SimulatedSubscriber {
    pub(super) nats: Nats,
    pub(super) conn: u64,
    pub(super) id: u64,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
}

impl Stream for SimulatedSubscriber {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.messages.poll_recv(context)
    }
}

#[async_trait]
impl Subscriber for SimulatedSubscriber {
    /// Half the time the client forgets the subscription before the server does, as the real one may: what comes then is lost.
    async fn drain(&mut self) -> Result<(), WireError> {
        let _takes = self.nats.say(self.conn, Said::Unsubscribe { id: self.id });
        if self.nats.executor.roll(|dice| dice.permille(500)) {
            self.messages.close();
        }
        if !self.nats.state.lock().conns.get(&self.conn).is_some_and(|conn| conn.connected) {
            self.messages.close();
        }
        Ok(())
    }
}

impl Drop for SimulatedSubscriber {
    fn drop(&mut self) {
        let _takes = self.nats.say(self.conn, Said::Unsubscribe { id: self.id });
        let mut state = self.nats.state.lock();
        if !state.conns.get(&self.conn).is_some_and(|conn| conn.connected) {
            state.subscriptions.remove(&self.id);
        }
    }
}
