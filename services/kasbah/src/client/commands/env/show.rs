//! Environments and deployments, for people.

use events::environment::{Grouping, StopReason, Tier};
use events::requests::environments::{
    DeploymentStatus, DeploymentView, EnvironmentState, EnvironmentView, WithoutAssociation,
};
use events::requests::index::EnvironmentHealth;
use serde::Serialize;

use super::health::{self, WithHealth};
use crate::client::names::Names;
use crate::client::print::{Cell, Fields, Paint, Style, Table, age, at, short_commit};

/// The environments of one tier.
#[derive(Debug, Serialize)]
pub(super) struct OfTier {
    tier: Tier,
    environments: Vec<WithHealth>,
}

/// All tiers that have environments, the most important first; in each by project and name.
pub(super) fn by_tier(all: Vec<WithHealth>) -> Vec<OfTier> {
    let mut tiers: Vec<OfTier> =
        Tier::ALL.iter().map(|tier| OfTier { tier: *tier, environments: Vec::new() }).collect();
    for environment in all {
        if let Some(tier) = tiers.iter_mut().find(|of| of.tier == environment.view.tier) {
            tier.environments.push(environment);
        }
    }
    tiers.retain(|of| !of.environments.is_empty());
    for of in &mut tiers {
        of.environments.sort_by_cached_key(|one| (one.view.project_path.clone(), one.view.name.clone()));
    }
    tiers
}

pub(super) fn tiers(tiers: &[OfTier], names: &Names, style: Style) -> String {
    let one = |of: &OfTier| {
        let title = Paint::Strong.on(&format!("{} ({})", of.tier, of.environments.len()), style.colour);
        format!("{title}\n{}", rows(&of.environments, names, style).render(style, ""))
    };
    match tiers {
        [] => Paint::Dim.on("no environment", style.colour),
        some => some.iter().map(one).collect::<Vec<_>>().join("\n"),
    }
}

pub(super) fn rows(all: &[WithHealth], names: &Names, style: Style) -> Table {
    let mut table = Table::new(&[
        "PROJECT",
        "ENVIRONMENT",
        "TIER",
        "STATE",
        "HEALTH",
        "LAST DEPLOYMENT",
        "COMMIT",
        "WHERE",
        "AGE",
        "REASON",
    ]);
    for WithHealth { view: one, health } in all {
        let last = one.last_deployment.as_ref();
        let runs = one.last_successful.as_ref();
        table.row([
            one.project_path.as_str().into(),
            one.name.as_str().into(),
            one.tier.as_str().into(),
            state(one.state),
            health::state(health.as_ref()),
            last.map_or_else(|| Cell::or_dash(None), |last| status(last.status)),
            Cell::or_dash(runs.map(|runs| short_commit(&runs.commit))),
            Cell::or_dash(runs.and_then(|runs| place(runs, names)).as_deref()),
            Cell::or_dash(last.map(|last| age(last.started_at, style.now)).as_deref()),
            health::reason_cell(health.as_ref()),
        ]);
    }
    table
}

pub(super) fn deployment_rows(all: &[DeploymentView], names: &Names, style: Style) -> Table {
    let mut table = Table::new(&["STATUS", "COMMIT", "REF", "WHERE", "AGE", "ID", "REASON"]);
    for one in all {
        table.row(deployment_cells(one, names, style));
    }
    table
}

/// The cells of a deployment, for any table whose first column is its status.
pub(super) fn deployment_cells(one: &DeploymentView, names: &Names, style: Style) -> [Cell; 7] {
    [
        status(one.status),
        Cell::or_dash(Some(short_commit(&one.commit))),
        Cell::or_dash(Some(&one.reference)),
        Cell::or_dash(place(one, names).as_deref()),
        age(one.started_at, style.now).into(),
        one.id.to_string().into(),
        Cell::or_dash(Some(&one.reason)),
    ]
}

pub(super) fn details(view: &EnvironmentView, names: &Names, style: Style) -> String {
    details_with(view, None, names, style)
}

