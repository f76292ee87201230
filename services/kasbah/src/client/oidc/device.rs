//! The device flow: somebody signs in on another device, while this one asks again and again (RFC 8628).

use std::time::Duration;

use serde::Deserialize;

use super::provider_client::Answer;
use super::{IdToken, Provider, ProviderError};
use crate::client::failure::Failure;
use crate::client::print::one_line;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Where the provider says nothing, and by how much to slow down (RFC 8628, sections 3.2 and 3.5).
const INTERVAL: u64 = 5;
const LONGEST_INTERVAL: u64 = 60;
/// Nobody waits longer than this, whatever a provider says.
const LONGEST_WAIT: u64 = 30 * 60;

/// What a person needs to sign in elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCode {
    /// What to open.
    pub address: String,
    /// What to type there.
    pub code: String,
    /// What to open to have it typed already.
    pub complete: Option<String>,
}

#[derive(Deserialize)]
struct Begun {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// What to do after an answer.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    Wait,
    /// Ask less often: it was too often, or nobody was there.
    SlowDown,
    /// The code is no good any more.
    TooLate,
}

impl Provider {
    /// Lets somebody sign in on another device; `show` is given what they need for it.
    ///
    /// # Errors
    /// When the provider refuses, or nobody signs in.
    pub async fn by_device(
        &self,
        show: impl FnOnce(&DeviceCode) -> Result<(), Failure>,
    ) -> Result<IdToken, Failure> {
        let endpoint = self.device.as_ref();
        let endpoint =
            endpoint.ok_or_else(|| ProviderError::NoDeviceFlow { provider: self.view.name.clone() })?;
        let begun: Begun = self.ask(endpoint, &[("scope", &self.scope())]).await?.read(endpoint)?;
        show(&DeviceCode {
            address: one_line(&begun.verification_uri),
            code: one_line(&begun.user_code),
            complete: begun.verification_uri_complete.as_deref().map(one_line),
        })?;
        let wait = begun.expires_in.min(LONGEST_WAIT);
        let end = self.world.clock.monotonic() + Duration::from_secs(wait);
        let mut interval = begun.interval.unwrap_or(INTERVAL).clamp(1, LONGEST_INTERVAL);
        let form = [("grant_type", GRANT), ("device_code", &begun.device_code)];
        while self.world.clock.monotonic() < end {
            self.world.clock.sleep(Duration::from_secs(interval)).await;
            let answer = self.ask(&self.token, &form).await;
            match step(&answer) {
                Step::Done => return self.id_token(&answer?),
                Step::Wait => {}
                Step::SlowDown => interval = (interval + INTERVAL).min(LONGEST_INTERVAL),
                Step::TooLate => break,
            }
        }
        Err(ProviderError::TooLate { minutes: wait.div_ceil(60) }.into())
    }
}

fn step(answer: &Result<Answer, Failure>) -> Step {
    let answer = match answer {
        Ok(answer) => answer,
        Err(Failure::Provider(ProviderError::Unreachable { .. })) => return Step::SlowDown,
        Err(_) => return Step::Done,
    };
    match answer.refused() {
        Some(refused) if refused.error == "authorization_pending" => Step::Wait,
        Some(refused) if refused.error == "slow_down" => Step::SlowDown,
        Some(refused) if refused.error == "expired_token" => Step::TooLate,
        None if answer.status.is_server_error() || answer.status.as_u16() == 429 => Step::SlowDown,
        _ => Step::Done,
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::*;

    #[test]
    fn it_is_asked_again_until_somebody_said_something() {
        let answer = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            step(&Ok(Answer { status, body: body.as_bytes().to_vec() }))
        };
        assert_eq!(answer(400, r#"{"error": "authorization_pending"}"#), Step::Wait);
        assert_eq!(answer(400, r#"{"error": "slow_down"}"#), Step::SlowDown);
        assert_eq!(answer(502, "<html>"), Step::SlowDown);
        assert_eq!(answer(429, ""), Step::SlowDown);
        assert_eq!(answer(400, r#"{"error": "access_denied"}"#), Step::Done);
        assert_eq!(answer(400, r#"{"error": "expired_token"}"#), Step::TooLate);
        assert_eq!(answer(200, r#"{"id_token": "a.b.c"}"#), Step::Done);
        let lost = ProviderError::Unreachable { asked: "https://a".into(), detail: "reset".into() };
        assert_eq!(step(&Err(lost.into())), Step::SlowDown);
        assert_eq!(step(&Err(ProviderError::OtherSignIn.into())), Step::Done);
    }
}
