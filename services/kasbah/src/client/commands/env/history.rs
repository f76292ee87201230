//! `kasbah env history`: deployments, and between them the changes of the environment itself.

use std::collections::VecDeque;

use events::environment::StopReason;
use events::requests::environments::{
    DeploymentView, EnvironmentChange, EnvironmentChangeKind, SettingChange,
};
use serde::Serialize;

use super::{EnvironmentArg, names, resolve, show};
use crate::client::failure::Failure;
use crate::client::lists::{LimitArgs, Listing};
use crate::client::names::Names;
use crate::client::print::{Cell, Paint, Style, Table, age};
use crate::client::session::Session;

/// Whose history, and how much of it.
#[derive(Debug, clap::Args)]
pub struct History {
    #[command(flatten)]
    environment: EnvironmentArg,
    #[command(flatten)]
    limit: LimitArgs,
}

/// One line of the history.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum Item {
    Deployment(Box<DeploymentView>),
    Environment(EnvironmentChange),
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub(super) async fn run(wanted: &History, session: &Session) -> Result<(), Failure> {
    let id = resolve(session, &wanted.environment).await?.to_string();
    let changes: Vec<EnvironmentChange> = session.api.get(&["environments", &id, "changes"], &[]).await?;
    let mut changes = VecDeque::from(changes);
    let path = ["environments", id.as_str(), "deployments"];
    let mut listing = Listing::<DeploymentView>::of(&session.api, &path, &[], wanted.limit);
    let mut printed = session.printer.list();
    let names = names(session).await?;
    let mut left = wanted.limit.most();
    while let Some(page) = listing.next().await? {
        let mut items = among(&mut changes, page);
        items.truncate(left);
        left = left.saturating_sub(items.len());
        printed.page(items, |page, style| rows(page, &names, style))?;
    }
    let rest: Vec<Item> = changes.into_iter().take(left).map(Item::Environment).collect();
    printed.page(rest, |page, style| rows(page, &names, style))?;
    printed.end("nothing happened yet")
}

/// Deployments with the changes that came after each of them, the newest first.
fn among(changes: &mut VecDeque<EnvironmentChange>, page: Vec<DeploymentView>) -> Vec<Item> {
    let mut items = Vec::new();
    for deployment in page {
        while let Some(change) = changes.pop_front_if(|change| change.at > deployment.started_at) {
            items.push(Item::Environment(change));
        }
        items.push(Item::Deployment(Box::new(deployment)));
    }
    items
}

fn rows(items: &[Item], names: &Names, style: Style) -> Table {
    let mut table = Table::new(&["WHAT", "COMMIT", "REF", "WHERE", "AGE", "ID", "REASON"]);
    for item in items {
        match item {
            Item::Deployment(one) => table.row(show::deployment_cells(one, names, style)),
            Item::Environment(change) => table.row([
                Cell::painted(word(&change.change), Paint::Dim),
                Cell::or_dash(None),
                Cell::or_dash(None),
                Cell::or_dash(None),
                age(change.at, style.now).into(),
                Cell::or_dash(None),
                in_words(change, names).into(),
            ]),
        }
    }
    table
}

fn word(change: &EnvironmentChangeKind) -> &'static str {
    match change {
        EnvironmentChangeKind::Created => "created",
        EnvironmentChangeKind::Changed => "settings",
        EnvironmentChangeKind::Reopened => "available",
        EnvironmentChangeKind::Stopped(_) => "stopped",
    }
}

/// `tier: staging → production, by user:…`.
fn in_words(change: &EnvironmentChange, names: &Names) -> String {
    let mut parts: Vec<String> = change.settings.iter().map(|setting| of_setting(setting, names)).collect();
    match &change.change {
        EnvironmentChangeKind::Stopped(StopReason::AutoStop) => {
            parts.push("its time to run was over".to_owned())
        }
        EnvironmentChangeKind::Stopped(StopReason::Requested(words)) if !words.is_empty() => {
            parts.push(words.clone());
        }
        _ => {}
    }
    parts.push(format!("by {}", change.by));
    parts.join(", ")
}

fn of_setting(change: &SettingChange, names: &Names) -> String {
    let named = |text: &Option<String>| match (text.as_deref(), change.setting.as_str()) {
        (None, _) => "-".to_owned(),
        (Some(text), "agent") => text.parse().map_or_else(|_| text.to_owned(), |id| names.agent(id)),
        (Some(text), "deployers") => {
            let name = |one: &str| one.parse().map_or_else(|_| one.to_owned(), |id| names.project(id));
            text.split(", ").map(name).collect::<Vec<_>>().join(" ")
        }
        (Some(text), _) => text.to_owned(),
    };
    match &change.before {
        None => format!("{}: {}", change.setting, named(&change.after)),
        Some(_) => format!("{}: {} → {}", change.setting, named(&change.before), named(&change.after)),
    }
}

#[cfg(test)]
mod tests {
    use events::requests::environments::DeploymentStatus;
    use events::{Actor, DeploymentId, EnvironmentId, ProjectId, Timestamp};
    use uuid::Uuid;

    use super::*;
    use crate::client::commands::objects::text::tests::STYLE;

    fn change(at: i64, change: EnvironmentChangeKind, settings: Vec<SettingChange>) -> EnvironmentChange {
        EnvironmentChange { at: Timestamp(at), by: Actor::service("delivery"), change, settings }
    }

    fn deployment(at: i64) -> DeploymentView {
        DeploymentView {
            id: DeploymentId(Uuid::nil()),
            environment: EnvironmentId(Uuid::nil()),
            environment_name: "production".to_owned(),
            project: ProjectId(Uuid::nil()),
            deployer: ProjectId(Uuid::nil()),
            status: DeploymentStatus::Success,
            reason: String::new(),
            association: None,
            without_association: None,
            reference: "main".to_owned(),
            commit: format!("commit-{at}"),
            job_url: None,
            sync: None,
            by: Actor::service("delivery"),
            started_at: Timestamp(at),
            ended_at: None,
            deadline: None,
        }
    }

    #[test]
    fn changes_stand_between_the_deployments_and_in_words() {
        let tier = SettingChange {
            setting: "tier".to_owned(),
            before: Some("staging".to_owned()),
            after: Some("production".to_owned()),
        };
        let url =
            SettingChange { setting: "url".to_owned(), before: None, after: Some("https://a".to_owned()) };
        let mut changes = VecDeque::from([
            change(5, EnvironmentChangeKind::Stopped(StopReason::Requested("merged".to_owned())), Vec::new()),
            change(3, EnvironmentChangeKind::Changed, vec![tier, url]),
            change(1, EnvironmentChangeKind::Created, Vec::new()),
        ]);
        let items = among(&mut changes, vec![deployment(4), deployment(2)]);
        let shown = rows(&items, &Names::default(), STYLE).render(STYLE, "");
        let lines: Vec<&str> = shown.lines().skip(1).collect();
        for (line, parts) in [
            (0, ["stopped", "merged, by service:delivery"]),
            (1, ["success", "commit-4"]),
            (2, ["settings", "tier: staging → production, url: https://a, by service:delivery"]),
            (3, ["success", "commit-2"]),
        ] {
            for part in parts {
                assert!(lines[line].contains(part), "{part} in line {line}: {shown}");
            }
        }
        assert_eq!(lines.len(), 4);
        assert_eq!(changes.len(), 1, "what came before all of them follows at the end");
    }
}
