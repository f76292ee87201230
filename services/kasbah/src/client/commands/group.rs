//! `kasbah group …`.

use events::requests::authz::{CreateGroup, GroupView};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::print::{Style, Table};
use crate::client::session::Session;

/// What to do with groups.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List groups
    List(LimitArgs),
    /// Create a group
    Create {
        /// Name, unique in the organization
        name: String,
    },
    /// Delete a group; fails, and lists them, while it contains projects
    Delete {
        /// Name or id
        group: String,
    },
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let group: GroupView = match command {
        Command::List(limit) => return list(session, limit).await,
        Command::Create { name } => {
            session.api.send(Method::POST, &["groups"], &CreateGroup { name }).await?
        }
        Command::Delete { group } => session.api.delete(&["groups", &group]).await?,
    };
    session.printer.show(&group, |group, style| rows(std::slice::from_ref(group), style).render(style, ""))
}

async fn list(session: &Session, limit: LimitArgs) -> Result<(), Failure> {
    let mut listing = Listing::<GroupView>::of(&session.api, &["groups"], &[], limit);
    let mut printed = session.printer.list();
    while let Some(groups) = listing.next().await? {
        printed.page(groups, rows)?;
    }
    printed.end("no group")
}

fn rows(all: &[GroupView], _: Style) -> Table {
    let mut table = Table::new(&["NAME", "ID"]);
    for one in all {
        table.row([one.name.as_str().into(), one.id.to_string().into()]);
    }
    table
}
