//! What a push sets off: the hook tells the server, the server remembers the push and calls the webhooks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{Push, State};
use crate::background::runtime;
use crate::cluster::client_trusting;

/// Where the hooks report to, on the server's own port.
pub(super) const HOOK_PATH: &str = "/.pushed/";

/// A webhook of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Where to POST.
    pub url: String,
    /// In whose form.
    pub style: WebhookStyle,
    /// The shared secret.
    pub secret: String,
    /// The certificate authority of an `https` URL, PEM; empty for `http`.
    pub authority: String,
}

/// The form of a webhook: headers, signature and body as that forge sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookStyle {
    /// Kasbah's own: `Kasbah-Signature: sha256=<HMAC of the body>`.
    Plain,
    /// `X-Gitlab-Token`, the secret itself.
    GitLab,
    /// `X-Hub-Signature-256: sha256=<HMAC of the body>`.
    GitHub,
    /// `X-Gitea-Signature: <HMAC of the body>`.
    Gitea,
}

impl Webhook {
    /// The body for one push to a repository with this URL.
    pub fn body(&self, push: &Push, repository_url: &str) -> Value {
        let names = json!({
            "name": push.repository, "full_name": push.repository, "path_with_namespace": push.repository,
            "git_http_url": repository_url, "clone_url": repository_url, "url": repository_url,
        });
        let mut body =
            json!({"ref": push.reference, "before": push.before, "after": push.after, "repository": names});
        if self.style == WebhookStyle::GitLab
            && let Some(fields) = body.as_object_mut()
        {
            fields.insert("object_kind".into(), "push".into());
            fields.insert("project".into(), names);
            fields.insert("checkout_sha".into(), push.after.clone().into());
        }
        body
    }

    /// The headers that go with that body.
    pub fn headers(&self, body: &[u8]) -> Vec<(&'static str, String)> {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, self.secret.as_bytes());
        let signature = hex::encode(ring::hmac::sign(&key, body));
        match self.style {
            WebhookStyle::Plain => vec![("kasbah-signature", format!("sha256={signature}"))],
            WebhookStyle::GitLab => {
                vec![("x-gitlab-event", "Push Hook".into()), ("x-gitlab-token", self.secret.clone())]
            }
            WebhookStyle::GitHub => {
                vec![
                    ("x-github-event", "push".into()),
                    ("x-hub-signature-256", format!("sha256={signature}")),
                ]
            }
            WebhookStyle::Gitea => vec![("x-gitea-event", "push".into()), ("x-gitea-signature", signature)],
        }
    }

    /// Calls it for a push, as the forge does; with further headers.
    pub async fn call(
        self,
        push: Push,
        repository_url: String,
        further: Vec<(&'static str, String)>,
    ) -> Result<StatusCode> {
        self.send(&self.body(&push, &repository_url), further).await
    }

    /// Calls it with any body.
    pub async fn send(&self, body: &Value, further: Vec<(&'static str, String)>) -> Result<StatusCode> {
        let body = serde_json::to_vec(body)?;
        let mut request = client_trusting(self.authority.as_bytes())?.post(&self.url);
        for (name, value) in self.headers(&body).into_iter().chain(further) {
            request = request.header(name, value);
        }
        let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        Ok(request.send().await?.status())
    }
}

/// The hook: notes the time, hands over what it was given, and ends without waiting.
pub(super) fn hook_script(port: u16, repository: &str) -> String {
    format!(
        r#"#!/usr/bin/env bash
export LC_ALL=C
started=${{EPOCHREALTIME:-}}
moved=$(cat)
exec 3<>/dev/tcp/127.0.0.1/{port} || exit 0
printf 'POST {HOOK_PATH}{repository}?started=%s HTTP/1.1\r\nHost: hook\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' \
  "$started" "${{#moved}}" "$moved" >&3
"#
    )
}

/// Takes the report of a hook. The caller's push goes on while webhooks are called.
pub(super) async fn receive(state: &Arc<State>, request: Request<Incoming>) -> Result<StatusCode> {
    let repository = request.uri().path().trim_start_matches(HOOK_PATH).to_owned();
    let hook_started = started(request.uri().query().unwrap_or_default()).unwrap_or_else(SystemTime::now);
    let body: Bytes = request.into_body().collect().await.context("half a report")?.to_bytes();
    let webhooks = match state.repositories.lock().get(&repository) {
        Some(settings) => settings.webhooks.clone(),
        None => return Ok(StatusCode::NOT_FOUND),
    };
    let url = format!("http://{}/{repository}.git", state.address);
    for line in String::from_utf8_lossy(&body).lines() {
        let mut words = line.split(' ').map(str::to_owned);
        let (Some(before), Some(after), Some(reference)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let push = Push { repository: repository.clone(), reference, before, after, hook_started };
        state.pushes.lock().push(push.clone());
        for webhook in &webhooks {
            runtime().spawn(webhook.clone().call(push.clone(), url.clone(), Vec::new()));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `started=<seconds>.<microseconds>` as the shell tells it.
fn started(query: &str) -> Option<SystemTime> {
    let (seconds, micros) = query.strip_prefix("started=")?.split_once('.')?;
    let since = Duration::from_secs(seconds.parse().ok()?) + Duration::from_micros(micros.parse().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shells_time_is_read() {
        let time = started("started=1700000000.000250").unwrap();
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since, Duration::from_micros(1_700_000_000_000_250));
        assert!(started("started=").is_none() && started("").is_none());
    }

    #[test]
    fn github_signs_the_body() {
        let webhook = Webhook {
            url: String::new(),
            style: WebhookStyle::GitHub,
            secret: "It's a Secret to Everybody".into(),
            authority: String::new(),
        };
        let headers = webhook.headers(b"Hello, World!");
        let expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(headers.contains(&("x-hub-signature-256", expected.to_owned())), "{headers:?}");
    }
}