/// An environment with how it is doing, a field a line.
pub(super) fn details_with(
    view: &EnvironmentView,
    health: Option<&EnvironmentHealth>,
    names: &Names,
    style: Style,
) -> String {
    let running = (view.running > 0).then(|| view.running.to_string());
    let auto_stop =
        view.auto_stop_seconds.map(|seconds| format!("{seconds} s after the last deployment began"));
    let deployers: Vec<String> = view.deployers.iter().map(|project| names.project(*project)).collect();
    let runs = view.last_successful.as_ref();
    let commit = runs.map(|runs| short_commit(&runs.commit)).filter(|commit| !commit.is_empty());
    let stopped = view.stopped.as_ref().map(|stopped| {
        let reason = match &stopped.reason {
            StopReason::AutoStop => "its time to run was over".to_owned(),
            StopReason::Requested(words) if words.is_empty() => "on request".to_owned(),
            StopReason::Requested(words) => words.clone(),
        };
        format!("{}: {reason}", at(stopped.at, style.now))
    });
    let fields = Fields::new()
        .with("Environment", view.name.as_str())
        .with("Project", view.project_path.as_str())
        .with("Id", view.id.to_string())
        .with("Slug", view.slug.as_str())
        .with("Tier", view.tier.as_str())
        .with("State", state(view.state));
    let fields = match health {
        Some(health) => health::add_to(fields, health),
        None => fields,
    };
    fields
        .with_some("Stopped", stopped)
        .with_some("URL", view.url.as_deref())
        .with_some("Agent", view.agent.map(|agent| names.agent(agent)))
        .with_some("Namespace", view.namespace.as_deref())
        .with_some("Auto-stop", auto_stop)
        .with_some("Stops at", view.auto_stop_at.map(|moment| at(moment, style.now)))
        .with_some("Deployers", (!deployers.is_empty()).then(|| deployers.join(", ")))
        .with("Objects by", grouping(&view.grouping))
        .with("Created", at(view.created_at, style.now))
        .with_some("Running", running)
        .with_some("Deployed", commit)
        .with_some("Where", runs.and_then(|runs| place(runs, names)))
        .render(style)
}

/// A deployment, a field a line.
pub fn deployment_details(view: &DeploymentView, names: &Names, style: Style) -> String {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let why = match &view.without_association {
        None | Some(WithoutAssociation::NotNamed) => None,
        Some(WithoutAssociation::NotVisible) => Some("an agent that you may not see".to_owned()),
        Some(WithoutAssociation::NotGranted(reason)) => Some(format!("not recorded: {reason}")),
    };
    Fields::new()
        .with("Deployment", view.id.to_string())
        .with("Environment", view.environment_name.as_str())
        .with("Project", names.project(view.project))
        .with_some("Deployer", (view.deployer != view.project).then(|| names.project(view.deployer)))
        .with("Status", status(view.status))
        .with_some("Reason", filled(&view.reason))
        .with_some("Where", place(view, names).or(why))
        .with_some("Ref", filled(&view.reference))
        .with_some("Commit", filled(&view.commit))
        .with_some("Job", view.job_url.as_deref())
        .with("Started", at(view.started_at, style.now))
        .with_some("Ended", view.ended_at.map(|moment| at(moment, style.now)))
        .with_some("Deadline", view.deadline.map(|moment| at(moment, style.now)))
        .render(style)
}

/// `agent/namespace`.
pub fn place(view: &DeploymentView, names: &Names) -> Option<String> {
    let association = view.association.as_ref()?;
    Some(format!("{}/{}", names.agent(association.agent), association.namespace))
}

fn grouping(grouping: &Grouping) -> String {
    match grouping {
        Grouping::Namespace => "namespace".to_owned(),
        Grouping::Inventory => "inventory of the source".to_owned(),
        Grouping::Labels { project, environment } => format!("labels {project} and {environment}"),
    }
}

/// As the API has it.
pub(super) const fn state_word(state: EnvironmentState) -> &'static str {
    match state {
        EnvironmentState::Available => "available",
        EnvironmentState::Stopped => "stopped",
    }
}

fn state(state: EnvironmentState) -> Cell {
    let paint = if state == EnvironmentState::Available { Paint::Good } else { Paint::Dim };
    Cell::painted(state_word(state), paint)
}

fn status(status: DeploymentStatus) -> Cell {
    match status {
        DeploymentStatus::Running => Cell::painted("running", Paint::Odd),
        DeploymentStatus::Success => Cell::painted("success", Paint::Good),
        DeploymentStatus::Failed => Cell::painted("failed", Paint::Bad),
        DeploymentStatus::Unknown => Cell::painted("unknown", Paint::Odd),
    }
}
