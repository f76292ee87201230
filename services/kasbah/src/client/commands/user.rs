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
    /// Lists users and their roles
    List(LimitArgs),
    /// Shows one user
    Show {
        /// Login name or id
        user: String,
    },
    /// Creates a user with a first role; `kasbah token issue --user` gives them a token
    Create {
        /// Login name
        name: String,
        /// First role: operator, owner, maintainer, developer, viewer or job
        #[arg(long, value_parser = parse_role)]
        role: Role,
        #[command(flatten)]
        place: ScopeArgs,
    },
    /// Gives a user a role, or takes it
    Role {
        /// Login name or id
        user: String,
        /// Role: operator, owner, maintainer, developer, viewer or job
        #[arg(value_parser = parse_role)]
        role: Role,
        #[command(flatten)]
        place: ScopeArgs,
        /// Takes the role instead of giving it
        #[arg(long)]
        withdraw: bool,
    },
    /// Ends everything of a user at once: their tokens and those that they made, sign-ins, and what is open by any of these
    Disable {
        /// Login name or id
        user: String,
        /// Leaves agents' tokens that they made: without this, agents with no other token are cut off
        #[arg(long)]
        keep_agents_tokens: bool,
    },
    /// Lets a user in again who was disabled; they have their roles, and no token of before
    Enable {
        /// Login name or id
        user: String,
    },
    /// Takes a user's account at an identity provider from them: who next signs in there under their login name is them
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
    /// Where it holds: organization, group:<name>, project:<group/name> or agent:<name>
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
            ("Tokens that they made, which are dead now", &disabled.ended, disabled.more_ended),
            ("Agents' tokens that they made, which live on", &disabled.kept, disabled.more_kept),
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
