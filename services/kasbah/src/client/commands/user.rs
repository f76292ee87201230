//! `kasbah user …`.

use events::directory::Role;
use events::requests::authz::{
    AssignRole, CreateUser, DisableUser, DisabledUser, EnableUser, TokenView, UserView,
};
use reqwest::Method;

use super::token;
use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::names::{Names, ScopeName, parse_role, parse_scope, role_name};
use crate::client::print::{Cell, Paint, Style, Table};
use crate::client::session::Session;

/// What to do with users.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List users and their roles
    List(LimitArgs),
    /// Shows one user
    Show {
        /// Login name or id
        user: String,
    },
    /// Create a user with a first role; `kasbah token issue --user` issues a token for them
    Create {
        /// Login name
        name: String,
        /// First role: operator, owner, maintainer, developer, viewer or job
        #[arg(long, value_parser = parse_role)]
        role: Role,
        #[command(flatten)]
        place: ScopeArgs,
    },
    /// Assign a role to a user, or withdraw it
    Role {
        /// Login name or id
        user: String,
        /// Role: operator, owner, maintainer, developer, viewer or job
        #[arg(value_parser = parse_role)]
        role: Role,
        #[command(flatten)]
        place: ScopeArgs,
        /// Withdraw the role instead of assigning it
        #[arg(long)]
        withdraw: bool,
    },
    /// Disable a user: revoke their tokens and those that they issued, refuse sign-ins, and close all connections that use these
    /// tokens
    Disable {
        /// Login name or id
        user: String,
        /// Keep agents' tokens that they issued: without this, agents with no other token are disconnected
        #[arg(long)]
        keep_agents_tokens: bool,
    },
    /// Enable a disabled user; their roles apply again, their former tokens stay revoked
    Enable {
        /// Login name or id
        user: String,
    },
    /// Unlink a user's account at an identity provider: the next account that signs in there with their login name is linked to them
    Unlink {
        /// Login name or id
        user: String,
        /// Name of the identity provider
        #[arg(long)]
        provider: String,
    },
}

/// Where a role holds.
#[derive(Debug, Clone, clap::Args)]
pub struct ScopeArgs {
    /// Scope: organization, group:<name>, project:<group/name> or agent:<name>
    #[arg(long, value_parser = parse_scope, default_value = "organization")]
    scope: ScopeName,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let users: Vec<UserView> = match command {
        Command::List(limit) => return list(session, limit).await,
        Command::Show { user } => vec![session.api.get(&["users", &user], &[]).await?],
        Command::Create { name, role, place } => {
            let body = CreateUser { name, role, scope: place.scope.resolve(session).await? };
            vec![session.api.send(Method::POST, &["users"], &body).await?]
        }
        Command::Role { user, role, place, withdraw } => {
            let body = AssignRole { user, role, scope: place.scope.resolve(session).await?, withdraw };
            vec![session.api.send(Method::POST, &["users", &body.user, "roles"], &body).await?]
        }
        Command::Disable { user, keep_agents_tokens } => {
            return disable(session, DisableUser { user, keep_agents_tokens }).await;
        }
        Command::Enable { user } => {
            let body = EnableUser { user };
            vec![session.api.send(Method::POST, &["users", &body.user, "enable"], &body).await?]
        }
        Command::Unlink { user, provider } => {
            vec![session.api.delete(&["users", &user, "accounts", &provider]).await?]
        }
    };
    let names = names_for(session, &users, Names::default()).await?;
    match users.first() {
        Some(one) => session.printer.show(one, |_, style| table(&users, &names, style)),
        None => Ok(()),
    }
}

async fn disable(session: &Session, body: DisableUser) -> Result<(), Failure> {
    let path = ["users", body.user.as_str(), "disable"];
    let disabled: DisabledUser = session.api.send(Method::POST, &path, &body).await?;
    let user = std::slice::from_ref(&disabled.user);
    let names = names_for(session, user, Names::default()).await?;
    let tokens: Vec<TokenView> = disabled.ended.iter().chain(&disabled.kept).cloned().collect();
    let holders = token::names_for(session, &tokens, Names::default()).await?;
    session.printer.show(&disabled, |disabled, style| {
        let mut text = table(std::slice::from_ref(&disabled.user), &names, style);
        for (what, tokens, more) in [
            ("Revoked tokens that they issued", &disabled.ended, disabled.more_ended),
            ("Agents' tokens that they issued, still valid", &disabled.kept, disabled.more_kept),
        ] {
            if !tokens.is_empty() {
                text.push_str(&format!("\n{what}:\n{}", token::table(tokens, &holders, style)));
            }
            if more > 0 {
                text.push_str(&format!("and {more} more\n"));
            }
        }
        text
    })
}

async fn list(session: &Session, limit: LimitArgs) -> Result<(), Failure> {
    let mut listing = Listing::<UserView>::of(&session.api, &["users"], &[], limit);
    let mut printed = session.printer.list();
    let mut names = Names::default();
    while let Some(users) = listing.next().await? {
        names = names_for(session, &users, names).await?;
        printed.page(users, |users, style| rows(users, &names, style))?;
    }
    printed.end("no user")
}

/// The names that these need, besides those that are known.
async fn names_for(session: &Session, users: &[UserView], known: Names) -> Result<Names, Failure> {
    use events::directory::Scope::Organization;
    let narrow =
        users.iter().flat_map(|user| &user.roles).any(|(_, scope)| !matches!(scope, Organization(_)));
    if !narrow || !session.is_for_people() {
        return Ok(known);
    }
    known.with_groups(session).await?.with_projects(session).await?.with_agents(session).await
}

fn table(users: &[UserView], names: &Names, style: Style) -> String {
    rows(users, names, style).render(style, "no user")
}

fn rows(users: &[UserView], names: &Names, _: Style) -> Table {
    let mut table = Table::new(&["NAME", "STATE", "ROLES", "ACCOUNTS", "ID"]);
    for user in users {
        let name = user.name.as_deref().map_or_else(|| Cell::painted("(erased)", Paint::Dim), Cell::from);
        let roles: Vec<String> = user
            .roles
            .iter()
            .map(|(role, scope)| format!("{} of {}", role_name(*role), names.scope(*scope)))
            .collect();
        let state = if user.disabled {
            Cell::painted("disabled", Paint::Bad)
        } else {
            Cell::painted("live", Paint::Good)
        };
        table.row([
            name,
            state,
            Cell::or_dash(Some(&roles.join(", "))),
            Cell::or_dash(Some(&user.accounts.join(", "))),
            user.id.to_string().into(),
        ]);
    }
    table
}
