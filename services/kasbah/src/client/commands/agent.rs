//! `kasbah agent …`.

mod register;
mod rights;
mod show;

use events::requests::authz::AgentView;

use crate::client::failure::Failure;
use crate::client::print::{Style, Table, age};
use crate::client::session::Session;

/// What to do with agents.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Registers an agent; prints its first token, once, or the manifests that install it
    Register(Box<register::Register>),
    /// Lists agents
    List,
    /// Shows an agent: the configuration in force, what is wrong with the newest one, its tunnels
    Show {
        /// Name, `group/project:name`, or id
        agent: String,
    },
    /// Prints what the agent has to be allowed to impersonate, by its configuration: pipe it into `kubectl apply -f -`
    Rights(rights::Rights),
    /// Deletes an agent: its tokens are dead at once; what it applied stays in the cluster
    Delete {
        /// Name, `group/project:name`, or id
        agent: String,
    },
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Register(register) => register.run(session).await,
        Command::List => {
            let all: Vec<AgentView> = session.api.get(&["agents"], &[]).await?;
            session.printer.show(&all, |all, style| table(all, style))
        }
        Command::Show { agent } => show::run(session, &agent).await,
        Command::Rights(rights) => rights.run(session).await,
        Command::Delete { agent } => {
            let deleted: AgentView = session.api.delete(&["agents", &agent]).await?;
            session.printer.show(&deleted, |deleted, _| {
                format!(
                    "Agent {} of {} is deleted; its tokens are dead. What it applied stays.",
                    deleted.name, deleted.project_path
                )
            })
        }
    }
}

fn table(all: &[AgentView], style: Style) -> String {
    let mut table = Table::new(&["NAME", "PROJECT", "AGE", "ID"]);
    for one in all {
        table.row([
            one.name.as_str().into(),
            one.project_path.as_str().into(),
            age(one.registered_at, style.now).into(),
            one.id.to_string().into(),
        ]);
    }
    table.render(style, "no agent; `kasbah agent register` makes one")
}
