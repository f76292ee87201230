//! `kasbah credential …`.

pub(super) mod kubectl;

use std::path::PathBuf;

use events::requests::authz::{CreateCredential, CredentialView, GrantCredential};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::names::Names;
use crate::client::print::{Cell, Paint, Style, Table};
use crate::client::session::Session;

/// What to do with credentials.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List credentials, without their secrets
    List(LimitArgs),
    /// Create a credential in the key ring; reads its secret from a file or from standard input
    Create {
        /// Name, unique in the organization
        name: String,
        /// The only host that receives it, with a port if it differs from the scheme's default
        #[arg(long)]
        host: String,
        /// User name of the credential; by default git
        #[arg(long)]
        user: Option<String>,
        /// File with the secret
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
    },
    /// Permit a project to use a credential
    Grant {
        /// Name or id
        credential: String,
        /// `group/name` or id of the project
        #[arg(long, value_name = "GROUP/NAME")]
        project: String,
    },
    /// Destroy a credential's secret
    Revoke {
        /// Name or id
        credential: String,
    },
    /// Print a short-lived token for kubectl; kubeconfigs of `kasbah kubeconfig` call this command
    Kubectl,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let one: CredentialView = match command {
        Command::List(limit) => return list(session, limit).await,
        Command::Kubectl => return kubectl::run(session).await,
        Command::Create { name, host, user, secret_file } => {
            let secret = session.secret(secret_file.as_deref())?;
            let body = CreateCredential { name, host, user, secret: secret.to_string() };
            session.api.send(Method::POST, &["credentials"], &body).await?
        }
        Command::Grant { credential, project } => {
            let body = GrantCredential { credential, project };
            session.api.send(Method::POST, &["credentials", &body.credential, "grants"], &body).await?
        }
        Command::Revoke { credential } => session.api.delete(&["credentials", &credential]).await?,
    };
    let names = names_for(session, std::slice::from_ref(&one), Names::default()).await?;
    session.printer.show(&one, |one, style| rows(std::slice::from_ref(one), &names, style).render(style, ""))
}

async fn list(session: &Session, limit: LimitArgs) -> Result<(), Failure> {
    let mut listing = Listing::<CredentialView>::of(&session.api, &["credentials"], &[], limit);
    let mut printed = session.printer.list();
    let mut names = Names::default();
    while let Some(credentials) = listing.next().await? {
        names = names_for(session, &credentials, names).await?;
        printed.page(credentials, |credentials, style| rows(credentials, &names, style))?;
    }
    printed.end("no credential")
}

/// The names that these need, besides those that are known.
async fn names_for(session: &Session, all: &[CredentialView], known: Names) -> Result<Names, Failure> {
    let granted = all.iter().any(|credential| !credential.projects.is_empty());
    if granted && session.is_for_people() { known.with_projects(session).await } else { Ok(known) }
}

fn rows(all: &[CredentialView], names: &Names, _: Style) -> Table {
    let mut table = Table::new(&["NAME", "HOST", "STATE", "PROJECTS", "ID"]);
    for one in all {
        let projects: Vec<String> = one.projects.iter().map(|project| names.project(*project)).collect();
        let state = match one.revoked {
            true => Cell::painted("revoked", Paint::Bad),
            false => Cell::painted("live", Paint::Good),
        };
        table.row([
            one.name.as_str().into(),
            one.host.as_str().into(),
            state,
            Cell::or_dash(Some(&projects.join(", "))),
            one.id.to_string().into(),
        ]);
    }
    table
}
