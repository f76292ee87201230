//! `kasbah agent rights …`.

use std::io::IsTerminal as _;

use events::request::RefusalKind;
use events::requests::authz::{GroupView, ProjectView, UserView};
use events::requests::configuration::ConfigurationView;

use crate::client::failure::Failure;
use crate::client::impersonation::{Directory, Impersonation};
use crate::client::session::Session;

/// Prints the rights to impersonate.
#[derive(Debug, clap::Args)]
pub struct Rights {
    /// Name, `group/project:name`, or id
    agent: String,
    /// Namespace of the agent
    #[arg(long, value_name = "NAME", default_value = "kasbah-agent")]
    namespace: String,
    /// Login names of the users that the agent may impersonate; by default all users whose roles give them access by the
    /// configuration
    #[arg(long = "user", value_name = "NAME,…", value_delimiter = ',')]
    users: Vec<String>,
    /// Permit all user names for jobs as themselves, because their names cannot be listed: an attacker who takes over the agent can
    /// then act as any user of the cluster, including its controllers and administrators
    #[arg(long)]
    any_user: bool,
    /// Further environments of jobs, beside those in the configuration: the cluster refuses jobs of any other
    #[arg(long = "environment", value_name = "NAME,…", value_delimiter = ',')]
    environments: Vec<String>,
    /// Further tiers of environments, beside production, staging, testing, development and other: the cluster refuses jobs of any
    /// other
    #[arg(long = "tier", value_name = "NAME,…", value_delimiter = ',')]
    tiers: Vec<String>,
}

impl Rights {
    /// Prints them for the configuration that is in force.
    ///
    /// # Errors
    /// When the server refuses or cannot be asked, or the asker sees too little.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let agent = session.agent(&self.agent).await?;
        let id = agent.id.to_string();
        let view: ConfigurationView = session.api.get(&["agents", &id, "configuration"], &[]).await?;
        let grants = view.configuration.map(|configuration| configuration.grants).unwrap_or_default();
        let projects: Vec<ProjectView> = session.api.list(&["projects"], &[]).await?;
        let groups: Vec<GroupView> = session.api.list(&["groups"], &[]).await?;
        let users = everybody(session).await?;
        let impersonation = Impersonation {
            agent: &agent,
            namespace: &self.namespace,
            grants: &grants,
            directory: Directory { projects: &projects, groups: &groups, users: users.as_deref() },
            users: &self.users,
            any_user: self.any_user,
            environments: self.environments.into_iter().collect(),
            tiers: self.tiers.into_iter().collect(),
        };
        let rights = impersonation.rights()?;
        session.printer.text(&rights.yaml()?)?;
        // What goes into a pipe is read by nobody.
        if !std::io::stdout().is_terminal() {
            rights.remarks.iter().for_each(|remark| eprintln!("{remark}"));
        }
        Ok(())
    }
}

/// The people of the organization, if the asker may list them.
async fn everybody(session: &Session) -> Result<Option<Vec<UserView>>, Failure> {
    match session.api.list(&["users"], &[]).await {
        Err(Failure::Refused { refusal, .. })
            if matches!(refusal.kind, RefusalKind::Denied | RefusalKind::NotFound) =>
        {
            Ok(None)
        }
        other => other.map(Some),
    }
}
