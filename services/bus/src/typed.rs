//! Typed requests and notices over any bus.

use std::sync::Arc;

use bytes::Bytes;
use events::request::RequestContext;
use events::subject::Subject;
use events::{AgentId, Notice, Refusal, RefusalKind, Request};
use futures::future::BoxFuture;

use crate::contract::{Bus, BusError, Handler, MAXIMUM_MESSAGE_BYTES, RequestError, Serving};

/// Kept free in a reply for what a bus adds.
const REPLY_HEADROOM: usize = 1024;

/// Asks any replica of the service that answers this type. Trouble of the bus becomes a refusal "unavailable, retry".
///
/// # Errors
/// The service's refusal, or `Unavailable`.
pub async fn ask<R: Request>(
    bus: &dyn Bus,
    context: &RequestContext,
    request: &R,
) -> Result<R::Reply, Refusal> {
    ask_under(bus, &Subject::request(R::NAME), context, request).await
}

/// Asks under another subject than the type's own, such as one replica's.
///
/// # Errors
/// As [`ask`].
pub async fn ask_under<R: Request>(
    bus: &dyn Bus,
    subject: &Subject,
    context: &RequestContext,
    request: &R,
) -> Result<R::Reply, Refusal> {
    exchange(bus, subject, context, request, refusal_of).await
}

/// Asks the service that holds a tunnel of an agent.
///
/// # Errors
/// As [`ask`]; `Unavailable` when the agent is not connected.
pub async fn ask_of_agent<R: Request>(
    bus: &dyn Bus,
    agent: AgentId,
    context: &RequestContext,
    request: &R,
) -> Result<R::Reply, Refusal> {
    let subject = Subject::agent_request(R::NAME, agent);
    let refusal_of = |error| match error {
        RequestError::NoResponder { .. } => {
            let message = "the agent is not connected; retry once it is";
            Refusal::new(RefusalKind::Unavailable, message)
        }
        other => refusal_of(other),
    };
    exchange(bus, &subject, context, request, refusal_of).await
}

async fn exchange<R: Request>(
    bus: &dyn Bus,
    subject: &Subject,
    context: &RequestContext,
    request: &R,
    refusal_of: impl FnOnce(RequestError) -> Refusal,
) -> Result<R::Reply, Refusal> {
    let body = events::encode(request).map_err(|error| internal(&error))?;
    let reply = bus.request(subject, context, Bytes::from(body)).await.map_err(refusal_of)?;
    events::decode::<Result<R::Reply, Refusal>>(&reply).map_err(|error| internal(&error))?
}

fn refusal_of(error: RequestError) -> Refusal {
    match error {
        RequestError::TooLarge { .. } | RequestError::BadSubject { .. } => {
            Refusal::new(RefusalKind::Invalid, error.to_string())
        }
        _ => Refusal::new(RefusalKind::Unavailable, format!("{error}; retry")),
    }
}

/// Tells whoever listens now.
///
/// # Errors
/// `Unavailable` when the bus does not take it.
pub async fn announce<N: Notice>(bus: &dyn Bus, notice: &N) -> Result<(), Refusal> {
    let body = events::encode(notice).map_err(|error| internal(&error))?;
    let published = bus.publish(&Subject::notice(N::NAME), Bytes::from(body)).await;
    published.map_err(|error| Refusal::new(RefusalKind::Unavailable, error.to_string()))
}

/// Serves a type under its own subject, in the queue group of the service (the part of its name before the dot).
///
/// # Errors
/// When the bus is away.
pub async fn answer<R, F>(bus: &dyn Bus, handler: F) -> Result<Serving, BusError>
where
    R: Request,
    F: Fn(RequestContext, R) -> BoxFuture<'static, Result<R::Reply, Refusal>> + Send + Sync + 'static,
{
    answer_under::<R, F>(bus, &Subject::request(R::NAME), handler).await
}

/// Serves a type under another subject.
///
/// # Errors
/// When the bus is away.
pub async fn answer_under<R, F>(bus: &dyn Bus, subject: &Subject, handler: F) -> Result<Serving, BusError>
where
    R: Request,
    F: Fn(RequestContext, R) -> BoxFuture<'static, Result<R::Reply, Refusal>> + Send + Sync + 'static,
{
    let group = R::NAME.split('.').next().unwrap_or(R::NAME).to_owned();
    bus.serve(subject, &group, handler_of::<R, F>(handler)).await
}

/// What answers requests of a type, for [`Bus::serve_together`].
pub fn handler_of<R, F>(handler: F) -> Handler
where
    R: Request,
    F: Fn(RequestContext, R) -> BoxFuture<'static, Result<R::Reply, Refusal>> + Send + Sync + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |context, body| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let reply = match events::decode::<R>(&body) {
                Ok(request) => handler(context, request).await,
                Err(error) => Err(Refusal::new(RefusalKind::Invalid, format!("malformed request: {error}"))),
            };
            encode_reply::<R>(&reply)
        })
    })
}

/// A reply that the bus would not carry becomes a refusal, so that the asker does not wait in vain.
fn encode_reply<R: Request>(reply: &Result<R::Reply, Refusal>) -> Bytes {
    let refused = match events::encode(reply) {
        Ok(bytes) if bytes.len() + REPLY_HEADROOM <= MAXIMUM_MESSAGE_BYTES => return Bytes::from(bytes),
        Ok(bytes) => {
            let message =
                format!("the answer has {} bytes, more than the bus carries; ask for less", bytes.len());
            Refusal::new(RefusalKind::Internal, message)
        }
        Err(error) => internal(&error),
    };
    Bytes::from(events::encode(&Err::<R::Reply, _>(refused)).unwrap_or_default())
}

fn internal(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Internal, format!("cannot encode or decode: {error}"))
}
