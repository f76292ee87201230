//! `kasbah agent register …`.

use std::net::IpAddr;

use events::requests::authz::{AgentWithToken, RegisterAgent};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::manifests::{AgentReach, Installation};
use crate::client::print::{Fields, Style};
use crate::client::session::Session;

/// The gateway's port when nothing says another.
const GATEWAY_PORT: u16 = 8441;

/// Registers an agent.
#[derive(Debug, clap::Args)]
pub struct Register {
    /// Its name, unique in its configuration project: lower-case letters, digits and -
    name: String,
    /// Project that owns it, and whose repository has its configuration, .kasbah/agents/<name>/config.yaml
    #[arg(long, value_name = "GROUP/NAME", required_unless_present = "group", conflicts_with = "group")]
    project: Option<String>,
    /// Group that owns it instead of a project: the roles of people there hold for the agent
    #[arg(long, requires = "config_project")]
    group: Option<String>,
    /// With --group: project of the group whose repository has its configuration
    #[arg(long, value_name = "GROUP/NAME", requires = "group")]
    config_project: Option<String>,
    /// Print only the manifests to install it, including the token: pipe them into `kubectl apply -f -`
    #[arg(long, conflicts_with = "token_only")]
    manifests: bool,
    /// Print only the token
    #[arg(long)]
    token_only: bool,
    /// How it is installed.
    #[command(flatten)]
    install: InstallArgs,
}

/// How an agent is installed in its cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Manifests")]
pub struct InstallArgs {
    /// Namespace of the agent
    #[arg(long, value_name = "NAME", default_value = "kasbah-agent", value_parser = parse_label)]
    namespace: String,
    /// Gateway address as seen from the cluster; by default the server's setting, or the API's host with port 8441
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_gateway)]
    gateway: Option<String>,
    /// Restrict the agent to these namespaces, which must exist; by default the whole cluster
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_label)]
    namespaced: Vec<String>,
    /// Image of the agent
    #[arg(long, default_value = concat!("kasbah-agent:", env!("CARGO_PKG_VERSION")))]
    image: String,
}

impl Register {
    /// Registers it.
    ///
    /// # Errors
    /// When the server refuses or cannot be asked.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        // All that can go wrong here goes wrong before there is an agent.
        let certificate_authority = session.authority()?;
        let gateway = self.install.gateway.clone().unwrap_or_else(|| default_gateway(session));
        if self.manifests && is_loopback(&gateway) {
            eprintln!(
                "warning: pods cannot reach {gateway}, which is a local address of this machine; give --gateway"
            );
        }
        let (name, group) = (self.name.clone(), self.group.clone());
        // One of the two is there.
        let project = self.config_project.clone().or(self.project.clone()).unwrap_or_default();
        let body = RegisterAgent { name, project, group };
        let registered: AgentWithToken = session.api.send(Method::POST, &["agents"], &body).await?;
        if self.token_only {
            return session.printer.text(&registered.token.secret);
        }
        if self.manifests {
            return session
                .printer
                .text(&self.installation(&registered, gateway, certificate_authority).yaml()?);
        }
        let ca_file = session.settings.ca_file.as_ref().map(|path| path.display().to_string());
        session.printer.show(&registered, |registered, style| {
            next_steps(registered, &gateway, ca_file.as_deref(), style)
        })
    }

    fn installation(
        self,
        registered: &AgentWithToken,
        gateway: String,
        certificate_authority: Option<String>,
    ) -> Installation {
        let namespaces = self.install.namespaced;
        Installation {
            agent: registered.agent.name.clone(),
            namespace: self.install.namespace,
            reach: if namespaces.is_empty() {
                AgentReach::Cluster
            } else {
                AgentReach::Namespaces(namespaces)
            },
            image: self.install.image,
            gateway,
            token: registered.token.secret.clone(),
            certificate_authority,
            root_key: registered.root_key.clone(),
        }
    }
}

fn default_gateway(session: &Session) -> String {
    let host = session.settings.host();
    session.settings.gateway.clone().unwrap_or_else(|| format!("{host}:{GATEWAY_PORT}"))
}

