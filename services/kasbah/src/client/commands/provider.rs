//! `kasbah provider …`.

use events::requests::authz::{ProviderKind, ProviderTrust, ProviderView, TrustProvider};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::print::{Cell, Style, Table};
use crate::client::session::Session;

/// What to do with identity providers.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the identity providers that the operator allows, and those that your organization trusts
    List,
    /// Trust an identity provider for sign-ins of users or jobs
    Trust {
        /// Name, from `kasbah provider list`
        provider: String,
        /// For jobs: a group of GitLab (with all below it) or an organization of GitHub whose repositories' jobs to trust; may be
        /// given more than once, and replaces the former list
        #[arg(long = "owner", value_name = "PATH")]
        owners: Vec<String>,
    },
    /// Stop trusting an identity provider; issued tokens stay valid until they expire
    Distrust {
        /// Name
        provider: String,
    },
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List => {
            let all: Vec<ProviderView> = session.api.get(&["identity-providers"], &[]).await?;
            session.printer.show(&all, |all, style| table(all, style))
        }
        Command::Trust { provider, owners } => {
            let path = ["identity-providers", &provider, "trust"];
            let body = TrustProvider { provider: provider.clone(), owners };
            let one: ProviderView = session.api.send(Method::POST, &path, &body).await?;
            session.printer.show(&one, |one, style| table(std::slice::from_ref(one), style))
        }
        Command::Distrust { provider } => {
            let path = ["identity-providers", &provider, "trust"];
            let trust: ProviderTrust = session.api.delete(&path).await?;
            session.printer.show(&trust, |_, _| format!("{provider} is no longer trusted\n"))
        }
    }
}

const fn whom(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::People => "people",
        ProviderKind::GitlabJobs => "jobs of GitLab",
        ProviderKind::GithubJobs => "jobs of GitHub",
    }
}

fn table(all: &[ProviderView], style: Style) -> String {
    let mut table = Table::new(&["NAME", "OF", "ISSUER", "BELIEVED"]);
    for one in all {
        let believed = one.trust.as_ref().map(|trust| match trust.owners.as_slice() {
            [] => "yes".to_owned(),
            owners => owners.join(", "),
        });
        table.row([
            one.name.as_str().into(),
            whom(one.kind).into(),
            one.issuer.as_str().into(),
            Cell::or_dash(believed.as_deref()),
        ]);
    }
    table.render(style, "no identity provider: the operator names them with KASBAH_IDENTITY_PROVIDERS")
}

#[cfg(test)]
mod tests {
    use events::Timestamp;

    use super::*;

    #[test]
    fn a_provider_shows_of_whom_it_is_believed() {
        let provider = |name: &str, kind, owners: Option<&[&str]>| ProviderView {
            name: name.to_owned(),
            kind,
            issuer: format!("https://{name}.example"),
            audience: "kasbah".to_owned(),
            scopes: Vec::new(),
            client_secret: None,
            on_page: false,
            certificate_authority: None,
            trust: owners.map(|owners| ProviderTrust {
                owners: owners.iter().map(|owner| (*owner).to_owned()).collect(),
            }),
        };
        let all = [
            provider("company", ProviderKind::People, Some(&[])),
            provider("gitlab", ProviderKind::GitlabJobs, Some(&["shop", "ops/team"])),
            provider("github", ProviderKind::GithubJobs, None),
        ];
        let text = table(&all, Style { colour: false, now: Timestamp(0) });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "company  people          https://company.example  yes");
        assert_eq!(lines[2], "gitlab   jobs of GitLab  https://gitlab.example   shop, ops/team");
        assert_eq!(lines[3], "github   jobs of GitHub  https://github.example   -");
    }
}
