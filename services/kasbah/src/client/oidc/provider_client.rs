//! HTTP to an identity provider.

use std::time::Duration;

use chassis::tls::client_config_trusting_also;
use form_urlencoded::byte_serialize;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use world::World;

use super::trouble::{ProviderError, ProviderRefusal};
use crate::client::api::{CONNECT_TIMEOUT, USER_AGENT, root_cause};
use crate::client::failure::Failure;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// No metadata and no token is as long as this.
const LONGEST_ANSWER: usize = 256 * 1024;

/// A connection to a provider.
pub struct ProviderClient {
    http: Client,
}

/// What came.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The provider's own error, if it is one.
    #[must_use]
    pub fn refused(&self) -> Option<ProviderRefusal> {
        if self.status.is_success() { None } else { serde_json::from_slice(&self.body).ok() }
    }
}

impl ProviderClient {
    /// Trusts the machine's authorities and one more.
    ///
    /// # Errors
    /// When that one cannot be used.
    pub fn new(authority: Option<&str>, world: &World) -> Result<Self, ProviderError> {
        let protocols: [&[u8]; 2] = [b"h2", b"http/1.1"];
        let tls = client_config_trusting_also(world, authority.map(str::as_bytes), &protocols)?;
        let http = Client::builder()
            .tls_backend_preconfigured((*tls).clone())
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .build();
        let unusable = |error: reqwest::Error| ProviderError::odd("this machine", root_cause(&error));
        Ok(Self { http: http.map_err(unusable)? })
    }

    /// Reads.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn get(&self, url: &Url) -> Result<Answer, Failure> {
        self.send(self.http.get(url.clone()), url).await
    }

    /// Reads as the holder of a token.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn get_as(&self, url: &Url, bearer: &str) -> Result<Answer, Failure> {
        self.send(self.http.get(url.clone()).bearer_auth(bearer), url).await
    }

    /// Sends a form; `client` shows who asks, where the form does not.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn post(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        client: Option<(&str, &str)>,
    ) -> Result<Answer, Failure> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut request = self.http.post(url.clone()).body(body);
        request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some((id, secret)) = client {
            // Both are encoded before they are joined (RFC 6749, section 2.3.1).
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            request = request.basic_auth(encoded(id), Some(encoded(secret)));
        }
        self.send(request, url).await
    }

    async fn send(&self, request: RequestBuilder, url: &Url) -> Result<Answer, Failure> {
        let trouble =
            |error: reqwest::Error| match chassis::tls::explain(&error, url.host_str().unwrap_or_default()) {
                Some(trouble) => ProviderError::Certificate(trouble),
                None => {
                    let detail =
                        if error.is_timeout() { "no answer in time".to_owned() } else { root_cause(&error) };
                    ProviderError::Unreachable { asked: url.to_string(), detail }
                }
            };
        let mut response = request.header(ACCEPT, "application/json").send().await.map_err(trouble)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(trouble)? {
            body.extend_from_slice(&chunk);
            if body.len() > LONGEST_ANSWER {
                let detail = format!("it is longer than {LONGEST_ANSWER} bytes");
                return Err(ProviderError::odd(url, detail).into());
            }
        }
        Ok(Answer { status, body })
    }
}
