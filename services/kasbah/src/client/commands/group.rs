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
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List => {
            let all: Vec<GroupView> = session.api.get(&["groups"], &[]).await?;
            session.printer.show(&all, |all, style| table(all, style))
        }
        Command::Create { name } => {
            let created: GroupView =
                session.api.send(Method::POST, &["groups"], &CreateGroup { name }).await?;
            session.printer.show(&created, |created, style| table(std::slice::from_ref(created), style))
        }
    }
}

fn table(all: &[GroupView], style: Style) -> String {
    let mut table = Table::new(&["NAME", "ID"]);
    for one in all {
        table.row([one.name.as_str().into(), one.id.to_string().into()]);
    }
    table.render(style, "no group")
}
