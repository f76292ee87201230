//! `kasbah env …`.

mod diff;
mod health;
mod history;
mod show;
mod stop;
mod tree;

use std::time::Duration;

use chassis::args::parse_duration;
use clap::ValueEnum;
use events::EnvironmentId;
use events::environment::{ENVIRONMENT_LABEL, Grouping, PROJECT_LABEL, Tier};
use events::requests::environments::{
    CreateEnvironment, DeploymentView, EnvironmentState, EnvironmentView, SetEnvironment,
};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::names::Names;
use crate::client::session::Session;
use crate::exit;

use health::WithHealth;
pub(super) use show::deployment_details;

/// Deployments that `env show` prints.
const SHOWN: usize = 10;

/// What to do with environments.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List environments, what runs in them, and how it is doing
    #[command(visible_alias = "list")]
    Ls(List),
    /// Show one environment, with the health of its objects and its last deployments
    Show(EnvironmentArg),
    /// Show the objects of an environment with their health, each below the one that has caused it
    Tree(tree::Tree),
    /// Show which objects of an environment came, went and changed between two moments, with the changed fields
    #[command(after_help = exit::OBJECT_DIFF_HELP)]
    Diff(diff::Diff),
    /// Create an environment. A project's first deployment into a name creates it, too
    Create {
        /// Name, such as production or review/login
        name: String,
        /// Project: group/name, or id
        #[arg(long)]
        project: String,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Change an environment; omitted values stay unchanged
    Set {
        #[command(flatten)]
        environment: EnvironmentArg,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Stop an environment. Its history stays, and the next deployment makes it available again
    Stop(stop::Stop),
    /// Delete a stopped environment. Its history stays in the event log only
    Delete(EnvironmentArg),
    /// List the deployments of an environment and the changes of its settings and state, the newest first
    History(history::History),
}

/// Which environments are listed.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Only of this project: group/name, or id
    #[arg(long)]
    project: Option<String>,
    /// Only of this group's projects: name, or id
    #[arg(long, conflicts_with = "project")]
    group: Option<String>,
    /// Only of this tier: production, staging, testing, development or other
    #[arg(long)]
    tier: Option<Tier>,
    /// Only with this name; * stands for any text, as in 'production/*'
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Only in this state
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Group the environments of all projects by their tier
    #[arg(long, conflicts_with = "limit")]
    by_tier: bool,
    #[command(flatten)]
    limit: LimitArgs,
}

/// A state to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    /// Not stopped
    Available,
    /// Stopped
    Stopped,
}

/// Which environment.
#[derive(Debug, Clone, clap::Args)]
pub struct EnvironmentArg {
    /// Name of the environment, or its id
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Project of the environment: group/name, or id; needed where several of your projects have one of the name
    #[arg(long)]
    pub project: Option<String>,
}

/// What may be said of an environment.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SettingsArgs {
    /// Tier: production, staging, testing, development or other; guessed from the name of a new environment
    #[arg(long)]
    tier: Option<Tier>,
    /// URL where the environment is served; with `set`, empty for none
    #[arg(long)]
    url: Option<String>,
    /// Agent for deployments that name none: name, group/project:name, or id; with `set`, empty for none
    #[arg(long)]
    agent: Option<String>,
    /// Namespace for deployments that name none; with `set`, empty for none
    #[arg(long, short)]
    namespace: Option<String>,
    /// Stop this long after the last deployment began, such as 7d; with `set`, 0s for never
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    auto_stop_in: Option<Duration>,
    /// Another project that may record deployments into this environment: group/name, or id; repeat for several. With `set`, replaces all of
    /// them; empty for none
    #[arg(long = "deployer", value_name = "PROJECT")]
    deployers: Vec<String>,
    /// Which objects belong to the environment; by default the inventory of the source that deploys, or else the namespace
    #[arg(long, value_enum, value_name = "RULE")]
    group_by: Option<GroupBy>,
    /// Label with the project, with --group-by labels
    #[arg(long, value_name = "KEY", default_value = PROJECT_LABEL, requires = "group_by")]
    project_label: String,
    /// Label with the environment's slug, with --group-by labels
    #[arg(long, value_name = "KEY", default_value = ENVIRONMENT_LABEL, requires = "group_by")]
    environment_label: String,
}

/// How objects are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GroupBy {
    /// All objects of the namespace
    Namespace,
    /// Objects of the namespace with the environment's labels
    Labels,
    /// The inventory of the source that deploys
    Inventory,
}

impl SettingsArgs {
    fn grouping(&self) -> Option<Grouping> {
        Some(match self.group_by? {
            GroupBy::Namespace => Grouping::Namespace,
            GroupBy::Inventory => Grouping::Inventory,
            GroupBy::Labels => Grouping::Labels {
                project: self.project_label.clone(),
                environment: self.environment_label.clone(),
            },
        })
    }

    fn auto_stop_seconds(&self) -> Option<u32> {
        self.auto_stop_in.map(seconds)
    }
}

/// Whole seconds; as many as can be said of what is longer.
pub(super) fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked, or when two moments that are compared differ.
pub async fn run(command: Command, opened: Result<Session, Failure>) -> Result<(), Failure> {
    let is_diff = matches!(command, Command::Diff(_));
    let outcome = match opened {
        Ok(session) => run_command(command, &session).await,
        Err(failure) => Err(failure),
    };
    outcome.map_err(|failure| if is_diff { failure.of_comparison() } else { failure })
}

