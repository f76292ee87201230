//! The messages that webhooks get.

use bytes::Bytes;
use events::export::{ExportPosition, GAP};
use events::subscription::WebhookFormat;
use events::{CloudEvent, EnvironmentId};
use serde_json::{Value, json};

use crate::alerts::Alert;

/// Longest text about why something happened.
const LONGEST_REASON: usize = 500;

/// A message as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// The same whenever it is sent again.
    pub(crate) id: String,
    pub(crate) media: &'static str,
    pub(crate) body: Bytes,
}

/// The message about an environment that is degraded, or well again.
pub(crate) fn render_alert(
    format: WebhookFormat,
    alert: &Alert,
    name: &str,
    page_url: Option<&str>,
) -> Message {
    let link = link(Some(alert.environment), page_url);
    let state = if alert.is_degraded { "degraded" } else { "recovered" };
    let mut text = match alert.is_degraded {
        true => format!("environment {name} degraded because {}, since {}", alert.reason, alert.since),
        false => format!("environment {name} recovered at {}", alert.since),
    };
    if let Some(change) = &alert.last_change {
        let by = change.by.as_deref().unwrap_or("somebody unknown");
        text += &format!(", last change {} by {by} at {}", change.what, change.at);
    }
    if let Some(link) = &link {
        text += &format!(", {link}");
    }
    let body = match format {
        WebhookFormat::Slack => json!({ "text": escaped(&text) }),
        WebhookFormat::CloudEvents | WebhookFormat::Message => json!({
            "text": text,
            "state": state,
            "environment": alert.environment,
            "name": name,
            "reason": alert.reason,
            "since": alert.since,
            "last_change": alert.last_change.as_ref().map(|change| json!({
                "what": change.what, "by": change.by, "at": change.at,
            })),
            "link": link,
        }),
    };
    let id = format!("{}/{state}/{}", alert.environment, alert.since.0);
    Message { id, media: "application/json", body: Bytes::from(body.to_string()) }
}

/// The message about an event.
pub(crate) fn render(format: WebhookFormat, event: &CloudEvent, page_url: Option<&str>) -> Message {
    let (media, body) = rendered(format, event, page_url);
    Message { id: event.id.clone(), media, body }
}

fn rendered(format: WebhookFormat, event: &CloudEvent, page_url: Option<&str>) -> (&'static str, Bytes) {
    let json = |value: &Value| Bytes::from(value.to_string());
    match format {
        WebhookFormat::CloudEvents => {
            let position = ExportPosition::of(event).map(|position| position.to_string());
            let event = CloudEvent { position, exportrun: None, ..event.clone() };
            ("application/cloudevents+json", Bytes::from(event.to_json()))
        }
        WebhookFormat::Slack => {
            ("application/json", json(&json!({ "text": escaped(&text(event, page_url)) })))
        }
        WebhookFormat::Message => {
            let message = json!({
                "text": text(event, page_url),
                "type": event.event_type,
                "subject": event.subject,
                "reason": reason(&event.data),
                "since": event.time,
                "by": event.actor,
                "project": event.project,
                "environment": event.environment,
                "agent": event.agent,
                "link": link(event.environment, page_url),
                "event": event.id,
            });
            ("application/json", json(&message))
        }
    }
}

/// The event in a line.
fn text(event: &CloudEvent, page_url: Option<&str>) -> String {
    if event.event_type == GAP {
        return "events are missing here: they had left the server before they could be sent".to_owned();
    }
    let what = event.event_type.strip_prefix("kasbah.").unwrap_or(&event.event_type).replace(['.', '-'], " ");
    let mut text = format!("{what} ({})", event.subject);
    if let Some(reason) = reason(&event.data) {
        text += &format!(": {reason}");
    }
    text += &format!(", at {}", event.time);
    if let Some(actor) = &event.actor {
        text += &format!(", by {actor}");
    }
    if let Some(link) = link(event.environment, page_url) {
        text += &format!(", {link}");
    }
    text
}

/// What the data says about why, if it does.
fn reason(data: &Value) -> Option<String> {
    let said = ["message", "reason", "outcome", "status"].iter().find_map(|name| data.get(*name)?.as_str());
    let said = said.or_else(|| data.get("failure")?.get("message")?.as_str())?;
    Some(said.chars().filter(|letter| !letter.is_control()).take(LONGEST_REASON).collect())
}

/// Where the web page shows more.
fn link(environment: Option<EnvironmentId>, page_url: Option<&str>) -> Option<String> {
    let (url, environment) = (page_url?, environment?);
    Some(format!("{}/environments/{environment}", url.trim_end_matches('/')))
}

/// Slack reads these three as its own markup: https://docs.slack.dev/messaging/formatting-message-text
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: &Value) -> CloudEvent {
        let json = json!({
            "specversion": "1.0", "id": "e", "source": "/organizations/1", "type": "kasbah.observed.health-changed",
            "subject": "agent-1", "time": "2026-01-01T00:00:00Z", "datacontenttype": "application/json",
            "recordedat": "2026-01-01T00:00:00Z", "data": data,
        });
        CloudEvent::from_json(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_hostile_text_is_no_markup_for_slack() {
        let event = event(
            &json!({ "status": "degraded", "message": "<!channel> & <https://evil.example|here>\u{1b}[31m" }),
        );
        let message = render(WebhookFormat::Slack, &event, None);
        let body: Value = serde_json::from_slice(&message.body).unwrap();
        let text = body["text"].as_str().unwrap();
        assert!(text.contains("observed health changed (agent-1): &lt;!channel&gt; &amp;"), "{text}");
        assert!(!text.contains(['<', '\u{1b}']), "{text}");
    }

    #[test]
    fn an_event_is_sent_as_it_is() {
        let event = event(&json!({}));
        let message = render(WebhookFormat::CloudEvents, &event, None);
        assert_eq!(message.media, "application/cloudevents+json");
        assert_eq!(CloudEvent::from_json(&message.body).unwrap(), event);
    }

    #[test]
    fn an_alert_says_what_why_since_when_and_because_of_what() {
        use crate::alerts::Change;
        let at = events::Timestamp(0);
        let last_change = Some(Change { what: "0123".into(), by: Some("user:1".into()), at });
        let environment = EnvironmentId(uuid::Uuid::from_u128(1));
        let mut alert = Alert {
            environment,
            is_degraded: true,
            reason: "<b>".into(),
            object: None,
            since: at,
            last_change,
        };
        let said = |alert: &Alert| {
            let message = render_alert(WebhookFormat::Slack, alert, "production", Some("https://k.example/"));
            serde_json::from_slice::<Value>(&message.body).unwrap()["text"].as_str().unwrap().to_owned()
        };
        assert_eq!(
            said(&alert),
            format!(
                "environment production degraded because &lt;b&gt;, since 1970-01-01T00:00:00.000Z, last change 0123 by user:1 \
                 at 1970-01-01T00:00:00.000Z, https://k.example/environments/{environment}"
            )
        );
        alert.is_degraded = false;
        assert!(said(&alert).starts_with("environment production recovered at 1970"));
    }
}
