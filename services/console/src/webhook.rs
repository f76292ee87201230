//! Webhooks: a forge says that somebody pushed, or how a job that deploys ended. Verified in constant time, passed on over the bus, answered at once.

mod job;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use events::request::RequestContext;
use events::requests::authz::LocateProject;
use events::requests::environments::ReportDeployment;
use events::requests::repository::RepositoryPushed;
use events::{CorrelationId, OrganizationId, ProjectId, Refusal, RefusalKind};
use ring::{hkdf, hmac};
use serde::Deserialize;
use store::{KeyName, KeyRing};
use zeroize::Zeroizing;

use crate::app::{App, read_body, traceparent};
use crate::problem;

/// Largest body of a webhook, in bytes: forges list commits in it.
const MAXIMUM_HOOK: usize = 4 * 1024 * 1024;
const WEBHOOKS: &[u8] = b"kasbah webhooks";
const PLAIN: &str = "kasbah-signature";
const GITHUB: &str = "x-hub-signature-256";
const GITEA: &str = "x-gitea-signature";
const GITLAB: &str = "x-gitlab-token";

/// The headers of which one must be right: plain, GitHub's, Gitea's, GitLab's.
pub const HEADERS: [&str; 4] =
    ["Kasbah-Signature", "X-Hub-Signature-256", "X-Gitea-Signature", "X-Gitlab-Token"];

/// The secret of a project's webhook, derived from the organization's key.
///
/// # Errors
/// When the key ring is away.
pub async fn secret(
    keys: &dyn KeyRing,
    organization: OrganizationId,
    project: ProjectId,
) -> Result<Zeroizing<String>, Refusal> {
    let key = keys.get_or_create(KeyName::Organization(organization)).await;
    let key = key.map_err(|error| Refusal::new(RefusalKind::Unavailable, format!("{error}; retry")))?;
    let mut bytes = Zeroizing::new([0_u8; 32]);
    hkdf::Salt::new(hkdf::HKDF_SHA256, WEBHOOKS)
        .extract(&key)
        .expand(&[project.0.as_bytes()], hkdf::HKDF_SHA256)
        .and_then(|expanded| expanded.fill(bytes.as_mut_slice()))
        .map_err(|_| Refusal::new(RefusalKind::Internal, "cannot derive a key"))?;
    Ok(Zeroizing::new(hex::encode(bytes.as_slice())))
}

/// A project that exists, and its organization.
type Located = (OrganizationId, ProjectId);

/// What all forges say in the same field.
#[derive(Deserialize)]
struct Push {
    #[serde(rename = "ref")]
    reference: String,
}

/// Receives a webhook. An unknown project and a wrong signature read the same.
pub async fn receive(
    State(app): State<Arc<App>>,
    Path(project): Path<String>,
    headers: HeaderMap,
    request: axum::extract::Request,
) -> Response {
    let body = match read_body(&app, request.into_body(), MAXIMUM_HOOK).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let verified = match secret_of(&app, &project).await {
        Ok((located, secret)) => verify(&headers, &body, &secret).then_some(located).flatten(),
        Err(refusal) => return problem::response(&refusal),
    };
    let Some((organization, project)) = verified else {
        return problem::response(&Refusal::new(RefusalKind::Unauthenticated, "the signature is wrong"));
    };
    if let Some(job) = job::JobEvent::of(&body) {
        return end_deployments(&app, organization, project, job, traceparent(&headers)).await;
    }
    let correlation_id = CorrelationId(app.world.new_uuid());
    let reference = serde_json::from_slice::<Push>(&body).ok().map(|push| push.reference);
    let pushed = RepositoryPushed { project, reference, correlation_id, traceparent: traceparent(&headers) };
    match bus::announce(&*app.bus, &pushed).await {
        Ok(()) => {
            app.counts.pushes.inc();
            let answer = serde_json::json!({ "correlation_id": correlation_id });
            (StatusCode::ACCEPTED, axum::Json(answer)).into_response()
        }
        Err(refusal) => problem::response(&refusal),
    }
}

