//! The bus over NATS.
//!
//! A request is a NATS request whose context travels in its headers; a notice is a plain message; a byte stream is a request for
//! an inbox, and then messages between two inboxes (see `streams`). While the connection is lost every request, notice and stream
//! ends at once with `Away`, because whether what was under way arrived cannot be known; serving and subscribing go on by
//! themselves when it is back.

mod connection;
mod headers;
mod link;
mod permissions;
mod serving;
mod streams;
#[cfg(not(feature = "simulation"))]
mod wire;
#[cfg(feature = "simulation")]
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use events::request::RequestContext;
use events::subject::Subject;
use futures::{FutureExt, StreamExt};
use world::World;

use crate::contract::{
    Bus, BusError, ByteStream, Handler, Opening, RequestError, Serving, StreamHandler, Subscription, checked,
    fits, fits_first,
};
use crate::queue::{Queue, hand_over};
use connection::Connection;
pub use connection::NatsOptions;
use link::Link;
pub use permissions::permissions;
use serving::{Answer, Answered, Server};
use wire::{HeaderMap, Message, WireError};

/// How long nobody may say anything about a request before it is sent again; each next time twice as long.
const FIRST_SILENCE: Duration = Duration::from_secs(1);

/// The bus of one process; cheap to clone.
#[derive(Clone)]
pub struct NatsBus {
    world: World,
    link: Link,
}

impl NatsBus {
    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// When none does, or it takes only smaller messages than the bus promises.
    pub async fn connect(world: World, options: &NatsOptions) -> Result<Self, BusError> {
        let connection = Connection::open(options).await?;
        Ok(Self { world, link: Link::new(Arc::new(connection)) })
    }

    /// The bus over a wire.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn over(world: World, wire: Arc<dyn wire::Wire>) -> Self {
        Self { world, link: Link::new(wire) }
    }

    /// Whether a server is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.wire.is_connected()
    }

    /// How often a connection was made: one more than it had to be made again.
    #[must_use]
    pub fn connects(&self) -> u64 {
        self.link.wire.connects()
    }

    async fn ask(
        &self,
        subject: &Subject,
        context: &RequestContext,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Message, RequestError> {
        fits(headers::length(&headers) + body.len())?;
        let deadline = Duration::from_millis(u64::from(context.deadline_millis));
        let lost = self.link.lost()?;
        tokio::select! {
            biased;
            answer = self.ask_until_answered(subject, headers, body) => answer,
            () = self.world.clock.sleep(deadline) => {
                Err(RequestError::Deadline { subject: subject.to_string(), deadline })
            }
            () = lost => {
                Err(RequestError::Away { detail: "the connection was lost before the answer came".to_owned() })
            }
        }
    }

    /// Sends a request, and again after a while without any sign of whoever got it: who died with it, or left just then, answers
    /// nothing. It carries its idempotency key, so that one which was done already is not done twice.
    async fn ask_until_answered(
        &self,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Message, RequestError> {
        let mut silence = FIRST_SILENCE;
        // Where the one who works on it gives the answer.
        let mut at_work: Option<String> = None;
        loop {
            let (to, headers, body) = match &at_work {
                Some(inbox) => (inbox.clone(), HeaderMap::new(), Bytes::new()),
                None => (subject.to_string(), headers.clone(), body.clone()),
            };
            let answer = tokio::select! {
                biased;
                answer = self.link.wire.request(to, headers, body) => answer,
                () = self.world.clock.sleep(silence) => {
                    tracing::debug!(%subject, "no sign of life from the receiver of a request, it is sent again");
                    at_work = None;
                    silence = silence.saturating_mul(2);
                    continue;
                }
            };
            match answer {
                Ok(answer) => match headers::working_inbox(answer.headers.as_ref()) {
                    Some(inbox) => at_work = Some(inbox),
                    None if headers::has_left(answer.headers.as_ref()) => {}
                    None => return Ok(answer),
                },
                Err(WireError::Nobody) => {
                    // Gone in the middle of it: somebody else is to do it.
                    if at_work.take().is_none() {
                        return Err(RequestError::NoResponder { subject: subject.to_string() });
                    }
                }
                Err(WireError::Failed(detail)) => return Err(RequestError::Away { detail }),
            }
        }
    }

    async fn join(&self, filter: String, group: &str, answer: Answered) -> Result<Serving, BusError> {
        let wire = &self.link.wire;
        let subscribed = wire.subscribe(filter, Some(group.to_owned())).await;
        let subscriber = subscribed.map_err(|error| BusError::Away { detail: error.to_string() })?;
        self.link.settled(&self.world).await?;
        Ok(Serving(Box::new(Server::start(&self.world, Arc::clone(wire), subscriber, answer))))
    }

    /// Takes the streams that are opened to it.
    fn accepting(&self, handler: StreamHandler) -> Answered {
        let bus = self.clone();
        Arc::new(move |message| {
            let (bus, handler) = (bus.clone(), Arc::clone(&handler));
            async move {
                let context = headers::context(message.headers.as_ref())?;
                streams::accept(&bus.world, &bus.link, message, |stream| handler(context, stream)).await
            }
            .boxed()
        })
    }
}

/// Answers requests.
fn answering(handler: Handler) -> Answered {
    Arc::new(move |message| {
        let handler = Arc::clone(&handler);
        async move {
            let context = headers::context(message.headers.as_ref())?;
            let payload = handler(context, message.payload).await;
            Some(Answer { payload, ..Answer::default() })
        }
        .boxed()
    })
}

/// A narrow filter that hears all; none if they are not of the same length.
fn filter_of_all<'a>(one: &str, others: impl IntoIterator<Item = &'a str>) -> Option<String> {
    others.into_iter().try_fold(one.to_owned(), |filter, other| filter_of_both(&filter, other))
}

