//! Requests of a service, each handed to the function that answers it.

use std::sync::Arc;

use events::request::RequestContext;
use events::subject::Subject;
use events::{Refusal, Request};
use futures::FutureExt as _;

use crate::contract::{Bus, BusError, Serving};
use crate::typed::answer_under;

/// A service that answers requests.
pub trait Service: Send + Sync + 'static {
    /// Answers one request with `attempt`, which it may call again. What all requests of a service have in common stands here.
    fn answer<R, F, A>(
        &self,
        context: &RequestContext,
        attempt: F,
    ) -> impl Future<Output = Result<R::Reply, Refusal>> + Send
    where
        R: Request,
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<R::Reply, Refusal>> + Send;
}

/// Serves requests of one service, each by a function of its own.
pub struct Dispatcher<'a, S> {
    bus: &'a dyn Bus,
    service: Arc<S>,
    serving: Vec<Serving>,
}

impl<'a, S: Service> Dispatcher<'a, S> {
    /// One that serves nothing yet.
    #[must_use]
    pub const fn new(bus: &'a dyn Bus, service: Arc<S>) -> Self {
        Self { bus, service, serving: Vec::new() }
    }

    /// Serves a type of request under its own subject.
    ///
    /// # Errors
    /// When the bus is away.
    pub async fn answer<R, F, A>(&mut self, function: F) -> Result<(), BusError>
    where
        R: Request + Clone,
        F: Fn(Arc<S>, RequestContext, R) -> A + Send + Sync + 'static,
        A: Future<Output = Result<R::Reply, Refusal>> + Send + 'static,
    {
        self.answer_under(&Subject::request(R::NAME), function).await
    }

    /// Serves a type of request under another subject.
    ///
    /// # Errors
    /// When the bus is away.
    pub async fn answer_under<R, F, A>(&mut self, subject: &Subject, function: F) -> Result<(), BusError>
    where
        R: Request + Clone,
        F: Fn(Arc<S>, RequestContext, R) -> A + Send + Sync + 'static,
        A: Future<Output = Result<R::Reply, Refusal>> + Send + 'static,
    {
        let (service, function) = (Arc::clone(&self.service), Arc::new(function));
        let serving = answer_under::<R, _>(self.bus, subject, move |context, request| {
            let (service, function) = (Arc::clone(&service), Arc::clone(&function));
            async move {
                let attempt = || function(Arc::clone(&service), context.clone(), request.clone());
                service.answer::<R, _, _>(&context, attempt).await
            }
            .boxed()
        });
        self.serving.push(serving.await?);
        Ok(())
    }

    /// What serves until it is dropped.
    #[must_use]
    pub fn serving(self) -> Vec<Serving> {
        self.serving
    }
}