async fn run_command(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Ls(wanted) => list(session, wanted).await,
        Command::Show(named) => show(session, &named).await,
        Command::Tree(wanted) => tree::run(wanted, session).await,
        Command::Diff(wanted) => diff::run(wanted, session).await,
        Command::History(wanted) => history::run(&wanted, session).await,
        Command::Create { name, project, settings } => {
            let (grouping, auto_stop_seconds) = (settings.grouping(), settings.auto_stop_seconds());
            let SettingsArgs { tier, url, agent, namespace, deployers, .. } = settings;
            let body = CreateEnvironment {
                project,
                name,
                tier,
                url,
                agent,
                namespace,
                auto_stop_seconds,
                deployers,
                grouping,
            };
            let view: EnvironmentView = session.api.send(Method::POST, &["environments"], &body).await?;
            print(session, &view).await
        }
        Command::Set { environment, settings } => set(session, &environment, settings).await,
        Command::Stop(wanted) => stop::run(wanted, session).await,
        Command::Delete(named) => {
            let id = resolve(session, &named).await?;
            let view: EnvironmentView = session.api.delete(&["environments", &id.to_string()]).await?;
            print(session, &view).await
        }
    }
}

async fn set(session: &Session, named: &EnvironmentArg, settings: SettingsArgs) -> Result<(), Failure> {
    let environment = resolve(session, named).await?;
    let (grouping, auto_stop_seconds) = (settings.grouping(), settings.auto_stop_seconds());
    let SettingsArgs { tier, url, agent, namespace, deployers, .. } = settings;
    let deployers = (!deployers.is_empty()).then_some(deployers);
    let body =
        SetEnvironment { environment, tier, url, agent, namespace, auto_stop_seconds, deployers, grouping };
    let path = ["environments", &environment.to_string()];
    let view: EnvironmentView = session.api.send(Method::PATCH, &path, &body).await?;
    print(session, &view).await
}

/// The id of the environment that is meant.
///
/// # Errors
/// When there is none, or several projects have one of the name.
pub(super) async fn resolve(session: &Session, named: &EnvironmentArg) -> Result<EnvironmentId, Failure> {
    if let Ok(id) = named.name.parse() {
        return Ok(id);
    }
    let mut query = vec![("name", named.name.clone())];
    query.extend(named.project.clone().map(|project| ("project", project)));
    let found: Vec<EnvironmentView> = session.api.list(&["environments"], &query).await?;
    let found: Vec<_> = found.into_iter().filter(|view| view.name == named.name).collect();
    match found.as_slice() {
        [one] => Ok(one.id),
        [] => Err(Failure::not_found(&format!("environment {:?}", named.name))),
        several => {
            let projects: Vec<_> = several.iter().map(|view| view.project_path.as_str()).collect();
            let message =
                format!("several projects have an environment {:?}: {}", named.name, projects.join(", "));
            Err(Failure::usage("--project", format!("{message}; name one of them")))
        }
    }
}

async fn list(session: &Session, wanted: List) -> Result<(), Failure> {
    let mut query = Vec::new();
    query.extend(wanted.project.map(|project| ("project", project)));
    query.extend(wanted.tier.map(|tier| ("tier", tier.to_string())));
    let mut of_objects = query.clone();
    // Of several projects' environments of one name all are listed.
    of_objects.extend(wanted.name.clone().filter(|name| name.contains('*')).map(|name| ("env", name)));
    query.extend(wanted.group.map(|group| ("group", group)));
    query.extend(wanted.name.map(|name| ("name", name)));
    let state = wanted.state.map(|state| match state {
        State::Available => EnvironmentState::Available,
        State::Stopped => EnvironmentState::Stopped,
    });
    query.extend(state.map(|state| ("state", show::state_word(state).to_owned())));
    let names = names(session).await?;
    let health = health::of(session, &of_objects).await;
    let known = |all: Vec<EnvironmentView>| -> Vec<WithHealth> {
        all.into_iter().map(|view| WithHealth::of(view, &health)).collect()
    };
    if wanted.by_tier {
        let all: Vec<EnvironmentView> = session.api.list(&["environments"], &query).await?;
        let tiers = show::by_tier(known(all));
        return session.printer.show(&tiers, |tiers, style| show::tiers(tiers, &names, style));
    }
    let mut listing = Listing::<EnvironmentView>::of(&session.api, &["environments"], &query, wanted.limit);
    let mut printed = session.printer.list();
    while let Some(page) = listing.next().await? {
        printed.page(known(page), |page, style| show::rows(page, &names, style))?;
    }
    printed.end("no environment; `kasbah env create` makes one, and so does a project's first deployment")
}

async fn show(session: &Session, named: &EnvironmentArg) -> Result<(), Failure> {
    let id = resolve(session, named).await?.to_string();
    let view: EnvironmentView = session.api.get(&["environments", &id], &[]).await?;
    let shown = WithHealth::of(view, &health::of(session, &[("env", id.clone())]).await);
    if !session.is_for_people() {
        return session.printer.show(&shown, |_, _| String::new());
    }
    let limit = [("limit", SHOWN.to_string())];
    let page: events::requests::page::Page<DeploymentView> =
        session.api.get(&["environments", &id, "deployments"], &limit).await?;
    let names = names(session).await?;
    session.printer.show(&shown, |shown, style| {
        let table = show::deployment_rows(&page.items, &names, style);
        let deployments = table.render(style, "no deployment yet");
        let details = show::details_with(&shown.view, shown.health.as_ref(), &names, style);
        format!("{details}\n{deployments}")
    })
}

async fn print(session: &Session, view: &EnvironmentView) -> Result<(), Failure> {
    let names = names(session).await?;
    session.printer.show(view, |view, style| show::details(view, &names, style))
}

/// Names of agents and projects. A job may list neither, perhaps.
pub(super) async fn names(session: &Session) -> Result<Names, Failure> {
    match session.is_for_people() {
        true => Names::default().with_agents(session).await?.with_projects(session).await,
        false => Ok(Names::default()),
    }
}
