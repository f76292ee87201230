//! `kasbah project …`.

use events::requests::authz::{CreateProject, ProjectView, SetProject};
use reqwest::Method;
use serde_json::Value;

use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::names::Names;
use crate::client::print::{Cell, Fields, Style, Table};
use crate::client::session::Session;

/// What to do with projects.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List projects
    List(LimitArgs),
    /// Create a project, and its group if it does not exist
    Create {
        /// Group and name
        #[arg(value_name = "GROUP/NAME")]
        path: String,
        /// URL or path of its repository, without credentials
        #[arg(long, value_name = "URL")]
        repository: String,
        #[command(flatten)]
        settings: RepositoryArgs,
    },
    /// Show one project
    Show {
        /// `group/name`, an id, or the numeric id in another system
        project: String,
    },
    /// Change a project; omitted values stay unchanged
    Set {
        /// `group/name`, or an id
        project: String,
        /// New URL or path of its repository
        #[arg(long, value_name = "URL")]
        repository: Option<String>,
        #[command(flatten)]
        settings: RepositoryArgs,
    },
    /// Delete a project with its roles and its jobs' tokens; fails, and lists them, while agents or sources use it
    Delete {
        /// `group/name`, or an id
        project: String,
    },
    /// Show the URL and the secret for the repository's webhook
    Webhook {
        /// `group/name`, or an id
        project: String,
    },
}

/// How a repository is read.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RepositoryArgs {
    /// Name of the credential for reading it; with `set`, empty for none
    #[arg(long, value_name = "NAME")]
    credential: Option<String>,
    /// Default branch; main by default for a new project
    #[arg(long, value_name = "BRANCH")]
    default_branch: Option<String>,
    /// Numeric id in another system
    #[arg(long, value_name = "NUMBER")]
    external_id: Option<u64>,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let project = match command {
        Command::List(limit) => return list(session, limit).await,
        Command::Webhook { project } => return webhook(session, &project).await,
        Command::Create { path, repository, settings } => {
            let RepositoryArgs { credential, default_branch, external_id } = settings;
            let body = CreateProject { path, repository, default_branch, credential, external_id };
            session.api.send(Method::POST, &["projects"], &body).await?
        }
        Command::Set { project, repository, settings } => {
            let RepositoryArgs { credential, default_branch, external_id } = settings;
            let body = SetProject { project, repository, default_branch, credential, external_id };
            session.api.send(Method::PATCH, &["projects", &body.project], &body).await?
        }
        Command::Delete { project } => session.api.delete(&["projects", &project]).await?,
        Command::Show { project } => session.api.get(&["projects", &project], &[]).await?,
    };
    let names = names(session, &project).await?;
    session.printer.show(&project, |project: &ProjectView, style| details(project, &names, style))
}

async fn names(session: &Session, project: &ProjectView) -> Result<Names, Failure> {
    match project.settings.credential {
        Some(_) if session.is_for_people() => Names::default().with_credentials(session).await,
        _ => Ok(Names::default()),
    }
}

async fn list(session: &Session, limit: LimitArgs) -> Result<(), Failure> {
    let mut listing = Listing::<ProjectView>::of(&session.api, &["projects"], &[], limit);
    let mut printed = session.printer.list();
    while let Some(projects) = listing.next().await? {
        printed.page(projects, rows)?;
    }
    printed.end("no project; `kasbah project create` makes one")
}

fn rows(all: &[ProjectView], _: Style) -> Table {
    let mut table = Table::new(&["PROJECT", "REPOSITORY", "BRANCH", "ID"]);
    for one in all {
        table.row([
            one.path.as_str().into(),
            one.settings.repository.as_str().into(),
            one.settings.default_branch.as_str().into(),
            one.id.to_string().into(),
        ]);
    }
    table
}

fn details(project: &ProjectView, names: &Names, style: Style) -> String {
    let settings = &project.settings;
    Fields::new()
        .with("Project", project.path.as_str())
        .with("Id", project.id.to_string())
        .with("Repository", settings.repository.as_str())
        .with("Default branch", settings.default_branch.as_str())
        .with("Credential", Cell::or_dash(settings.credential.map(|id| names.credential(id)).as_deref()))
        .with_some("External id", settings.external_id.map(|id| id.to_string()))
        .render(style)
}

async fn webhook(session: &Session, project: &str) -> Result<(), Failure> {
    let webhook: Value = session.api.get(&["projects", project, "webhook"], &[]).await?;
    session.printer.show(&webhook, |webhook, style| {
        let text = |name: &str| Cell::or_dash(webhook.get(name).and_then(Value::as_str));
        Fields::new().with("URL", text("url")).with("Secret", text("secret")).render(style)
    })
}
