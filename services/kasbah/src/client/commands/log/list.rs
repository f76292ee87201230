//! `kasbah log ls`.

use events::{AggregateKind, OrganizationId, Timestamp};
use serde_json::{Value, json};
use store::listing::{ListRequest, list_aggregates};
use world::World;

use super::names::EventNames;
use super::place::{FromArgs, organization};
use crate::client::failure::Failure;
use crate::client::moment::Moment;
use crate::client::print::{Cell, Printer, Style, Table, age};
use crate::client::session::Session;

/// Lists aggregates.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Only aggregates of this kind, such as source
    #[arg(long)]
    kind: Option<AggregateKind>,
    /// Only aggregates whose id begins with this
    #[arg(value_name = "ID-PREFIX")]
    prefix: Option<String>,
    /// Only aggregates with a commit since a duration ago, such as 10m, or since a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// Only aggregates with a commit before this time
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    until: Option<Moment>,
    /// With --from: only aggregates of this organization, by id, or `system`
    #[arg(long, value_name = "ID", value_parser = organization, requires = "from")]
    organization: Option<OrganizationId>,
    /// Read this log instead of asking a server
    #[command(flatten)]
    pub from: FromArgs,
}

impl List {
    /// Prints them.
    ///
    /// # Errors
    /// When the server refuses or cannot be asked.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let now = Timestamp(session.world.clock.now_millis());
        let mut query = Vec::new();
        query.extend(self.kind.map(|kind| ("kind", kind.to_string())));
        query.extend(self.prefix.map(|prefix| ("prefix", prefix)));
        query.extend(self.since.map(|since| ("since", since.before(now).to_string())));
        query.extend(self.until.map(|until| ("until", until.before(now).to_string())));
        let mut listed: Value = session.api.get(&["log", "aggregates"], &query).await?;
        let names = EventNames::ask(session).await?;
        for head in listed.get_mut("aggregates").and_then(Value::as_array_mut).into_iter().flatten() {
            let named =
                head.get("aggregate").and_then(Value::as_str).and_then(|subject| names.subject(subject));
            let named = named.map(|name| ("name".to_owned(), name.into()));
            if let Some(fields) = head.as_object_mut() {
                fields.extend(named);
            }
        }
        session.printer.show(&listed, |listed, style| text(listed, &names, style))
    }

    /// Prints those of a log that no server is asked for.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn run_on_place(self, printer: Printer, world: &World) -> Result<(), Failure> {
        let opened = self.from.open(world).await?;
        let now = Timestamp(world.clock.now_millis());
        let wanted = ListRequest {
            organization: self.organization,
            kinds: self.kind.into_iter().collect(),
            prefix: self.prefix.unwrap_or_default(),
            since: self.since.map(|since| since.before(now)),
            until: self.until.map(|until| until.before(now)),
        };
        let found = list_aggregates(&*opened.parts.log, &wanted).await;
        opened.close().await;
        let found = found.map_err(|error| Failure::Unsuccessful(error.to_string()))?;
        let heads = found.iter().map(|listed| {
            json!({
                "organization": listed.organization, "aggregate": listed.aggregate.to_string(),
                "version": listed.version, "first": listed.first, "last": listed.last, "event": listed.event,
            })
        });
        printer.show(&json!({ "more": false, "aggregates": heads.collect::<Vec<_>>() }), |listed, style| {
            text(listed, &EventNames::default(), style)
        })
    }
}

fn text(listed: &Value, names: &EventNames, style: Style) -> String {
    let mut table = Table::new(&["AGGREGATE", "NAME", "VERSION", "CHANGED", "LAST EVENT"]);
    for head in listed.get("aggregates").and_then(Value::as_array).into_iter().flatten() {
        let said = |name: &str| head.get(name).and_then(Value::as_str).unwrap_or_default();
        let version = head.get("version").and_then(Value::as_u64).unwrap_or_default();
        let changed = Timestamp::parse(said("last")).map(|last| age(last, style.now));
        let event = said("event");
        table.row([
            Cell::from(said("aggregate")),
            Cell::or_dash(names.subject(said("aggregate"))),
            version.to_string().into(),
            changed.unwrap_or_default().into(),
            event.strip_prefix("kasbah.").unwrap_or(event).into(),
        ]);
    }
    let mut text = table.render(style, "no such aggregates");
    if listed.get("more").and_then(Value::as_bool) == Some(true) {
        text.push_str("More are omitted: select with --kind, --since or the beginning of an id.\n");
    }
    text
}
