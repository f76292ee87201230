//! A member of a queue group.
//!
//! A member that leaves says so to whoever asks it still, who then asks another one. What does not reach it any more is sent again
//! by whoever asked: the client forgets a subscription as soon as it has written its end, so that what the server sends before it
//! has read that is lost. So that nobody sends again what is being worked on, a member that takes longer says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, Semaphore};
use world::World;

use super::headers;
use super::wire::{HeaderMap, Message, Subscriber, Wire};
use crate::contract::{MAXIMUM_CONCURRENT, MAXIMUM_MESSAGE_BYTES};

/// How long an answer may take before a word about it, and between two words.
const SAYS_AT_WORK_AFTER: Duration = Duration::from_millis(300);
/// How long an answer that nobody waits for is kept.
const KEEPS_ANSWERS_FOR: Duration = Duration::from_secs(10);

/// Makes the answer to a message; `None`: it deserves none.
pub(super) type Answered = Arc<dyn Fn(Message) -> BoxFuture<'static, Option<Answer>> + Send + Sync>;

/// What goes back.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// Serves while it lives. Who still asks when it is gone is told to ask those who stay.
pub(super) struct Server {
    membership: Arc<Membership>,
}

struct Membership {
    world: World,
    wire: Arc<dyn Wire>,
    answer: Answered,
    permits: Arc<Semaphore>,
    left: AtomicBool,
    leaving: Notify,
}

impl Server {
    pub(super) fn start(
        world: &World,
        wire: Arc<dyn Wire>,
        subscriber: Box<dyn Subscriber>,
        answer: Answered,
    ) -> Self {
        let membership = Arc::new(Membership {
            world: world.clone(),
            wire,
            answer,
            permits: Arc::new(Semaphore::new(MAXIMUM_CONCURRENT)),
            left: AtomicBool::new(false),
            leaving: Notify::new(),
        });
        world.spawner.spawn("nats server", Box::pin(Arc::clone(&membership).run(subscriber)));
        Self { membership }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.membership.left.store(true, Ordering::Release);
        self.membership.leaving.notify_one();
    }
}

impl Membership {
    async fn run(self: Arc<Self>, mut subscriber: Box<dyn Subscriber>) {
        let mut held = Vec::new();
        loop {
            let message = tokio::select! {
                biased;
                () = self.leaving.notified() => break,
                message = subscriber.next() => message,
            };
            let Some(message) = message else { return };
            let permit = tokio::select! {
                biased;
                () = self.leaving.notified() => None,
                permit = Arc::clone(&self.permits).acquire_owned() => permit.ok(),
            };
            match permit.filter(|_| !self.left.load(Ordering::Acquire)) {
                Some(permit) => self.serve(message, permit),
                None => {
                    held.push(message);
                    break;
                }
            }
        }
        // Only once the server has heard that this member left does it give what is asked again to another one.
        if subscriber.drain().await.is_err() {
            return;
        }
        let mut asked = futures::stream::iter(held).chain(subscriber);
        while let Some(message) = asked.next().await {
            if let Some(reply_to) = message.reply {
                self.say(reply_to.to_string(), headers::leaving()).await;
            }
        }
    }

    fn serve(self: &Arc<Self>, message: Message, permit: tokio::sync::OwnedSemaphorePermit) {
        let membership = Arc::clone(self);
        let task = async move {
            let reply_to = message.reply.as_ref().map(ToString::to_string);
            let mut answering = (membership.answer)(message);
            let answer = tokio::select! {
                biased;
                answer = &mut answering => answer,
                () = membership.world.clock.sleep(SAYS_AT_WORK_AFTER) => match reply_to.clone() {
                    Some(reply_to) => {
                        membership.answer_later(reply_to, answering, permit).await;
                        return;
                    }
                    None => answering.await,
                },
            };
            drop(permit);
            if let (Some(reply_to), Some(answer)) = (reply_to, answer) {
                membership.reply(reply_to, answer).await;
            }
        };
        self.world.spawner.spawn("bus request", Box::pin(task));
    }

    async fn say(&self, to: String, headers: HeaderMap) {
        self.reply(to, Answer { headers, payload: Bytes::new() }).await;
    }

    async fn reply(&self, to: String, Answer { headers, payload }: Answer) {
        if payload.len() > MAXIMUM_MESSAGE_BYTES {
            tracing::error!(bytes = payload.len(), "reply over the bus's limit dropped");
            return;
        }
        if let Err(error) = self.wire.publish(to, None, headers, payload).await {
            tracing::warn!(%error, "reply not sent");
        }
    }

    /// Says that the answer takes a while and where it is to be had, and again to whoever asks there before it is made.
    async fn answer_later(
        &self,
        reply_to: String,
        mut answering: BoxFuture<'static, Option<Answer>>,
        permit: tokio::sync::OwnedSemaphorePermit,
    ) {
        let inbox = self.wire.new_inbox();
        let Ok(mut asked) = self.wire.subscribe(inbox.clone(), None).await else { return };
        self.say(reply_to, headers::working(&inbox)).await;
        let mut waiting = None;
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answering => break answer,
                question = asked.next() => match question {
                    Some(question) => waiting = question.reply.map(|reply| reply.to_string()),
                    None => return,
                },
                () = self.world.clock.sleep(SAYS_AT_WORK_AFTER), if waiting.is_some() => {
                    if let Some(waiting) = waiting.take() {
                        self.say(waiting, headers::working(&inbox)).await;
                    }
                }
            }
        };
        drop(permit);
        let Some(answer) = answer else { return };
        if waiting.is_none() {
            waiting = tokio::select! {
                biased;
                question = asked.next() => question.and_then(|question| question.reply.map(|reply| reply.to_string())),
                () = self.world.clock.sleep(KEEPS_ANSWERS_FOR) => None,
            };
        }
        if let Some(waiting) = waiting {
            self.reply(waiting, answer).await;
        }
    }
}
