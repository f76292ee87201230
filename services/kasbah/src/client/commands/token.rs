//! `kasbah token …`.

use std::time::Duration;

use chassis::args::parse_duration;
use events::directory::TokenHolder;
use events::requests::authz::{IssueToken, SecretToken, TokenView};
use events::{Timestamp, TokenId};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::names::Names;
use crate::client::print::{Cell, Fields, Paint, Style, Table, age, at};
use crate::client::session::Session;

/// What to do with tokens.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Issue a token; prints it, once
    Issue {
        #[command(flatten)]
        holder: HolderArgs,
        /// Name of the token
        #[arg(long)]
        name: String,
        /// Lifetime of the token, such as 30d or 12h; by default the organization's setting. Agents' tokens do not expire
        #[arg(long, value_name = "DURATION", value_parser = parse_lifetime, conflicts_with = "agent")]
        expires: Option<Duration>,
        /// Print only the token
        #[arg(long)]
        token_only: bool,
    },
    /// List tokens, without their secrets
    List {
        #[command(flatten)]
        holder: HolderArgs,
        /// Tokens of this project's jobs, by group/name or id
        #[arg(long, conflicts_with_all = ["agent", "user"])]
        project: Option<String>,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Revoke a token at once, and close every tunnel that it opened
    Revoke {
        /// Id, from `kasbah token list`
        token: TokenId,
    },
}

/// Whose token; your own if nothing is given.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct HolderArgs {
    /// For this agent, by name or id
    #[arg(long, conflicts_with = "user")]
    agent: Option<String>,
    /// For this user, by name or id
    #[arg(long)]
    user: Option<String>,
}

pub(super) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = parse_duration(text).map_err(|error| error.to_string())?;
    if lifetime < Duration::from_secs(1) {
        Err("expected at least one second".to_owned())
    } else {
        Ok(lifetime)
    }
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Issue { holder, name, expires, token_only } => {
            let lifetime_seconds = expires.map(|lifetime| lifetime.as_secs());
            let (agent, user) = (holder.agent, holder.user);
            let body = IssueToken { agent, user, name, lifetime_seconds, clusters_only: false };
            let issued: SecretToken = session.api.send(Method::POST, &["tokens"], &body).await?;
            if token_only {
                return session.printer.text(&issued.secret);
            }
            let names = names_for(session, std::slice::from_ref(&issued.view), Names::default()).await?;
            session
                .printer
                .show(&issued, |issued, style| issued_text(issued, &names.holder(issued.view.holder), style))
        }
        Command::List { holder, project, limit } => list(session, holder, project, limit).await,
        Command::Revoke { token } => {
            let revoked: TokenView = session.api.delete(&["tokens", &token.to_string()]).await?;
            let names = names_for(session, std::slice::from_ref(&revoked), Names::default()).await?;
            session.printer.show(&revoked, |one, style| table(std::slice::from_ref(one), &names, style))
        }
    }
}

async fn list(
    session: &Session,
    holder: HolderArgs,
    project: Option<String>,
    limit: LimitArgs,
) -> Result<(), Failure> {
    let mut query = Vec::new();
    query.extend(holder.agent.map(|agent| ("agent", agent)));
    query.extend(holder.user.map(|user| ("user", user)));
    query.extend(project.map(|project| ("project", project)));
    let mut listing = Listing::<TokenView>::of(&session.api, &["tokens"], &query, limit);
    let mut printed = session.printer.list();
    let mut names = Names::default();
    while let Some(tokens) = listing.next().await? {
        names = names_for(session, &tokens, names).await?;
        printed.page(tokens, |tokens, style| rows(tokens, &names, style))?;
    }
    printed.end("no token")
}

/// The names that these need, besides those that are known.
pub(super) async fn names_for(
    session: &Session,
    tokens: &[TokenView],
    known: Names,
) -> Result<Names, Failure> {
    let mut names = known;
    if !session.is_for_people() {
        return Ok(names);
    }
    if tokens.iter().any(|token| matches!(token.holder, TokenHolder::Agent(_))) {
        names = names.with_agents(session).await?;
    }
    if tokens.iter().any(|token| matches!(token.holder, TokenHolder::User(_))) {
        names = names.with_users(session).await?;
    }
    Ok(names)
}