/// Ends the deployments that a CI system reports, if any runs.
async fn end_deployments(
    app: &App,
    organization: OrganizationId,
    project: ProjectId,
    job: job::JobEvent,
    traceparent: Option<String>,
) -> Response {
    let context = bus::context_for_service(&app.world, "console", organization);
    let context = RequestContext { traceparent, ..context };
    let correlation_id = context.correlation_id;
    let ended = match job {
        job::JobEvent::GoesOn => Ok(Vec::new()),
        job::JobEvent::Ended { which, succeeded, reason } => {
            let report = ReportDeployment { project, which, succeeded, reason };
            bus::ask(&*app.bus, &context, &report).await
        }
        job::JobEvent::Wrong(message) => Err(Refusal::invalid("deployment", message)),
    };
    match ended {
        Ok(ended) => {
            app.counts.deployment_reports.inc();
            let answer = serde_json::json!({ "correlation_id": correlation_id, "ended": ended });
            (StatusCode::ACCEPTED, axum::Json(answer)).into_response()
        }
        Err(refusal) => problem::response(&refusal),
    }
}

/// The project's secret; for one that does not exist a secret that nobody knows, so that the same work is done.
async fn secret_of(app: &App, text: &str) -> Result<(Option<Located>, Zeroizing<String>), Refusal> {
    let located = match text.parse::<ProjectId>() {
        Ok(project) => {
            let context = bus::context_for_service(&app.world, "console", OrganizationId::SYSTEM);
            match bus::ask(&*app.bus, &context, &LocateProject { project }).await {
                Ok(location) => Some((location.organization, project)),
                Err(refusal) if refusal.kind == RefusalKind::NotFound => None,
                Err(refusal) => return Err(refusal),
            }
        }
        Err(_) => None,
    };
    let (organization, project) =
        located.unwrap_or((OrganizationId::SYSTEM, ProjectId(app.world.new_uuid())));
    Ok((located, secret(&*app.keys, organization, project).await?))
}

/// Whether the first of the known headers that is there is right.
fn verify(headers: &HeaderMap, body: &[u8], secret: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed =
        |signature: &str| hex::decode(signature).is_ok_and(|tag| hmac::verify(&key, body, &tag).is_ok());
    if let Some(signature) = text(PLAIN).or_else(|| text(GITHUB)) {
        return signature.strip_prefix("sha256=").is_some_and(signed);
    }
    if let Some(signature) = text(GITEA) {
        return signed(signature);
    }
    // The token is the secret itself: both are compared under a key, in constant time.
    text(GITLAB).is_some_and(|token| {
        let expected = hmac::sign(&key, secret.as_bytes());
        hmac::verify(&key, token.as_bytes(), expected.as_ref()).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const SECRET: &str = "2f0c";
    const BODY: &[u8] = br#"{"ref":"refs/heads/main"}"#;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())])
    }

    fn signature() -> String {
        hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), BODY))
    }

    #[test]
    fn each_forges_way_of_signing_is_taken() {
        for (name, value) in [
            (PLAIN, format!("sha256={}", signature())),
            (GITHUB, format!("sha256={}", signature())),
            (GITEA, signature()),
            (GITLAB, SECRET.to_owned()),
        ] {
            assert!(verify(&headers(name, &value), BODY, SECRET), "{name}");
            assert!(!verify(&headers(name, &value), BODY, "other"), "{name} with another secret");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for name in [PLAIN, GITHUB, GITEA] {
            let signed = headers(name, &format!("sha256={}", signature()));
            assert!(!verify(&signed, b"other body", SECRET), "{name}");
        }
        for (name, value) in [
            (PLAIN, signature()),
            (PLAIN, "sha256=".to_owned()),
            (PLAIN, "sha256=zz".to_owned()),
            (GITEA, String::new()),
            (GITLAB, String::new()),
            (GITLAB, "2f0".to_owned()),
        ] {
            assert!(!verify(&headers(name, &value), BODY, SECRET), "{name}: {value}");
        }
        assert!(!verify(&HeaderMap::new(), BODY, SECRET));
        let mut both = headers(GITLAB, SECRET);
        both.insert(PLAIN, HeaderValue::from_static("sha256=00"));
        assert!(!verify(&both, BODY, SECRET), "a wrong signature is not made good by another header");
    }
}
