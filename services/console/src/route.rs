//! One route: what the router, the OpenAPI document and the tests need of it.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bus::Bus;
use events::request::RequestContext;
use events::requests::authz::{Principal, ShowAgent};
use events::{AgentId, Refusal, RefusalKind, Request, Sha256};
use futures::future::BoxFuture;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::app::App;
use crate::input::Input;

/// One request to the API.
pub struct Call {
    /// What it says.
    pub input: Input,
    /// Who asks, in which chain.
    pub context: RequestContext,
    /// The caller's token.
    pub principal: Principal,
    /// Hash of the token, for asking again whether it is still live.
    pub token: Sha256,
    /// The caller wants server-sent events instead of lines of JSON.
    pub server_sent: bool,
    /// Where a reader of server-sent events left off, as its browser says when it comes again.
    pub last_event: Option<String>,
}

/// Answers a call.
pub type Run = Arc<dyn Fn(Arc<App>, Call) -> BoxFuture<'static, Result<Response, Refusal>> + Send + Sync>;

/// Adds a type to the schemas of the document.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A route of the API.
#[derive(Clone)]
pub struct Route {
    /// Its method.
    pub method: Method,
    /// Its path, with `{parameters}`.
    pub path: &'static str,
    /// Its name in the document.
    pub operation: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The fields that it takes: from path, query (GET, DELETE) or body (the others).
    pub request: SchemaOf,
    /// What it answers.
    pub reply: SchemaOf,
    /// Whether it is answered without a token: what it asks has to prove itself.
    pub is_open: bool,
    /// Media type of the answer.
    pub media: &'static str,
    /// Status of a success.
    pub status: StatusCode,
    /// Does it.
    pub run: Run,
}

impl Route {
    /// A route that passes a request of the bus on as the caller.
    #[must_use]
    pub fn ask<R>(method: Method, path: &'static str, operation: &'static str, summary: &'static str) -> Self
    where
        R: Request + JsonSchema,
        R::Reply: JsonSchema,
    {
        Self::of::<R, R::Reply>(method, path, operation, summary, |app, call| {
            Box::pin(async move {
                let request: R = call.input.parse()?;
                json(&bus::ask(&*app.bus, &call.context, &request).await?)
            })
        })
    }

    /// The same for a request that takes an agent's id, which people may give by name.
    #[must_use]
    pub fn ask_about_agent<R>(
        method: Method,
        path: &'static str,
        operation: &'static str,
        summary: &'static str,
    ) -> Self
    where
        R: Request + JsonSchema,
        R::Reply: JsonSchema,
    {
        Self::of::<R, R::Reply>(method, path, operation, summary, |app, mut call| {
            Box::pin(async move {
                if let Some(agent) = call.input.text("agent").map(str::to_owned) {
                    call.input.set("agent", visible_agent(&app, &call.context, agent).await?.to_string());
                }
                let request: R = call.input.parse()?;
                json(&bus::ask(&*app.bus, &call.context, &request).await?)
            })
        })
    }

    /// A route with an answer of its own.
    #[must_use]
    pub fn of<I: JsonSchema, O: JsonSchema>(
        method: Method,
        path: &'static str,
        operation: &'static str,
        summary: &'static str,
        run: impl Fn(Arc<App>, Call) -> BoxFuture<'static, Result<Response, Refusal>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            method,
            path,
            operation,
            summary,
            request: |generator| generator.subschema_for::<I>(),
            reply: |generator| generator.subschema_for::<O>(),
            is_open: false,
            media: "application/json",
            status: StatusCode::OK,
            run: Arc::new(run),
        }
    }

    /// The same without a token: it is asked as the console, which may ask little.
    #[must_use]
    pub fn open(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// The same with answers of that media type.
    #[must_use]
    pub fn answering(mut self, media: &'static str) -> Self {
        self.media = media;
        self
    }

    /// The names of the parameters in its path.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')))
    }

    /// Whether fields come from the query instead of the body.
    #[must_use]
    pub fn has_query(&self) -> bool {
        self.method == Method::GET || self.method == Method::DELETE
    }
}

/// The agent that the caller means, if they may see it. An id is asked for as well.
///
/// # Errors
/// Not found.
pub async fn visible_agent(app: &App, context: &RequestContext, agent: String) -> Result<AgentId, Refusal> {
    bus::ask(&*app.bus as &dyn Bus, context, &ShowAgent { agent }).await.map(|view| view.id)
}

/// A JSON answer.
///
/// # Errors
/// When it cannot be expressed, which tests of the type show.
pub fn json<T: Serialize>(value: &T) -> Result<Response, Refusal> {
    let value = serde_json::to_value(value)
        .map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
    Ok(axum::Json(value).into_response())
}
