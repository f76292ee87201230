//! `kasbah agent …`.

mod register;
mod rights;
mod show;

use std::collections::BTreeMap;

use events::AgentId;
use events::requests::authz::AgentView;
use events::requests::status::AgentStatus;
use serde::Serialize;

use crate::client::failure::Failure;
use crate::client::print::{Cell, Paint, Style, Table, age};
use crate::client::session::Session;

/// What to do with agents.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Registers an agent; prints its first token, once, or the manifests that install it
    Register(Box<register::Register>),
    /// Lists agents: connected since when, their version, which instance applies, whether it reaches its API server
    List,
    /// Shows an agent: how it stands, the configuration in force, what is wrong with the newest one, its tunnels
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
            let all = listed(session).await?;
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

/// An agent and how it stands.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    agent: AgentView,
    status: Option<AgentStatus>,
}

async fn listed(session: &Session) -> Result<Vec<Listed>, Failure> {
    let all: Vec<AgentView> = session.api.get(&["agents"], &[]).await?;
    let statuses: Vec<AgentStatus> = session.api.get(&["agent-statuses"], &[]).await?;
    let mut statuses: BTreeMap<AgentId, AgentStatus> =
        statuses.into_iter().map(|status| (status.agent, status)).collect();
    Ok(all
        .into_iter()
        .map(|agent| {
            let status = statuses.remove(&agent.id);
            Listed { agent, status }
        })
        .collect())
}

fn table(all: &[Listed], style: Style) -> String {
    let mut table = Table::new(&["NAME", "PROJECT", "CONNECTED", "VERSION", "APPLIES", "API SERVER", "ID"]);
    for Listed { agent, status } in all {
        let [connected, version, applies, reached] = standing(status.as_ref(), style);
        let name: Cell = agent.name.as_str().into();
        let project = agent.project_path.as_str().into();
        table.row([name, project, connected, version, applies, reached, agent.id.to_string().into()]);
    }
    table.render(style, "no agent; `kasbah agent register` makes one")
}

/// Connected since when, version, whether an instance applies, whether it reaches its API server.
fn standing(status: Option<&AgentStatus>, style: Style) -> [Cell; 4] {
    let none = || Cell::or_dash(None);
    let Some(status) = status else { return [none(), none(), none(), none()] };
    let applier = status.instances.iter().find(|instance| instance.applier);
    let connected = match (status.instances.iter().map(|instance| instance.since).min(), status.gone_since) {
        (Some(since), _) => Cell::painted(&age(since, style.now), Paint::Good),
        (None, Some(gone)) => Cell::painted(&format!("gone {} ago", age(gone, style.now)), Paint::Bad),
        (None, None) => Cell::painted("never", Paint::Odd),
    };
    let version = applier.or(status.instances.first()).map(|instance| instance.version.as_str());
    let applies = match (applier, status.instances.is_empty()) {
        (Some(_), _) => Cell::painted("yes", Paint::Good),
        (None, false) => Cell::painted("no", Paint::Bad),
        (None, true) => none(),
    };
    let reached = match status.api_server_reachable {
        Some(true) => Cell::painted("reached", Paint::Good),
        Some(false) => Cell::painted("not reached", Paint::Bad),
        None => none(),
    };
    [connected, Cell::or_dash(version), applies, reached]
}

#[cfg(test)]
mod tests {
    use events::requests::status::{AgentInstance, State};
    use events::{InstanceId, Timestamp};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn how_an_agent_stands_in_a_line() {
        let style = Style { colour: false, now: Timestamp(120_000) };
        let status = AgentStatus {
            agent: AgentId(Uuid::from_u128(1)),
            state: State::InSync,
            conditions: Vec::new(),
            instances: vec![AgentInstance {
                instance: InstanceId(Uuid::from_u128(2)),
                since: Timestamp(60_000),
                version: "0.1.0".into(),
                applier: true,
            }],
            gone_since: None,
            applier: None,
            api_server_reachable: Some(false),
            missing_rights: Vec::new(),
            sources: BTreeMap::new(),
        };
        let texts = |status: &AgentStatus| {
            let mut table = Table::new(&["A", "B", "C", "D"]);
            table.row(standing(Some(status), style));
            table.render(style, "").lines().nth(1).map(str::to_owned).unwrap_or_default()
        };
        assert_eq!(texts(&status), "1m  0.1.0  yes  not reached");
        let gone = AgentStatus {
            instances: Vec::new(),
            gone_since: Some(Timestamp(90_000)),
            api_server_reachable: None,
            ..status
        };
        assert_eq!(texts(&gone), "gone 30s ago  -  -  -");
    }
}
