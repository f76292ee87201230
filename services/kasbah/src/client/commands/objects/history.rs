//! `kasbah history`: each change of an object, by whom, and which fields; of deleted ones too.

use events::Timestamp;
use events::observation::FieldWriter;
use events::requests::index::ObjectChange;

use super::coverage;
use super::selection::{Likeness, Place, fields, short_agent};
use super::text::{LISTED, named, paint, word};
use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::moment::Moment;
use crate::client::print::{Cell, Paint, Style, Table, at};
use crate::client::session::Session;

const EXAMPLES: &str = "  kasbah history deploy/web                    its changes, the newest first
  kasbah history pod -n shop --since 1h        what became of the pods of a namespace in the last hour
  kasbah history deploy/gone --limit 5         of a deleted object, too
";

/// Of which objects.
#[derive(Debug, clap::Args)]
#[command(after_long_help = super::help(EXAMPLES))]
pub struct History {
    /// KIND/NAME such as deploy/web, or KIND alone; all objects if not given
    #[arg(value_name = "OBJECT")]
    object: Option<String>,
    /// The name, when OBJECT is only a kind
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    likeness: Likeness,
    /// Only changes since a duration ago, such as 10m, or since a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = since, allow_hyphen_values = true)]
    since: Option<Moment>,
    /// Judge by the rules that are declared today, and not by those of each change's time
    #[arg(long)]
    todays_rules: bool,
    #[command(flatten)]
    limit: LimitArgs,
}

/// As `--at` takes it, also with a minus as in `-1h`.
fn since(text: &str) -> Result<Moment, String> {
    Moment::parse(text.strip_prefix('-').unwrap_or(text))
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(wanted: History, session: &Session) -> Result<(), Failure> {
    let mut query = fields(wanted.object.as_deref(), wanted.name.as_deref(), &wanted.place)?;
    wanted.likeness.add_to(&mut query);
    if wanted.todays_rules {
        query.push(("todays_rules", "true".to_owned()));
    }
    if let Some(since) = wanted.since {
        let since = since.before(Timestamp(session.world.clock.now_millis()));
        query.push(("since", since.to_string()));
    }
    let path = ["objects", "changes"];
    let mut listing = Listing::<ObjectChange>::of(&session.api, &path, &query, wanted.limit);
    let mut printed = session.printer.list();
    while let Some(changes) = listing.next().await? {
        printed.page(changes, rows)?;
    }
    printed.end("no change is known")?;
    let known = coverage::warn(session, &wanted.place).await;
    if let (Some(horizon), true) = (known.and_then(|known| known.as_of.horizon), session.is_for_people()) {
        eprintln!("nothing is known of before {horizon}");
    }
    Ok(())
}

fn rows(all: &[ObjectChange], style: Style) -> Table {
    let mut table = Table::new(&["RECORDED", "AGENT", "OBJECT", "CHANGE", "BY", "HEALTH", "FIELDS"]);
    for one in all {
        table.row([
            at(one.recorded_at, style.now).into(),
            short_agent(&one.agent_name).into(),
            named(&one.identity, None).into(),
            Cell::painted(&one.what, paint_of(&one.what)),
            Cell::or_dash(one.writer.as_ref().map(writer).as_deref()),
            health(one),
            Cell::or_dash(fields_of(one).as_deref()).at_most(LISTED),
        ]);
    }
    table
}

fn paint_of(what: &str) -> Paint {
    match what {
        "created" => Paint::Good,
        "deleted" => Paint::Bad,
        "vanished" | "unobserved" | "gap" => Paint::Odd,
        "first-seen" => Paint::Dim,
        _ => Paint::Plain,
    }
}

/// `kubectl-edit`, or `kube-controller-manager (status)`.
pub(super) fn writer(writer: &FieldWriter) -> String {
    match writer.subresource.as_str() {
        "" => writer.manager.clone(),
        subresource => format!("{} ({subresource})", writer.manager),
    }
}

fn health(change: &ObjectChange) -> Cell {
    let now = word(change.health);
    match change.health_before {
        _ if matches!(change.what.as_str(), "deleted" | "vanished" | "unobserved") => Cell::or_dash(None),
        Some(before) => Cell::painted(&format!("{} → {now}", word(before)), paint(change.health)),
        None if now == "none" => Cell::or_dash(None),
        None => Cell::painted(now, paint(change.health)),
    }
}

fn fields_of(change: &ObjectChange) -> Option<String> {
    if let Some(first) = change.not_before {
        return Some(format!("deleted unseen, after {first}"));
    }
    let named = change.fields.join(", ");
    let more = change.field_count.saturating_sub(u32::try_from(change.fields.len()).unwrap_or(u32::MAX));
    match (named.is_empty(), more) {
        (true, 0) => None,
        (true, more) => Some(format!("{more} fields")),
        (false, 0) => Some(named),
        (false, more) => Some(format!("{named} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use events::requests::index::HealthState;

    use super::super::text::tests::{STYLE, object};
    use super::*;

    #[test]
    fn the_beginning_is_given_with_or_without_a_minus() {
        assert_eq!(since("-1h"), Moment::parse("1h"));
        assert_eq!(since("1h"), Moment::parse("1h"));
        assert!(since("--1h").is_err());
    }

    #[test]
    fn a_change_says_who_did_what_to_which_fields() {
        let web = object("Deployment", "web", HealthState::Healthy, "");
        let writer = FieldWriter {
            manager: "kube-controller-manager".into(),
            operation: "Update".into(),
            subresource: "status".into(),
            at: None,
        };
        let change = ObjectChange {
            agent: web.agent,
            agent_name: web.agent_name,
            identity: web.identity,
            uid: web.uid,
            number: 7,
            sequence: 0,
            recorded_at: Timestamp(540_000),
            seen_at: Timestamp(539_000),
            not_before: None,
            what: "changed".into(),
            writer: Some(writer),
            fields: vec!["status.replicas".into(), "status.conditions".into()],
            field_count: 5,
            health: HealthState::Healthy,
            health_before: Some(HealthState::Progressing),
            owned: false,
        };
        let deleted = ObjectChange {
            what: "deleted".into(),
            writer: None,
            fields: Vec::new(),
            field_count: 0,
            health_before: None,
            ..change.clone()
        };
        let vanished =
            ObjectChange { what: "vanished".into(), not_before: Some(Timestamp(60_000)), ..deleted.clone() };
        let shown = rows(&[deleted, change, vanished], STYLE).render(STYLE, "");
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].contains("Deployment shop/web  deleted   -  "), "{shown}");
        for part in [
            "1970-01-01T00:09:00.000Z (1m ago)",
            "production",
            "changed",
            "kube-controller-manager (status)",
            "progressing → healthy",
            "status.replicas, status.conditions and 3 more",
        ] {
            assert!(lines[2].contains(part), "{part}: {shown}");
        }
        assert!(
            lines[3].contains("vanished") && lines[3].contains("after 1970-01-01T00:01:00.000Z"),
            "{shown}"
        );
    }
}
