//! What runs in the clusters: `kasbah get`, `tree`, `why`, `history`, `show`, `act`, `diff` and `coverage`.

pub mod act;
pub mod coverage;
pub mod diff;
pub mod get;
pub mod history;
pub mod show;
pub mod tree;
pub mod why;

pub(super) mod selection;
pub(super) mod text;

use clap::Subcommand;
use events::Timestamp;
use serde::{Deserialize, Serialize};

use crate::client::failure::Failure;
use crate::client::session::Session;
use crate::client::{Common, With};
use crate::exit;

/// Commands about objects.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Get objects of all clusters, with their health, now or at a moment of the past
    Get(With<get::Get>),
    /// Show what an object owns, selects and uses, as a tree down to the pods
    Tree(With<tree::Tree>),
    /// Show why an object is as it is: the chain down to the object that is to blame
    Why(With<why::Why>),
    /// List the changes of an object, also of a deleted one: when, by whom, which fields
    History(With<history::History>),
    /// Show one object: its state, who wrote it last, its relations, and the object as YAML
    #[command(visible_alias = "describe")]
    Show(With<show::Show>),
    /// Do something with one object by a named action, or list what can be done with it
    Act(With<act::Act>),
    /// Show what changed of an object between two moments
    Diff(Compares<diff::Diff>),
    /// Show which clusters the index knows, how fresh each is, and which kinds an agent cannot see
    Coverage(With<coverage::Coverage>),
}

#[derive(Debug, clap::Args)]
#[command(after_help = exit::OBJECT_DIFF_HELP)]
#[allow(missing_docs, reason = "a comment here would stand in the help of each command")]
pub struct Compares<A: clap::Args> {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    wanted: A,
}

pub(in crate::client) async fn run(
    command: Command,
    open: impl Fn(&Common) -> Result<Session, Failure>,
) -> Result<(), Failure> {
    match command {
        Command::Get(with) => get::run(with.wanted, &open(&with.common)?).await,
        Command::Tree(with) => tree::run(with.wanted, &open(&with.common)?).await,
        Command::Why(with) => why::run(with.wanted, &open(&with.common)?).await,
        Command::History(with) => history::run(with.wanted, &open(&with.common)?).await,
        Command::Show(with) => show::run(with.wanted, &open(&with.common)?).await,
        Command::Act(with) => act::run(with.wanted, &open(&with.common)?).await,
        Command::Diff(compares) => diff::run(compares.wanted, open(&compares.common)).await,
        Command::Coverage(with) => coverage::run(with.wanted, &open(&with.common)?).await,
    }
}

/// Of which state of the index an answer is. Its position is sealed, and so only text here.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AsOf {
    pub(super) position: String,
    pub(super) judged_at: Timestamp,
    pub(super) rules: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) horizon: Option<Timestamp>,
}

/// The end of a command's long help.
fn help(examples: &str) -> String {
    format!("Examples:\n{examples}\n{}", exit::HELP)
}
