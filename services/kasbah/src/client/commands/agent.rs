//! `kasbah agent …`.

mod register;
mod rights;
mod show;

use std::collections::VecDeque;

use events::AgentId;
use events::requests::authz::AgentView;
use events::requests::status::AgentStatus;
use serde::Serialize;

use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::print::{Cell, Paint, Style, Table, age};
use crate::client::session::Session;

/// What to do with agents.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Register an agent; prints its first token, once, or the manifests to install it
    Register(Box<register::Register>),
    /// List agents with connection time, version, the instance that applies, and whether it reaches its API server
    List(LimitArgs),
    /// Show an agent: its status, the configuration in force, errors of the newest one, its tunnels
    Show {
        /// Name, `group/project:name`, or id
        agent: String,
    },
    /// Print the RBAC objects for the identities that the agent must impersonate, by its configuration: pipe them into `kubectl apply
    /// -f -`
    Rights(rights::Rights),
    /// Delete an agent and revoke its tokens at once; the objects that it applied stay in the cluster
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
        Command::List(limit) => list(session, limit).await,
        Command::Show { agent } => show::run(session, &agent).await,
        Command::Rights(rights) => rights.run(session).await,
        Command::Delete { agent } => {
            let deleted: AgentView = session.api.delete(&["agents", &agent]).await?;
            session.printer.show(&deleted, |deleted, _| {
                format!(
                    "Agent {} of {} is deleted; its tokens are revoked. The objects that it applied stay.",
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

async fn list(session: &Session, limit: LimitArgs) -> Result<(), Failure> {
    let mut listing = Listing::<AgentView>::of(&session.api, &["agents"], &[], limit);
    let mut statuses = Statuses::of(session);
    let mut printed = session.printer.list();
    while let Some(agents) = listing.next().await? {
        let mut page = Vec::with_capacity(agents.len());
        for agent in agents {
            let status = statuses.of_agent(agent.id).await?;
            page.push(Listed { agent, status });
        }
        printed.page(page, rows)?;
    }
    printed.end("no agent; `kasbah agent register` makes one")
}

/// How agents stand, read beside the list of agents, which has the same order.
struct Statuses<'s> {
    listing: Listing<'s, AgentStatus>,
    known: VecDeque<AgentStatus>,
    are_all_known: bool,
}

impl<'s> Statuses<'s> {
    fn of(session: &'s Session) -> Self {
        let listing = Listing::of(&session.api, &["agent-statuses"], &[], LimitArgs::default());
        Self { listing, known: VecDeque::new(), are_all_known: false }
    }

    /// The status of an agent that stands behind those of before; `None` where nothing is known of it.
    async fn of_agent(&mut self, agent: AgentId) -> Result<Option<AgentStatus>, Failure> {
        loop {
            while self.known.front().is_some_and(|status| status.agent < agent) {
                self.known.pop_front();
            }
            if !self.known.is_empty() || self.are_all_known {
                return Ok(self.known.pop_front_if(|status| status.agent == agent));
            }
            match self.listing.next().await? {
                Some(more) => self.known.extend(more),
                None => self.are_all_known = true,
            }
        }
    }
}

fn rows(all: &[Listed], style: Style) -> Table {
    let mut table =
        Table::new(&["NAME", "GROUP", "PROJECT", "CONNECTED", "VERSION", "APPLIES", "API SERVER", "ID"]);
    for Listed { agent, status } in all {
        let [connected, version, applies, reached] = standing(status.as_ref(), style);
        let name: Cell = agent.name.as_str().into();
        let project: Cell = agent.project_path.as_str().into();
        table.row([
            name,
            Cell::or_dash(agent.group.as_ref().map(|group| group.name.as_str())),
            project,
            connected,
            version,
            applies,
            reached,
            agent.id.to_string().into(),
        ]);
    }
    table
}

/// Connected since when, version, whether an instance applies, whether it reaches its API server.
fn standing(status: Option<&AgentStatus>, style: Style) -> [Cell; 4] {
    let none = || Cell::or_dash(None);
    let Some(status) = status else { return [none(), none(), none(), none()] };
    let applier = status.instances.iter().find(|instance| instance.applier);
    let connected = match (status.instances.iter().map(|instance| instance.since).min(), status.gone_since) {
        (Some(since), _) => Cell::painted(&age(since, style.now), Paint::Good),
        (None, Some(gone)) => {
            Cell::painted(&format!("disconnected {} ago", age(gone, style.now)), Paint::Bad)
        }
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
    use std::collections::BTreeMap;

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
        assert_eq!(texts(&gone), "disconnected 30s ago  -  -  -");
    }
}
