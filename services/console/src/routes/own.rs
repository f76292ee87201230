//! Routes that do more than to pass one request on.

use std::time::Duration;

use axum::http::Method;
use events::requests::authz::{Action, Decide, ShowProject};
use events::requests::delivery::ShowSource;
use events::requests::diff::{DiffSource, SourceDiff};
use events::{Actor, OrganizationId, Refusal, RefusalKind, TokenId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::route::{Call, Route, json};
use crate::webhook;

/// A dry run in a cluster takes its time.
const DIFF_DEADLINE: Duration = Duration::from_secs(90);

/// Nothing is asked.
#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// Who you are to the server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Me {
    /// Who.
    actor: Actor,
    /// Your organization.
    organization: OrganizationId,
    /// The token that you used.
    token: TokenId,
    /// When it ends by itself.
    expires_at: Option<events::Timestamp>,
}

pub(super) fn me() -> Route {
    let summary = "Shows your identity at the server";
    Route::of::<Nothing, Me>(Method::GET, "/api/v1/me", "me", summary, |_, call| {
        Box::pin(async move {
            let Nothing {} = call.input.parse()?;
            let principal = call.principal;
            let (actor, organization) = (principal.actor, principal.organization);
            json(&Me { actor, organization, token: principal.token, expires_at: principal.expires_at })
        })
    })
}

/// Where a forge announces pushes to a project.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WebhookView {
    /// The address.
    url: String,
    /// The secret: for GitLab as the secret token, elsewhere as the key of the signature.
    secret: String,
    /// Headers of which one must be right.
    accepted: Vec<String>,
}

pub(super) fn webhook() -> Route {
    let path = "/api/v1/projects/{project}/webhook";
    let summary = "Shows the URL and the secret of a project's webhook, to users who may change the project";
    Route::of::<ShowProject, WebhookView>(Method::GET, path, "showWebhook", summary, |app, call| {
        Box::pin(async move {
            let request: ShowProject = call.input.parse()?;
            let project = bus::ask(&*app.bus, &call.context, &request).await?.id;
            let decide = Decide {
                actor: call.context.actor.clone(),
                organization: call.context.organization,
                action: Action::ChangeProject,
                scope: events::directory::Scope::Project(project),
            };
            let decision = bus::ask(&*app.bus, &call.context, &decide).await?;
            if !decision.visible {
                return Err(Refusal::not_found("project"));
            }
            if !decision.allowed {
                return Err(Refusal::new(RefusalKind::Denied, decision.reason));
            }
            let secret = webhook::secret(&*app.keys, call.context.organization, project).await?;
            let accepted = webhook::HEADERS.iter().map(|header| (*header).to_owned()).collect();
            let url = format!("{}/hooks/v1/{project}", app.api_url);
            json(&WebhookView { url, secret: secret.to_string(), accepted })
        })
    })
}

pub(super) fn diff() -> Route {
    let path = "/api/v1/sources/{source}/diff";
    let summary = "Shows what the next sync would do with each object and why, by a dry run in the cluster, also for held or suspended sources";
    Route::of::<ShowSource, SourceDiff>(Method::POST, path, "diffSource", summary, |app, call| {
        Box::pin(async move {
            let Call { input, context, .. } = call;
            let request: ShowSource = input.parse()?;
            let view = bus::ask(&*app.bus, &context, &request).await?;
            let request = DiffSource { agent: view.agent, source: view.id };
            let context = bus::within(context, DIFF_DEADLINE);
            json(&bus::ask_of_agent(&*app.bus, view.agent, &context, &request).await?)
        })
    })
}
