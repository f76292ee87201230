//! `kasbah group …`.

use events::requests::authz::{CreateGroup, GroupView};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::print::{Style, Table};
use crate::client::session::Session;

/// What to do with groups.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Lists groups
    List,
    /// Creates a group
    Create {
        /// Its name, unique in the organization
        name: String,
    },
    /// Deletes a group; projects in it keep it, and are named
    Delete {
        /// Its name or id
        group: String,
    },
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let group: GroupView = match command {
        Command::List => {
            let all: Vec<GroupView> = session.api.get(&["groups"], &[]).await?;
            return session.printer.show(&all, |all, style| table(all, style));
        }
        Command::Create { name } => {
            session.api.send(Method::POST, &["groups"], &CreateGroup { name }).await?
        }
        Command::Delete { group } => session.api.delete(&["groups", &group]).await?,
    };
    session.printer.show(&group, |group, style| table(std::slice::from_ref(group), style))
}

fn table(all: &[GroupView], style: Style) -> String {
    let mut table = Table::new(&["NAME", "ID"]);
    for one in all {
        table.row([one.name.as_str().into(), one.id.to_string().into()]);
    }
    table.render(style, "no group")
}
