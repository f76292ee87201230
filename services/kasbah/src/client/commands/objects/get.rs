//! `kasbah get`: objects of all clusters, one a line.

mod watch;

use events::requests::index::IndexedObject;

use super::coverage;
use super::selection::{AtArg, Likeness, Place, agent_of, fields};
use super::text::{age_of, argument, environment, health, reason};
use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::print::{Cell, Format, Style, Table, age, short_commit};
use crate::client::session::Session;

const EXAMPLES: &str = "  kasbah get deploy                            the Deployments of all clusters
  kasbah get pod -n shop -l app=web            pods with a label
  kasbah get --health degraded,unknown         what is not well, whatever it is
  kasbah get deploy/web --at 2h -o wide        as it was two hours ago
  kasbah get pod -n shop -w                    and what changes
  kasbah get pods,svc -n shop                  several kinds
  kasbah get deploy --tier production          those of all production environments
  kasbah get --env shop/front:production       all objects of one environment
  kasbah get --unowned -n shop                 what nobody owns
  kasbah get pod -n shop --agent production -o name | xargs kubectl -n shop delete
";

/// Which objects.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("output", |option| option.value_parser(Format::parser(Format::OF_OBJECTS))),
    after_long_help = super::help(EXAMPLES),
)]
pub struct Get {
    /// KIND such as deploy or deployments.apps, several with commas, or KIND/NAME; all kinds if not given
    #[arg(value_name = "KIND")]
    object: Option<String>,
    /// The name
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    likeness: Likeness,
    /// Only objects that nobody owns: no source, operator or other tool, and no environment
    #[arg(long, conflicts_with = "doubly_owned")]
    unowned: bool,
    /// Only objects with more than one owner, or in more than one environment
    #[arg(long)]
    doubly_owned: bool,
    #[command(flatten)]
    at: AtArg,
    #[command(flatten)]
    limit: LimitArgs,
    /// After the list, print each object that changes; at most 500 objects may match
    #[arg(short, long, conflicts_with_all = ["at", "limit"])]
    watch: bool,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(wanted: Get, session: &Session) -> Result<(), Failure> {
    let mut query = fields(wanted.object.as_deref(), wanted.name.as_deref(), &wanted.place)?;
    wanted.likeness.add_to(&mut query);
    let ownership = [(wanted.unowned, "unowned"), (wanted.doubly_owned, "doubly-owned")];
    query.extend(ownership.iter().filter(|(is, _)| *is).map(|(_, word)| ("ownership", (*word).to_owned())));
    wanted.at.add_to(&mut query, session);
    if wanted.watch {
        coverage::warn(session, &wanted.place).await;
        return watch::run(session, query, wanted.place.names_environments()).await;
    }
    let (format, columns) = (session.printer.format, Columns::of(session.printer.format, &wanted.place));
    let mut listing = Listing::<IndexedObject>::of(&session.api, &["objects"], &query, wanted.limit);
    let mut printed = session.printer.list();
    let mut found = 0;
    while let Some(objects) = listing.next().await? {
        found += objects.len();
        match format {
            Format::Name => names(&objects, session)?,
            _ => printed.page(objects, |objects, style| rows(objects, columns, style))?,
        }
    }
    if format != Format::Name {
        printed.end("no such object is known")?;
    }
    coverage::warn(session, &wanted.place).await;
    match wanted.object {
        Some(object) if found == 0 && (wanted.name.is_some() || object.contains('/')) => {
            Err(Failure::not_found(&object))
        }
        _ => Ok(()),
    }
}

fn names(objects: &[IndexedObject], session: &Session) -> Result<(), Failure> {
    objects.iter().try_for_each(|object| session.printer.text(&argument(&object.identity)))
}

/// Which columns a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Columns {
    is_wide: bool,
    has_environment: bool,
}

impl Columns {
    fn of(format: Format, place: &Place) -> Self {
        Self::with(format, place.names_environments())
    }

    /// Environments stand there where they are asked about, and where there is room.
    fn with(format: Format, names_environments: bool) -> Self {
        let is_wide = format == Format::Wide;
        Self { is_wide, has_environment: is_wide || names_environments }
    }

    const fn headings(self) -> &'static [&'static str] {
        match (self.is_wide, self.has_environment) {
            (false, false) => &["AGENT", "NAMESPACE", "KIND", "NAME", "HEALTH", "AGE", "REASON"],
            (false, true) => {
                &["ENVIRONMENT", "AGENT", "NAMESPACE", "KIND", "NAME", "HEALTH", "AGE", "REASON"]
            }
            (true, _) => &[
                "ENVIRONMENT",
                "AGENT",
                "NAMESPACE",
                "API VERSION",
                "KIND",
                "NAME",
                "HEALTH",
                "AGE",
                "CHANGED",
                "COMMIT",
                "RULE",
                "UID",
                "REASON",
            ],
        }
    }
}

fn rows(objects: &[IndexedObject], columns: Columns, style: Style) -> Table {
    let is_wide = columns.is_wide;
    let mut table = Table::new(columns.headings());
    for object in objects {
        let identity = &object.identity;
        let namespace = Cell::or_dash(Some(identity.namespace.as_str()));
        let text = |text: &str| Cell::from(text);
        let common = [health(object), age_of(object, style)];
        let mut cells = Vec::new();
        cells.extend(columns.has_environment.then(|| environment(object)));
        match is_wide {
            false => cells.extend([text(agent_of(object)), namespace]),
            true => cells.extend([text(&object.agent_name), namespace, identity.api_version().into()]),
        }
        cells.extend([text(&identity.kind), text(&identity.name)]);
        cells.extend(common);
        if is_wide {
            let changed = format!("{} ago", age(object.changed_at, style.now));
            let commit = object.deployment.as_ref().map(|of| short_commit(&of.commit));
            cells.extend([changed.into(), Cell::or_dash(commit)]);
            cells.extend([text(&object.health.rule), text(&object.uid)]);
        }
        cells.push(reason(object));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use events::requests::index::HealthState;

    use super::super::text::tests::{STYLE, object};
    use super::*;

    #[test]
    fn objects_stand_one_a_line() {
        let all = [
            object("Deployment", "web", HealthState::Degraded, "0 of 1 pods available"),
            object("Pod", "web-1", HealthState::Healthy, ""),
        ];
        let columns = |format, names| Columns::with(format, names);
        assert_eq!(
            rows(&all, columns(Format::Table, false), STYLE).render(STYLE, ""),
            "AGENT       NAMESPACE  KIND        NAME   HEALTH    AGE  REASON\n\
             production  shop       Deployment  web    degraded  5m   0 of 1 pods available\n\
             production  shop       Pod         web-1  healthy   5m   -\n"
        );
        let wide = rows(&all, columns(Format::Wide, false), STYLE).render(STYLE, "");
        let first = wide.lines().nth(1).unwrap();
        for part in ["shop/deploy:production", "apps/v1", "1m ago", "built-in", "uid-web"] {
            assert!(first.contains(part), "{part}: {wide}");
        }
        let with = rows(&all, columns(Format::Table, true), STYLE).render(STYLE, "");
        assert!(with.starts_with("ENVIRONMENT  AGENT"), "{with}");
    }
}
