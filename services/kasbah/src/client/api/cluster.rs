//! A cluster's own API, at the gateway.

use events::request::{Refusal, RefusalKind};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, StatusCode, Url};
use serde_json::Value;

use super::{ANSWER_TIMEOUT, Api, Query, bearer};
use crate::client::failure::Failure;
use crate::client::settings::Settings;
use world::World;

impl Api {
    /// Makes ready to ask the cluster at this URL with a token; does not connect yet.
    ///
    /// # Errors
    /// When the URL or the file of certificate authorities cannot be read.
    pub fn of_cluster(url: &str, token: &str, settings: &Settings, world: &World) -> Result<Self, Failure> {
        let bearer = bearer(token)?;
        let url = Url::parse(url).map_err(|error| Failure::usage("--clusters", format!("{url}: {error}")))?;
        let api = Self::with(&url, settings.ca_file.as_deref(), Some(bearer), world)?;
        // Paths of Kubernetes follow, without the prefix of Kasbah's API.
        Ok(Self { root: url, ..api })
    }

    /// Patches an object of the cluster; gives it as it is then.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or refuses.
    pub async fn patch(
        &self,
        path: &[&str],
        query: &Query<'_>,
        (media_type, patch): (&str, &Value),
    ) -> Result<Value, Failure> {
        let request = self.http.patch(self.url(path, query)).timeout(ANSWER_TIMEOUT);
        let request = request.header(CONTENT_TYPE, media_type).body(patch.to_string());
        let response = request.send().await.map_err(|error| self.failure(&error))?;
        if !response.status().is_success() {
            return Err(self.refused_by_cluster(response).await);
        }
        self.decoded(response).await
    }

    /// A refusal of the cluster's API, or of the gateway, which answers in the same form.
    async fn refused_by_cluster(&self, response: Response) -> Failure {
        let status = response.status();
        let body = response.bytes().await.unwrap_or_default();
        let said: Option<Value> = serde_json::from_slice(&body).ok();
        let message = said.as_ref().and_then(|said| said.get("message")?.as_str());
        let Some(message) = message else {
            return self.unreadable(format!("HTTP status {status} without a reason"));
        };
        let kind = match status {
            StatusCode::UNAUTHORIZED => RefusalKind::Unauthenticated,
            StatusCode::FORBIDDEN => RefusalKind::Denied,
            StatusCode::NOT_FOUND => RefusalKind::NotFound,
            StatusCode::CONFLICT => RefusalKind::Conflict,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => RefusalKind::Invalid,
            _ => RefusalKind::Unavailable,
        };
        Failure::Refused { refusal: Refusal::new(kind, message), retry_after: None }
    }
}
