//! Events of the server as they come, also across its restart.

use std::time::Duration;

use serde_json::Value;

use super::failure::Failure;
use super::session::Session;

/// Pause before a broken feed is taken up again.
const PAUSE: Duration = Duration::from_secs(2);

/// What is read, and from where.
pub struct Feed<'a> {
    /// Path below the API.
    pub path: &'a [&'a str],
    /// What of it.
    pub query: Vec<(&'static str, String)>,
    /// Also what comes later.
    pub follow: bool,
}

impl Feed<'_> {
    /// Gives each event behind `position`, and answers the position behind all of them.
    ///
    /// # Errors
    /// When the server refuses, cannot be asked, or ends it and it was not to be followed.
    pub async fn each(
        &self,
        session: &Session,
        mut position: Option<String>,
        mut give: impl FnMut(Value) -> Result<(), Failure>,
    ) -> Result<Option<String>, Failure> {
        loop {
            match self.once(session, &mut position, &mut give).await {
                Ok(()) if !self.follow => return Ok(position),
                Err(failure) if !self.follow || !failure.is_transient() => return Err(failure),
                Ok(()) => {}
                Err(failure) => eprintln!("warning: {failure}"),
            }
            session.world.clock.sleep(PAUSE).await;
        }
    }

    async fn once(
        &self,
        session: &Session,
        position: &mut Option<String>,
        give: &mut impl FnMut(Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut query = self.query.clone();
        query.extend(position.as_ref().map(|from| ("from", from.clone())));
        if self.follow {
            query.push(("follow", "true".to_owned()));
        }
        let mut reader = session.api.open(self.path, &query).await?;
        while let Some(text) = reader.next().await? {
            let Some(event) = parse(&text)? else { continue };
            let behind = event.get("position").and_then(Value::as_str).map(str::to_owned);
            give(event)?;
            if behind.is_some() {
                *position = behind;
            }
        }
        Ok(())
    }
}

/// The event of a line; `None` for the empty ones that keep a quiet answer open.
fn parse(text: &str) -> Result<Option<Value>, Failure> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text).map(Some).map_err(|error| Failure::Unreadable {
        server: "the server".to_owned(),
        detail: format!("an event that is not JSON: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_no_event() {
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("{\"type\":\"a\"}").unwrap(), Some(serde_json::json!({"type": "a"})));
        assert_eq!(parse("<html>").unwrap_err().code(), 1);
    }
}