/// The narrowest filter that hears both; none if they are not of the same length.
fn filter_of_both(one: &str, other: &str) -> Option<String> {
    let tokens = (one.split('.').count() == other.split('.').count())
        .then(|| one.split('.').zip(other.split('.')))?
        .map(|(one, other)| if one == other { one } else { "*" });
    Some(tokens.collect::<Vec<_>>().join("."))
}

#[async_trait]
impl Bus for NatsBus {
    async fn request(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        checked(subject)?;
        Ok(self.ask(subject, context, headers::of(context)?, body).await?.payload)
    }

    async fn serve(&self, subject: &Subject, group: &str, handler: Handler) -> Result<Serving, BusError> {
        checked(subject)?;
        self.join(subject.to_string(), group, answering(handler)).await
    }

    async fn publish(&self, subject: &Subject, body: Bytes) -> Result<(), BusError> {
        checked(subject)?;
        fits(body.len())?;
        let lost = self.link.lost()?;
        let away = |detail: String| BusError::Away { detail };
        tokio::select! {
            biased;
            published = self.link.wire.publish(subject.to_string(), None, HeaderMap::new(), body) => {
                published.map_err(|error| away(error.to_string()))
            }
            () = lost => Err(away("the connection was lost".to_owned())),
        }
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, BusError> {
        checked(subject)?;
        let away = |error: WireError| BusError::Away { detail: error.to_string() };
        let mut subscriber = self.link.wire.subscribe(subject.to_string(), None).await.map_err(away)?;
        self.link.settled(&self.world).await?;
        let queue = Arc::new(Queue::default());
        let receiver = hand_over(Arc::clone(&queue), &*self.world.spawner);
        let (filling, mut interruptions) = (Arc::clone(&queue), self.link.interruptions());
        let task = async move {
            loop {
                tokio::select! {
                    biased;
                    message = subscriber.next() => match message {
                        Some(message) => filling.push(&message.payload),
                        None => return,
                    },
                    interrupted = interruptions.changed() => match interrupted {
                        Ok(()) => filling.missed(),
                        Err(_) => return,
                    },
                }
            }
        };
        let task = self.world.spawner.spawn("nats subscription", Box::pin(task));
        Ok(Subscription { receiver, guard: Box::new(Ended { task, queue }) })
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
        let near = self.link.wire.new_inbox();
        let mut headers = headers::of(context)?;
        headers::for_opening(&mut headers, &near, window, opening.is_all);
        let answer = self.ask(subject, context, headers, opening.first.clone()).await?;
        Ok(streams::opened(&self.world, &self.link, near, (window, &opening), answer).await?)
    }

    async fn serve_streams(
        &self,
        subject: &Subject,
        group: &str,
        handler: StreamHandler,
    ) -> Result<Serving, BusError> {
        checked(subject)?;
        self.join(subject.to_string(), group, self.accepting(handler)).await
    }

    async fn serve_together(
        &self,
        group: &str,
        requests: Vec<(Subject, Handler)>,
        (streams, stream_handler): (&Subject, StreamHandler),
    ) -> Result<Serving, BusError> {
        checked(streams)?;
        for (subject, _) in &requests {
            checked(subject)?;
        }
        // A subscription costs some kilobytes, above all the queue that waits for its messages.
        let subjects = requests.iter().map(|(subject, _)| subject.as_str());
        let Some(filter) = filter_of_all(streams.as_str(), subjects) else {
            let mut serving = vec![self.serve_streams(streams, group, stream_handler).await?];
            for (subject, handler) in requests {
                serving.push(self.serve(&subject, group, handler).await?);
            }
            return Ok(Serving(Box::new(serving)));
        };
        let answers = requests.into_iter().map(|(subject, handler)| (subject, answering(handler)));
        let all: Vec<(Subject, Answered)> =
            answers.chain([(streams.clone(), self.accepting(stream_handler))]).collect();
        let any: Answered = Arc::new(move |message| {
            match all.iter().find(|(subject, _)| subject.as_str() == message.subject.as_str()) {
                Some((_, answers)) => answers(message),
                None => futures::future::ready(None).boxed(),
            }
        });
        self.join(filter, group, any).await
    }
}

/// Ends a subscription when dropped.
struct Ended {
    task: world::spawn::TaskHandle,
    queue: Arc<Queue>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.task.abort();
        self.queue.end();
    }
}

#[cfg(test)]
mod tests;
