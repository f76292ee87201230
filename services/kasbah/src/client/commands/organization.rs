//! `kasbah organization …`.

use events::requests::authz::{CreateOrganization, OrganizationView};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::print::{Fields, Style, Table};
use crate::client::session::Session;

/// What to do with organizations.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Lists the organizations that you may see
    List,
    /// Creates an organization; prints its owner's first token, once
    Create {
        /// Its name, unique on this installation
        name: String,
        /// Login name of its first owner
        #[arg(long, value_name = "USER")]
        owner: String,
    },
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List => {
            let all: Vec<OrganizationView> = session.api.get(&["organizations"], &[]).await?;
            session.printer.show(&all, |all, style| table(all, style))
        }
        Command::Create { name, owner } => {
            let body = CreateOrganization { name, owner };
            let created: OrganizationView = session.api.send(Method::POST, &["organizations"], &body).await?;
            session.printer.show(&created, created_text)
        }
    }
}

fn table(all: &[OrganizationView], style: Style) -> String {
    let mut table = Table::new(&["NAME", "ID"]);
    for one in all {
        table.row([one.name.as_str().into(), one.id.to_string().into()]);
    }
    table.render(style, "no organization")
}

fn created_text(created: &OrganizationView, style: Style) -> String {
    let token = created.owner_token.as_ref().map(|token| token.secret.as_str());
    let fields = Fields::new().with("Organization", created.name.as_str()).with("Id", created.id.to_string());
    let mut text = fields.with_some("Owner's token", token).render(style);
    if token.is_some() {
        text.push_str("\nThe token is shown this once: keep it now. Whoever has it is the owner.\n");
    }
    text
}
