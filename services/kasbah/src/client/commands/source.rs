//! `kasbah source …`.

mod diff;
mod show;
mod wait;

use std::time::Duration;

use chassis::args::parse_duration;
use events::SourceId;
use events::requests::delivery::{ConfirmSource, PinSource, SourceView, SuspendSource};
use events::requests::gateway::SourceDiff;
use reqwest::Method;
use serde::Serialize;
use serde_json::json;

use crate::client::failure::Failure;
use crate::client::names::Names;
use crate::client::session::Session;

/// What to do with sources.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Lists sources and how they stand
    List {
        /// Only of this agent, by name or id
        #[arg(long)]
        agent: Option<String>,
    },
    /// Shows one source: why the cluster is not at the last commit, its last sync, what failed where
    Show(SourceArg),
    /// Looks at the repository, and checks each object of a source again
    Sync {
        #[command(flatten)]
        source: SourceArg,
        /// Waits until the sync ended; fails when it did not succeed
        #[arg(long)]
        wait: bool,
        /// Waits no longer than this
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "15m", requires = "wait")]
        timeout: Duration,
    },
    /// Stops delivering to a source: nothing new is applied, drift is not corrected
    Suspend {
        #[command(flatten)]
        source: SourceArg,
        /// Why, for the others
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Goes on delivering
    Resume(SourceArg),
    /// Keeps a source at one commit
    Pin {
        #[command(flatten)]
        source: SourceArg,
        /// Full or abbreviated commit
        commit: String,
    },
    /// Lets a source follow its ref again
    Unpin(SourceArg),
    /// Confirms the bundle that is held
    Confirm {
        #[command(flatten)]
        source: SourceArg,
        /// The commit that you saw; refused when another is held by now
        #[arg(long)]
        commit: Option<String>,
    },
    /// Shows what the next sync would change, by a dry run in the cluster: also of what is held or suspended
    Diff(SourceArg),
}

/// Which source.
#[derive(Debug, Clone, clap::Args)]
pub struct SourceArg {
    /// `agent/source`, or its id
    source: String,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked, or a sync that is waited for does not succeed.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let named = command.source().map(|source| format!("source {source}"));
    let outcome = run_command(command, session).await;
    outcome.map_err(|failure| match named {
        Some(named) => failure.about(&named),
        None => failure,
    })
}

impl Command {
    fn source(&self) -> Option<String> {
        match self {
            Self::List { .. } => None,
            Self::Show(named) | Self::Resume(named) | Self::Unpin(named) | Self::Diff(named) => Some(named),
            Self::Sync { source, .. }
            | Self::Suspend { source, .. }
            | Self::Pin { source, .. }
            | Self::Confirm { source, .. } => Some(source),
        }
        .map(|named| named.source.clone())
    }
}

async fn run_command(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List { agent } => list(session, agent).await,
        Command::Show(named) => {
            let id = session.source(&named.source).await?;
            let view = session.api.get(&["sources", &id.to_string()], &[]).await?;
            print(session, &view).await
        }
        Command::Sync { source, wait, timeout } => {
            let id = session.source(&source.source).await?;
            let view = ask(session, id, "sync", &json!({})).await?;
            if wait { wait::run(session, view, timeout).await } else { print(session, &view).await }
        }
        Command::Suspend { source, reason } => {
            let id = session.source(&source.source).await?;
            change(session, id, "suspend", &SuspendSource { source: id, reason }).await
        }
        Command::Resume(named) => {
            change(session, session.source(&named.source).await?, "resume", &json!({})).await
        }
        Command::Pin { source, commit } => {
            let id = session.source(&source.source).await?;
            change(session, id, "pin", &PinSource { source: id, commit }).await
        }
        Command::Unpin(named) => {
            change(session, session.source(&named.source).await?, "unpin", &json!({})).await
        }
        Command::Confirm { source, commit } => {
            let id = session.source(&source.source).await?;
            change(session, id, "confirm", &ConfirmSource { source: id, commit }).await
        }
        Command::Diff(named) => {
            let id = session.source(&named.source).await?.to_string();
            let diff: SourceDiff =
                session.api.send(Method::POST, &["sources", &id, "diff"], &json!({})).await?;
            session.printer.show(&diff, diff::text)
        }
    }
}

async fn ask<B: Serialize>(
    session: &Session,
    id: SourceId,
    verb: &str,
    body: &B,
) -> Result<SourceView, Failure> {
    session.api.send(Method::POST, &["sources", &id.to_string(), verb], body).await
}

async fn change<B: Serialize>(session: &Session, id: SourceId, verb: &str, body: &B) -> Result<(), Failure> {
    let view = ask(session, id, verb, body).await?;
    print(session, &view).await
}

async fn print(session: &Session, view: &SourceView) -> Result<(), Failure> {
    let names = names(session).await?;
    session.printer.show(view, |view, style| show::text(view, &names, style))
}

async fn list(session: &Session, agent: Option<String>) -> Result<(), Failure> {
    let query: Vec<_> = agent.into_iter().map(|agent| ("agent", agent)).collect();
    let all: Vec<SourceView> = session.api.get(&["sources"], &query).await?;
    let names = names(session).await?;
    session.printer.show(&all, |all, style| show::table(all, &names, style))
}

async fn names(session: &Session) -> Result<Names, Failure> {
    match session.is_for_people() {
        true => Names::default().with_agents(session).await?.with_projects(session).await,
        false => Ok(Names::default()),
    }
}
