//! `kasbah audit`.

use events::attributes::Target;
use events::audit::{AuditPhase, AuditRecord};
use events::directory::TokenHolder;
use events::{Actor, Timestamp};
use serde_json::Value;

use crate::client::failure::Failure;
use crate::client::feed::Feed;
use crate::client::moment::Moment;
use crate::client::names::Names;
use crate::client::print::{Paint, Style, one_line};
use crate::client::session::Session;

/// Which uses of clusters.
#[derive(Debug, clap::Args)]
pub struct Audit {
    /// Show only this agent's cluster: name, group/project:name, or id
    #[arg(long)]
    agent: Option<String>,
    /// Show only requests of this user: login name or id
    #[arg(long)]
    user: Option<String>,
    /// Show only requests since a duration ago, such as 10m, or since a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// Follow new records
    #[arg(short, long)]
    follow: bool,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(wanted: Audit, session: &Session) -> Result<(), Failure> {
    let mut query = Vec::new();
    query.extend(wanted.agent.map(|agent| ("agent", agent)));
    query.extend(wanted.user.map(|user| ("user", user)));
    let now = Timestamp(session.world.clock.now_millis());
    query.extend(wanted.since.map(|since| ("since", since.before(now).to_string())));
    let mut names = Names::default();
    if session.is_for_people() {
        names = names.with_agents(session).await?.with_users(session).await?;
    }
    let feed = Feed { path: &["log", "audit"], query, follow: wanted.follow };
    let shown = feed.each(session, None, |event| {
        session.printer.show_line(&event, |event, style| line(event, &names, style))
    });
    shown.await.map(|_| ())
}

/// When, who, where, what, with what result, and by which entry.
fn line(event: &Value, names: &Names, style: Style) -> String {
    let data = event.get("data").cloned().unwrap_or_default();
    match serde_json::from_value::<AuditRecord>(data) {
        Ok(record) => of_record(&record, names, style),
        Err(_) => one_line(&event.to_string()),
    }
}

fn of_record(record: &AuditRecord, names: &Names, style: Style) -> String {
    let who = match &record.holder {
        Actor::User(id) => names.holder(TokenHolder::User(*id)),
        Actor::Job(id) => names.holder(TokenHolder::Job(*id)),
        other => other.to_string(),
    };
    let who = who.strip_prefix("user ").unwrap_or(&who).to_owned();
    let is_good = (100..400).contains(&record.code);
    let code = match record.code {
        0 if record.phase == AuditPhase::Began => "asked".to_owned(),
        0 => "left".to_owned(),
        code => code.to_string(),
    };
    let code = (if is_good { Paint::Good } else { Paint::Bad }).on(&code, style.colour);
    let mut parts = vec![
        record.began_at.to_string(),
        one_line(&who),
        one_line(&names.agent(record.agent)),
        one_line(&asked(record)),
        code,
    ];
    match record.phase {
        AuditPhase::Began => parts.push("began".to_owned()),
        AuditPhase::Whole | AuditPhase::Ended => {
            parts.push(format!("{} ms", record.millis));
            parts.push(format!("{} B in, {} B out", record.received, record.sent));
        }
    }
    if record.is_recorded {
        parts.push(format!("recorded {}", record.id));
    }
    parts.push(Paint::Dim.on(&one_line(&record.because), style.colour));
    parts.join("  ")
}

fn asked(record: &AuditRecord) -> String {
    let target = match &record.attributes.target {
        Target::Path(path) => path.clone(),
        Target::Resource(target) => {
            let place = [&target.namespace, &target.name];
            let place: Vec<&str> =
                place.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            format!("{target} {}", place.join("/")).trim_end().to_owned()
        }
    };
    let dry = if record.dry_run { " (dry run)" } else { "" };
    format!("{} {target}{dry}", record.attributes.verb)
}

#[cfg(test)]
mod tests {
    use events::attributes::{Attributes, ResourceTarget};
    use uuid::Uuid;

    use super::*;

    fn record(phase: AuditPhase, code: u16) -> AuditRecord {
        let target = ResourceTarget {
            resource: "pods".to_owned(),
            subresource: "exec".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            ..ResourceTarget::default()
        };
        AuditRecord {
            id: Uuid::nil(),
            phase,
            agent: "00000000-0000-0000-0000-000000000001".parse().unwrap(),
            holder: Actor::service("test"),
            impersonated: true,
            attributes: Attributes { verb: "create".to_owned(), target: Target::Resource(target) },
            dry_run: false,
            is_recorded: false,
            because: "config.yaml:3".to_owned(),
            code,
            began_at: Timestamp(0),
            millis: 12,
            received: 3,
            sent: 4,
            client: String::new(),
            trace: String::new(),
        }
    }

    #[test]
    fn a_record_says_who_did_what_where_and_why_it_was_let_through() {
        let style = Style { colour: false, now: Timestamp(0) };
        let agent = "00000000-0000-0000-0000-000000000001";
        let text = |record: &AuditRecord| of_record(record, &Names::default(), style);
        assert_eq!(
            text(&record(AuditPhase::Ended, 101)),
            format!(
                "1970-01-01T00:00:00.000Z  service:test  {agent}  create pods/exec shop/web  101  12 ms  3 B in, 4 B out  config.yaml:3"
            )
        );
        assert!(text(&record(AuditPhase::Began, 101)).contains("  101  began  "));
        assert!(text(&record(AuditPhase::Began, 0)).contains("  asked  began  "));
        assert!(text(&record(AuditPhase::Whole, 0)).contains("  left  "));
        let recorded = AuditRecord { is_recorded: true, ..record(AuditPhase::Ended, 101) };
        let id = "00000000-0000-0000-0000-000000000000";
        assert!(text(&recorded).contains(&format!("  recorded {id}  config.yaml")));
        assert!(text(&AuditRecord { dry_run: true, ..record(AuditPhase::Whole, 200) }).contains("(dry run)"));
    }
}