pub(super) fn issued_text(issued: &SecretToken, holder: &str, style: Style) -> String {
    let expires = issued.view.expires_at.map(|moment| at(moment, style.now));
    let fields = Fields::new()
        .with("Token", issued.secret.as_str())
        .with("For", holder)
        .with("Name", issued.view.name.as_str())
        .with("Id", issued.view.id.to_string())
        .with("Expires", expires.unwrap_or_else(|| "never".to_owned()));
    format!("{}\nThe token is shown only once: store it now.\n", fields.render(style))
}

/// The server keeps the hour of the last use, no more.
fn used(hour: Timestamp, now: Timestamp) -> String {
    if now.millis_since(hour) < 2 * 3_600_000 {
        "lately".to_owned()
    } else {
        format!("{} ago", age(hour, now))
    }
}

fn state(token: &TokenView, now: Timestamp) -> Cell {
    match (token.revoked_at, token.expires_at) {
        (Some(moment), _) => Cell::painted(&format!("revoked {} ago", age(moment, now)), Paint::Dim),
        (None, Some(moment)) if moment <= now => {
            Cell::painted(&format!("expired {} ago", age(moment, now)), Paint::Dim)
        }
        _ => Cell::painted("live", Paint::Good),
    }
}

pub(super) fn table(all: &[TokenView], names: &Names, style: Style) -> String {
    rows(all, names, style).render(style, "no token")
}

fn rows(all: &[TokenView], names: &Names, style: Style) -> Table {
    let mut table = Table::new(&["NAME", "HOLDER", "STATE", "EXPIRES", "LAST USED", "ID"]);
    for one in all {
        let expires =
            one.expires_at.filter(|moment| *moment > style.now).map(|moment| age(moment, style.now));
        let used = one.last_used_at.map(|moment| used(moment, style.now));
        table.row([
            one.name.as_str().into(),
            names.holder(one.holder).into(),
            state(one, style.now),
            Cell::or_dash(expires.as_deref()),
            Cell::or_dash(used.as_deref()),
            one.id.to_string().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use events::UserId;
    use uuid::Uuid;

    use super::*;

    fn token(expires_at: Option<i64>, revoked_at: Option<i64>) -> TokenView {
        TokenView {
            id: TokenId(Uuid::from_u128(1)),
            name: "ci".into(),
            holder: TokenHolder::User(UserId(Uuid::from_u128(2))),
            issued_at: Timestamp(0),
            expires_at: expires_at.map(Timestamp),
            last_used_at: None,
            revoked_at: revoked_at.map(Timestamp),
            clusters_only: false,
        }
    }

    #[test]
    fn a_token_that_is_shown_says_for_whom_it_is() {
        let issued = SecretToken { view: token(None, None), secret: "kasbah_personal_x".to_owned() };
        let holder = Names::default().holder(issued.view.holder);
        let shown = issued_text(&issued, &holder, Style { colour: false, now: Timestamp(0) });
        assert!(shown.contains("For      user 00000000-0000-0000-0000-000000000002\n"), "{shown}");
    }

    #[test]
    fn a_token_is_live_revoked_or_expired() {
        let style = Style { colour: false, now: Timestamp(3_600_000) };
        let states = [
            token(None, None),
            token(Some(7_200_000), None),
            token(Some(0), None),
            token(None, Some(3_540_000)),
        ];
        let text = table(&states, &Names::default(), style);
        let lines: Vec<&str> = text.lines().collect();
        let user = "user 00000000-0000-0000-0000-000000000002";
        let id = "00000000-0000-0000-0000-000000000001";
        assert_eq!(lines[1], format!("ci    {user}  live            -        -          {id}"));
        assert_eq!(lines[2], format!("ci    {user}  live            in 1h    -          {id}"));
        assert_eq!(lines[3], format!("ci    {user}  expired 1h ago  -        -          {id}"));
        assert_eq!(lines[4], format!("ci    {user}  revoked 1m ago  -        -          {id}"));
    }

    #[test]
    fn lifetimes_are_durations_of_a_second_or_more() {
        assert_eq!(parse_lifetime("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert!(parse_lifetime("10ms").unwrap_err().contains("one second"));
        assert!(parse_lifetime("tomorrow").unwrap_err().contains("30s"));
    }

    #[test]
    fn the_last_use_is_known_to_the_hour_only() {
        assert_eq!(used(Timestamp(0), Timestamp(3_600_000)), "lately");
        assert_eq!(used(Timestamp(0), Timestamp(7_200_000)), "2h ago");
    }
}
