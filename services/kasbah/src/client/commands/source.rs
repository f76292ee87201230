//! `kasbah source …`.

mod diff;
mod objects;
mod show;
mod wait;
mod wait_for;

pub(super) use show::conditions;

use std::time::Duration;

use chassis::args::parse_duration;
use events::SourceId;
use events::requests::delivery::{ConfirmSource, PinSource, SourceView, SuspendSource};
use events::requests::diff::{ObjectHolder, SourceDiff};
use reqwest::Method;
use serde::Serialize;
use serde_json::json;

use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::names::Names;
use crate::client::session::Session;
use crate::exit;

/// What to do with sources.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List sources and their status
    List {
        /// Only this agent's, by name or id
        #[arg(long)]
        agent: Option<String>,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Show one source: why the cluster is not at the last commit, its last sync, and its failures
    Show(SourceArg),
    /// List the objects of a source: health and its reason, drift, failures, the last write
    Objects {
        #[command(flatten)]
        source: SourceArg,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Wait for a status of a source, in pipelines; fails if the source cannot reach it, or needs a user to act first
    Wait {
        #[command(flatten)]
        source: SourceArg,
        /// Status to wait for
        #[arg(long = "for", value_name = "GOAL", value_enum, default_value = "healthy")]
        goal: wait_for::Goal,
        /// The commit, in full or abbreviated; by default the newest good one of its ref
        #[arg(long)]
        commit: Option<String>,
        /// Maximum time to wait
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "15m")]
        timeout: Duration,
    },
    /// Poll the repository now, and check each object of a source again
    Sync {
        #[command(flatten)]
        source: SourceArg,
        /// Wait for the end of the sync; fails if it did not succeed
        #[arg(long)]
        wait: bool,
        /// Maximum time to wait
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "15m", requires = "wait")]
        timeout: Duration,
    },
    /// Suspend a source: nothing new is applied, and drift is not corrected
    Suspend {
        #[command(flatten)]
        source: SourceArg,
        /// Reason, shown to other users
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Resume a suspended source
    Resume(SourceArg),
    /// Pin a source to one commit
    Pin {
        #[command(flatten)]
        source: SourceArg,
        /// Full or abbreviated commit
        commit: String,
    },
    /// Unpin a source: it follows its ref again
    Unpin(SourceArg),
    /// Confirm the held bundle of a source
    Confirm {
        #[command(flatten)]
        source: SourceArg,
        /// The commit that you reviewed; the command fails if another commit is held by now
        #[arg(long)]
        commit: Option<String>,
    },
    /// Show what the next sync would do with each object and why, by a dry run in the cluster, also for held or suspended sources
    #[command(after_help = exit::DIFF_HELP)]
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
pub async fn run(command: Command, opened: Result<Session, Failure>) -> Result<(), Failure> {
    let named = command.source().map(|source| format!("source {source}"));
    let is_diff = matches!(command, Command::Diff(_));
    let outcome = match opened {
        Ok(session) => run_command(command, &session).await,
        Err(failure) => Err(failure),
    };
    outcome.map_err(|failure| {
        let failure = match named {
            Some(named) => failure.about(&named),
            None => failure,
        };
        if is_diff { failure.of_comparison() } else { failure }
    })
}

impl Command {
    fn source(&self) -> Option<String> {
        match self {
            Self::List { .. } => None,
            Self::Show(named) | Self::Resume(named) | Self::Unpin(named) | Self::Diff(named) => Some(named),
            Self::Objects { source, .. }
            | Self::Sync { source, .. }
            | Self::Wait { source, .. }
            | Self::Suspend { source, .. }
            | Self::Pin { source, .. }
            | Self::Confirm { source, .. } => Some(source),
        }
        .map(|named| named.source.clone())
    }
}

async fn run_command(command: Command, session: &Session) -> Result<(), Failure> {
    let id = match command.source() {
        Some(named) => session.source(&named).await?,
        // Of none in particular.
        None => SourceId(uuid::Uuid::nil()),
    };
    match command {
        Command::List { agent, limit } => list(session, agent, limit).await,
        Command::Show(_) => show(session, id).await,
        Command::Objects { limit, .. } => objects::run(session, id, limit).await,
        Command::Wait { goal, commit, timeout, .. } => {
            wait_for::run(session, id, goal, commit.as_deref(), timeout).await
        }
        Command::Sync { wait, timeout, .. } => sync(session, id, wait.then_some(timeout)).await,
        Command::Suspend { reason, .. } => {
            change(session, id, "suspend", &SuspendSource { source: id, reason }).await
        }
        Command::Resume(_) => change(session, id, "resume", &json!({})).await,
        Command::Pin { commit, .. } => change(session, id, "pin", &PinSource { source: id, commit }).await,
        Command::Unpin(_) => change(session, id, "unpin", &json!({})).await,
        Command::Confirm { commit, .. } => {
            change(session, id, "confirm", &ConfirmSource { source: id, commit }).await
        }
        Command::Diff(_) => compare(session, id).await,
    }
}

async fn show(session: &Session, id: SourceId) -> Result<(), Failure> {
    let view = session.api.get(&["sources", &id.to_string()], &[]).await?;
    print(session, &view).await
}

async fn sync(session: &Session, id: SourceId, waits: Option<Duration>) -> Result<(), Failure> {
    let view = ask(session, id, "sync", &json!({})).await?;
    match waits {
        Some(timeout) => wait::run(session, view, timeout).await,
        None => print(session, &view).await,
    }
}

async fn compare(session: &Session, id: SourceId) -> Result<(), Failure> {
    let path = ["sources", &id.to_string(), "diff"];
    let diff: SourceDiff = session.api.send(Method::POST, &path, &json!({})).await?;
    let is_of_agents =
        diff.objects.iter().any(|object| matches!(object.holder, Some(ObjectHolder::Agent { .. })));
    let names = if is_of_agents { names(session).await? } else { Names::default() };
    let shown = session.printer.show(&diff, |diff, style| diff::text(diff, &names, style));
    Failure::compared(shown, diff.differs())
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

async fn list(session: &Session, agent: Option<String>, limit: LimitArgs) -> Result<(), Failure> {
    let query: Vec<_> = agent.into_iter().map(|agent| ("agent", agent)).collect();
    let mut listing = Listing::<SourceView>::of(&session.api, &["sources"], &query, limit);
    let mut printed = session.printer.list();
    let names = names(session).await?;
    while let Some(sources) = listing.next().await? {
        printed.page(sources, |sources, style| show::rows(sources, &names, style))?;
    }
    printed.end("no source; agents' configurations define them")
}

async fn names(session: &Session) -> Result<Names, Failure> {
    match session.is_for_people() {
        true => Names::default().with_agents(session).await?.with_projects(session).await,
        false => Ok(Names::default()),
    }
}
