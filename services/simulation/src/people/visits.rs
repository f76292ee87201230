//! Requests of people to clusters' APIs, as their programs make them: a connection for each, and again where that may help.

use std::time::Duration;

use bytes::Bytes;
use events::{AgentId, TokenId};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::Person;
use crate::access::Asker;
use crate::cluster::{FOREIGN, OF_PEOPLE};
use crate::scene::CLUSTERS_PORT;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long between two attempts.
const AGAIN: Duration = Duration::from_millis(500);
/// Attempts of what somebody wants.
const ATTEMPTS: u32 = 4;

/// Somebody with a token.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    pub(super) asker: Asker,
    pub(super) token: TokenId,
    pub(super) secret: String,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) enum Wish {
    Get,
    List,
    Watch,
    /// A log without an end.
    Log,
    /// To write this value into an object of one's own.
    Write(u64),
}

impl Wish {
    /// The name of the object that somebody writes.
    pub(super) fn object_of(asker: &Asker) -> String {
        format!("{OF_PEOPLE}{}", asker.name)
    }

    /// What stands behind the namespace in its path.
    fn path(&self, asker: &Asker) -> String {
        match self {
            Self::Get => format!("configmaps/{FOREIGN}"),
            Self::List => "configmaps".to_owned(),
            Self::Watch => "configmaps?watch=1&allowWatchBookmarks=true".to_owned(),
            Self::Log => "pods/chatty/log?follow=true".to_owned(),
            Self::Write(_) => {
                format!("configmaps/{}?fieldManager=people&force=true", Self::object_of(asker))
            }
        }
    }

    fn request(&self, agent: AgentId, asker: &Asker) -> (http::request::Builder, Bytes) {
        let path = format!("/agents/{agent}/api/v1/namespaces/default/{}", self.path(asker));
        let Self::Write(value) = self else { return (Request::get(path), Bytes::new()) };
        let data = serde_json::json!({"value": value.to_string()});
        let metadata = serde_json::json!({"name": Self::object_of(asker)});
        let body = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data,
        });
        let request = Request::patch(path).header(header::CONTENT_TYPE, "application/apply-patch+yaml");
        (request, Bytes::from(body.to_string()))
    }
}

/// Whether it may help to ask again.
const fn passes(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502..=504)
}

impl Person {
    /// The head of an answer to one attempt, unless it gets lost.
    pub(super) async fn begin(
        &self,
        visitor: &Visitor,
        agent: AgentId,
        wish: &Wish,
    ) -> Option<Response<Incoming>> {
        let client = self.access.ask(&visitor.asker, visitor.token, agent, &wish.path(&visitor.asker));
        let (request, body) = wish.request(agent, &visitor.asker);
        let request = request
            .header(header::HOST, "clusters")
            .header(header::USER_AGENT, &client)
            .header(header::AUTHORIZATION, format!("Bearer {}", visitor.secret))
            .body(Full::new(body))
            .ok()?;
        let answering = async {
            let connection = self.world.network.dial("clusters", CLUSTERS_PORT).await.ok()?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await.ok()?;
            let moving = async move { drop(connection.await) };
            self.world.spawner.spawn("visitor's connection", Box::pin(moving));
            sender.send_request(request).await.ok()
        };
        let answer = tokio::select! {
            biased;
            answer = answering => answer?,
            () = self.world.clock.sleep(PATIENCE) => return None,
        };
        self.access.answered(&client, answer.status());
        Some(answer)
    }

    /// One attempt to its end; nothing if it gets lost.
    async fn attempt(&self, visitor: &Visitor, agent: AgentId, wish: &Wish) -> Option<StatusCode> {
        let answer = self.begin(visitor, agent, wish).await?;
        let status = answer.status();
        tokio::select! {
            biased;
            body = answer.into_body().collect() => body.ok().map(|_| status),
            () = self.world.clock.sleep(PATIENCE) => None,
        }
    }

    /// Some attempts; nothing if none of them helps.
    pub(super) async fn visit(&self, visitor: &Visitor, agent: AgentId, wish: &Wish) -> Option<StatusCode> {
        for _ in 0..ATTEMPTS {
            match self.attempt(visitor, agent, wish).await {
                Some(status) if !passes(status) => return Some(status),
                _ => self.world.clock.sleep(AGAIN).await,
            }
        }
        None
    }

    /// As many attempts as it takes.
    pub(super) async fn insist_on_visit(&self, visitor: &Visitor, agent: AgentId, wish: &Wish) -> StatusCode {
        loop {
            if let Some(status) = self.visit(visitor, agent, wish).await {
                return status;
            }
        }
    }

    /// What goes on, once it has begun.
    pub(super) async fn insist_on_stream(
        &self,
        visitor: &Visitor,
        agent: AgentId,
        wish: &Wish,
    ) -> Response<Incoming> {
        loop {
            match self.begin(visitor, agent, wish).await {
                Some(answer) if answer.status() == StatusCode::OK => return answer,
                _ => self.world.clock.sleep(AGAIN).await,
            }
        }
    }
}
