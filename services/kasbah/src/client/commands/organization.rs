//! `kasbah organization …`.

use std::time::Duration;

use events::directory::TokenLifetimes;
use events::requests::authz::{CreateOrganization, OrganizationView, SetTokenLifetimes};
use reqwest::Method;

use super::token::parse_lifetime;
use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::print::{Fields, Style, Table};
use crate::client::session::Session;

/// What to do with organizations.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the organizations that you may see
    List(LimitArgs),
    /// Create an organization; prints its owner's first token, once
    Create {
        /// Name, unique on this installation
        name: String,
        /// Login name of its first owner
        #[arg(long, value_name = "USER")]
        owner: String,
    },
    /// Set the lifetimes of new personal tokens of your organization; omitted values stay unchanged
    Tokens {
        /// Default lifetime of a token, such as 90d
        #[arg(long, value_name = "DURATION", value_parser = parse_lifetime, required_unless_present = "longest")]
        default: Option<Duration>,
        /// Maximum lifetime of a token, such as 365d
        #[arg(long, value_name = "DURATION", value_parser = parse_lifetime)]
        longest: Option<Duration>,
    },
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(limit) => {
            let mut listing = Listing::<OrganizationView>::of(&session.api, &["organizations"], &[], limit);
            let mut printed = session.printer.list();
            while let Some(organizations) = listing.next().await? {
                printed.page(organizations, rows)?;
            }
            printed.end("no organization")
        }
        Command::Create { name, owner } => {
            let body = CreateOrganization { name, owner };
            let created: OrganizationView = session.api.send(Method::POST, &["organizations"], &body).await?;
            session.printer.show(&created, created_text)
        }
        Command::Tokens { default, longest } => {
            let seconds = |time: Option<Duration>| time.map(|time| time.as_secs());
            let body =
                SetTokenLifetimes { default_seconds: seconds(default), longest_seconds: seconds(longest) };
            let path = ["organization", "token-lifetimes"];
            let set: OrganizationView = session.api.send(Method::PATCH, &path, &body).await?;
            session.printer.show(&set, |set, style| rows(std::slice::from_ref(set), style).render(style, ""))
        }
    }
}

fn rows(all: &[OrganizationView], _: Style) -> Table {
    let mut table = Table::new(&["NAME", "TOKENS LIVE", "AT MOST", "ID"]);
    for one in all {
        let TokenLifetimes { default_seconds, longest_seconds } = one.token_lifetimes;
        table.row([
            one.name.as_str().into(),
            lasting(default_seconds).into(),
            lasting(longest_seconds).into(),
            one.id.to_string().into(),
        ]);
    }
    table
}

/// A time as `--expires` takes it.
fn lasting(seconds: u64) -> String {
    [("d", 86_400), ("h", 3600), ("m", 60)]
        .into_iter()
        .find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit))
        .map_or_else(|| format!("{seconds}s"), |(unit, length)| format!("{}{unit}", seconds / length))
}

fn created_text(created: &OrganizationView, style: Style) -> String {
    let token = created.owner_token.as_ref().map(|token| token.secret.as_str());
    let fields = Fields::new().with("Organization", created.name.as_str()).with("Id", created.id.to_string());
    let mut text = fields.with_some("Owner's token", token).render(style);
    if token.is_some() {
        text.push_str("\nThe token is shown only once: store it now. Anyone who has it is the owner.\n");
    }
    text
}
