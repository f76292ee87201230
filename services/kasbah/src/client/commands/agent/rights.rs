//! `kasbah agent rights …`.

use std::collections::BTreeSet;

use events::requests::authz::{GroupView, ProjectView};
use events::requests::configuration::ConfigurationView;

use crate::client::failure::Failure;
use crate::client::impersonation::{Directory, Impersonation};
use crate::client::session::Session;

/// Prints the rights to impersonate.
#[derive(Debug, clap::Args)]
pub struct Rights {
    /// Name, `group/project:name`, or id
    agent: String,
    /// Namespace that the agent runs in
    #[arg(long, value_name = "NAME", default_value = "kasbah-agent")]
    namespace: String,
    /// Login names of the people who may come as themselves; anybody whom the configuration lets in if not given
    #[arg(long = "user", value_name = "NAME,…", value_delimiter = ',')]
    users: Vec<String>,
    /// Environments of jobs, beside those that the configuration names: the cluster refuses jobs of any other
    #[arg(long = "environment", value_name = "NAME,…", value_delimiter = ',')]
    environments: Vec<String>,
}

impl Rights {
    /// Prints them for the configuration that is in force.
    ///
    /// # Errors
    /// When the server refuses or cannot be asked.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let agent = session.agent(&self.agent).await?;
        let id = agent.id.to_string();
        let view: ConfigurationView = session.api.get(&["agents", &id, "configuration"], &[]).await?;
        let grants = view.configuration.map(|configuration| configuration.grants).unwrap_or_default();
        let projects: Vec<ProjectView> = session.api.get(&["projects"], &[]).await?;
        let groups: Vec<GroupView> = session.api.get(&["groups"], &[]).await?;
        let rights = Impersonation {
            agent: &agent,
            namespace: &self.namespace,
            grants: &grants,
            directory: Directory { projects: &projects, groups: &groups },
            users: &self.users,
            environments: self.environments.into_iter().collect::<BTreeSet<_>>(),
        };
        session.printer.text(&rights.yaml()?)
    }
}