fn is_loopback(gateway: &str) -> bool {
    let host = gateway.rsplit_once(':').map_or(gateway, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
}

fn parse_gateway(text: &str) -> Result<String, String> {
    let expected = "expected host:port, such as kasbah.example.org:8441";
    let (host, port) = text.rsplit_once(':').ok_or(expected)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let sound =
        !bare.is_empty() && !bare.contains(['/', ' ', '@']) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if sound { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

fn parse_label(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let sound = (1..=63).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.starts_with('-')
        && !text.ends_with('-');
    if sound {
        Ok(text.to_owned())
    } else {
        Err("expected a namespace: lower-case letters, digits and -".to_owned())
    }
}

fn next_steps(registered: &AgentWithToken, gateway: &str, ca_file: Option<&str>, style: Style) -> String {
    let agent = &registered.agent;
    let fields = Fields::new()
        .with("Agent", agent.name.as_str())
        .with("Id", agent.id.to_string())
        .with_some("Group", agent.group.as_ref().map(|group| group.name.as_str()))
        .with("Project", agent.project_path.as_str())
        .with("Token", registered.token.secret.as_str())
        .with("Root key", registered.root_key.as_str())
        .render(style);
    let ca_option = ca_file.map(|file| format!(" --ca-file {file}")).unwrap_or_default();
    format!(
        "{fields}
The token is shown only once: store it now, in a file that only you can read.

Next:
  1. Say in the repository of {project} what the agent is to do, in .kasbah/agents/{name}/config.yaml:
       sources:
         - name: main
           include: [\"manifests/**\"]
       user_access:              # who uses the cluster's API with kubectl; leave it out, and nobody does
         {access}
           - id: {owner}
  2. Run the agent where it reaches the cluster; with its root key it lets kubectl through, without it nobody:
       kasbah-agent --server {gateway} --token-file <file> --root-key {root_key}{ca_option} --kubeconfig <file>
     or as a pod: register it with --manifests, and pipe that into `kubectl apply -f -`
  3. Look how it goes: kasbah agent show {name}
  4. Let the agent act for people, and give them rights by RBAC in the cluster, as {project_users}:
       kasbah agent rights {name} | kubectl apply -f -
  5. Use the cluster: kasbah kubeconfig --agent {name}
",
        project = agent.project_path,
        access = if agent.group.is_some() { "groups:" } else { "projects:" },
        owner = agent.group.as_ref().map_or(&agent.project_path, |group| &group.name),
        name = agent.name,
        root_key = registered.root_key,
        project_users = "users kasbah:user:<login name> or the group kasbah:user",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_and_namespaces_are_checked() {
        for good in ["kasbah.example.org:8441", "10.0.0.1:1", "[::1]:8441"] {
            assert_eq!(parse_gateway(good), Ok(good.to_owned()));
        }
        for bad in ["", "host", "host:", ":1", "host:0", "host:99999", "https://host:1", "me@host:1"] {
            assert!(parse_gateway(bad).unwrap_err().contains("host:port"), "{bad}");
        }
        assert_eq!(parse_label("team-a"), Ok("team-a".to_owned()));
        for bad in ["", "Team", "-a", "a-", "a b", &"a".repeat(64)] {
            assert!(parse_label(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_no_pod_can_reach_is_known() {
        for here in ["127.0.0.1:8441", "localhost:8441", "[::1]:8441", "0.0.0.0:8441"] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in ["10.0.0.1:8441", "kasbah.example.org:8441"] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn the_next_steps_lead_to_an_agent_that_lets_kubectl_through() {
        use clap::Parser as _;
        use events::directory::TokenHolder;
        use events::requests::authz::{AgentView, SecretToken, TokenView};
        use events::{AgentId, ProjectId, Timestamp, TokenId};

        let none = uuid::Uuid::nil();
        let agent = AgentView {
            id: AgentId(none),
            name: "edge".to_owned(),
            project: ProjectId(none),
            project_path: "shop/config".to_owned(),
            group: None,
            registered_at: Timestamp(0),
        };
        let view = TokenView {
            id: TokenId(none),
            name: "first".to_owned(),
            holder: TokenHolder::Agent(agent.id),
            issued_at: Timestamp(0),
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
            clusters_only: false,
        };
        let token = SecretToken { view, secret: "secret".to_owned() };
        let root_key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned();
        let registered = AgentWithToken { agent, token, root_key: root_key.clone() };
        let style = Style { colour: false, now: Timestamp(0) };
        let text = next_steps(&registered, "kasbah.example:8441", Some("ca.crt"), style);
        let line = text.lines().find(|line| line.trim_start().starts_with("kasbah-agent ")).unwrap();
        let options = agent::args::Args::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!(options.root_key, Some(root_key.parse().unwrap()), "{text}");
        let file: String = text
            .lines()
            .skip_while(|line| line.trim() != "sources:")
            .take(6)
            .map(|line| format!("{}\n", &line[7..]))
            .collect();
        let checked = config_fetcher::schema::check("config.yaml", file.as_bytes());
        assert_eq!((checked.findings, checked.warnings), (vec![], vec![]), "{file}");
        assert_eq!(checked.draft.grants.user_projects[0].path, "shop/config");
    }
}
