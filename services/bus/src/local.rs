//! The bus inside one process. It carries encoded bytes and refuses or drops what NATS would, so that one node behaves as many.

mod members;
mod notices;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use events::request::RequestContext;
use events::subject::Subject;
use tokio::sync::{Semaphore, mpsc};
use world::World;

use crate::contract::{
    Bus, BusError, ByteStream, Handler, MAXIMUM_CONCURRENT, MAXIMUM_MESSAGE_BYTES, Opening, RequestError,
    Serving, StreamHandler, Subscription, checked, fits, fits_first,
};
use members::Members;
use notices::Notices;

/// The bus of one process; cheap to clone.
#[derive(Clone)]
pub struct LocalBus {
    world: World,
    requests: Members<Handler>,
    streams: Members<StreamHandler>,
    notices: Notices,
}

impl LocalBus {
    /// A bus that nobody serves yet.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self { world, requests: Members::default(), streams: Members::default(), notices: Notices::default() }
    }

    async fn deliver(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        let header = encoded(context, body.len())?;
        let chosen = self.requests.choose(subject.as_str(), &*self.world.random);
        if chosen.is_empty() {
            return Err(RequestError::NoResponder { subject: subject.to_string() });
        }
        let (replies, mut first) = mpsc::channel(1);
        for member in chosen {
            let Ok(permit) = Arc::clone(&member.permits).acquire_owned().await else { continue };
            let (handler, replies, body) = (Arc::clone(&member.handler), replies.clone(), body.clone());
            let context = decoded(&header)?;
            let task = async move {
                let reply = handler(context, body).await;
                drop(permit);
                if reply.len() > MAXIMUM_MESSAGE_BYTES {
                    tracing::error!(bytes = reply.len(), "reply over the bus's limit dropped");
                } else {
                    // The first reply is taken, as with NATS; others and those after the deadline are not.
                    let _sent = replies.try_send(reply);
                }
            };
            self.world.spawner.spawn("bus request", Box::pin(task));
        }
        match first.recv().await {
            Some(reply) => Ok(reply),
            // Not reached while `replies` lives: a handler that dies answers nothing, and the deadline ends the wait.
            None => Err(RequestError::NoResponder { subject: subject.to_string() }),
        }
    }
}

#[async_trait]
impl Bus for LocalBus {
    async fn request(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        checked(subject)?;
        let deadline = Duration::from_millis(u64::from(context.deadline_millis));
        tokio::select! {
            biased;
            reply = self.deliver(subject, context, body) => reply,
            () = self.world.clock.sleep(deadline) => {
                Err(RequestError::Deadline { subject: subject.to_string(), deadline })
            }
        }
    }

    async fn serve(&self, subject: &Subject, group: &str, handler: Handler) -> Result<Serving, BusError> {
        checked(subject)?;
        Ok(Serving(Box::new(self.requests.join(subject.as_str(), group, handler, permits()))))
    }

    async fn publish(&self, subject: &Subject, body: Bytes) -> Result<(), BusError> {
        checked(subject)?;
        fits(body.len())?;
        self.notices.publish(subject.as_str(), &body);
        Ok(())
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, BusError> {
        checked(subject)?;
        Ok(self.notices.subscribe(subject.as_str(), &*self.world.spawner))
    }

    async fn open_stream(
        &self,
        subject: &Subject,
        context: &RequestContext,
        window: u32,
        opening: Opening,
    ) -> Result<ByteStream, RequestError> {
        checked(subject)?;
        fits_first(opening.first.len(), window)?;
        let header = encoded(context, opening.first.len())?;
        let chosen = self.streams.choose(subject.as_str(), &*self.world.random);
        let Some(member) = chosen.into_iter().next() else {
            return Err(RequestError::NoResponder { subject: subject.to_string() });
        };
        let deadline = Duration::from_millis(u64::from(context.deadline_millis));
        let permit = tokio::select! {
            biased;
            permit = Arc::clone(&member.permits).acquire_owned() => permit,
            () = self.world.clock.sleep(deadline) => {
                return Err(RequestError::Deadline { subject: subject.to_string(), deadline });
            }
        };
        let opened = streams::pair(window, opening);
        let (near, far) = opened.map_err(|reset| RequestError::Away { detail: reset.reason })?;
        let handling = (member.handler)(decoded(&header)?, far);
        let task = async move {
            handling.await;
            drop(permit);
        };
        self.world.spawner.spawn("bus stream", Box::pin(task));
        Ok(near)
    }

    async fn serve_streams(
        &self,
        subject: &Subject,
        group: &str,
        handler: StreamHandler,
    ) -> Result<Serving, BusError> {
        checked(subject)?;
        Ok(Serving(Box::new(self.streams.join(subject.as_str(), group, handler, permits()))))
    }
}

fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAXIMUM_CONCURRENT))
}

/// The context as it would stand in headers, which count towards the limit.
fn encoded(context: &RequestContext, body: usize) -> Result<Vec<u8>, RequestError> {
    let header = events::encode(context).map_err(|error| RequestError::Away { detail: error.to_string() })?;
    fits(header.len() + body)?;
    Ok(header)
}

fn decoded(header: &[u8]) -> Result<RequestContext, RequestError> {
    events::decode(header).map_err(|error| RequestError::Away { detail: error.to_string() })
}

#[cfg(test)]
mod tests;
