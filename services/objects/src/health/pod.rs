//! Pods.

use super::view::{View, time};
use super::{Health, HealthOptions, HealthStatus};

pub(super) fn rule(view: View<'_>, now_ms: i64, options: &HealthOptions) -> Health {
    let health = judge(view, now_ms, options);
    // A Job tries again by itself: what its pods do is counted under it.
    let failed = health.status == HealthStatus::Degraded;
    health.optional(failed && is_controlled_by_job(view))
}

fn is_controlled_by_job(view: View<'_>) -> bool {
    view.list("metadata.ownerReferences")
        .into_iter()
        .any(|owner| owner.text("kind") == Some("Job") && owner.is_true("controller"))
}

fn judge(view: View<'_>, now_ms: i64, options: &HealthOptions) -> Health {
    let phase = view.text("status.phase").unwrap_or("Pending");
    match phase {
        "Succeeded" => Health::healthy(),
        "Failed" => Health::degraded(failure(view)),
        "Pending" | "Running" => {
            if let Some(health) = waiting(view) {
                return health;
            }
            if phase == "Running" { running(view) } else { pending(view, now_ms, options) }
        }
        other => Health::new(HealthStatus::Unknown, format!("the pod's phase is {other}")),
    }
}

fn statuses<'a>(view: View<'a>, init_too: bool) -> Vec<View<'a>> {
    let mut all = if init_too { view.list("status.initContainerStatuses") } else { Vec::new() };
    all.extend(view.list("status.containerStatuses"));
    all
}

/// A container that waits for a reason that does not go away by itself.
fn waiting(view: View<'_>) -> Option<Health> {
    statuses(view, true).into_iter().find_map(|container| {
        let reason = container.text("state.waiting.reason")?;
        let failing = reason.starts_with("Err") || reason.ends_with("Error") || reason.ends_with("BackOff");
        let name = container.text("name").unwrap_or_default();
        let message = match ended_before(container) {
            // Why it ended says more than how long is waited until it is started again.
            Some(ended) if reason == "CrashLoopBackOff" => format!(": it {ended}"),
            _ => match container.text("state.waiting.message").unwrap_or_default() {
                "" => String::new(),
                message => format!(": {message}"),
            },
        };
        failing.then(|| Health::degraded(format!("container {name} is in {reason}{message}")))
    })
}

/// How a container ended before.
fn ended_before(container: View<'_>) -> Option<String> {
    let ended = container.at("lastState.terminated");
    let code = ended.int("exitCode")?;
    let reason = ended.text("reason").filter(|reason| *reason == "OOMKilled");
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    Some(format!("ended with exit code {code}{reason}"))
}

fn failure(view: View<'_>) -> String {
    if let Some(message) = view.text("status.message").filter(|message| !message.is_empty()) {
        return message.to_owned();
    }
    let container = statuses(view, true).into_iter().find_map(|container| {
        let ended = container.at("state.terminated");
        let code = ended.int("exitCode").filter(|code| *code != 0)?;
        let name = container.text("name").unwrap_or_default();
        let text = ended.text("message").filter(|message| !message.is_empty());
        Some(match text.or_else(|| ended.text("reason").filter(|reason| *reason == "OOMKilled")) {
            Some(text) => format!("container {name}: {text}"),
            None => format!("container {name} ended with exit code {code}"),
        })
    });
    container
        .or_else(|| view.text("status.reason").map(str::to_owned))
        .unwrap_or_else(|| "the pod failed".to_owned())
}

fn running(view: View<'_>) -> Health {
    if view.text("spec.restartPolicy").unwrap_or("Always") != "Always" {
        return Health::progressing("running to completion");
    }
    if view.condition("Ready").is_some_and(super::view::Condition::is_true) {
        return Health::healthy();
    }
    for container in statuses(view, false) {
        let name = container.text("name").unwrap_or_default();
        let ended = container.int("state.terminated.exitCode");
        if let Some(code) = ended {
            return Health::degraded(format!("container {name} ended with exit code {code}"));
        }
        if !container.at("lastState.terminated").is_null() {
            let code = container.count("lastState.terminated.exitCode");
            return Health::degraded(format!(
                "container {name} is not ready and has ended before with exit code {code}"
            ));
        }
    }
    let reason = view.condition("Ready").map(super::view::Condition::explain).unwrap_or_default();
    Health::progressing(if reason.is_empty() { "not ready".to_owned() } else { reason })
}

fn pending(view: View<'_>, now_ms: i64, options: &HealthOptions) -> Health {
    let unschedulable =
        view.condition("PodScheduled").filter(|c| c.is_false() && c.reason() == "Unschedulable");
    let Some(condition) = unschedulable else { return Health::progressing("pending") };
    let since = condition.since().or_else(|| view.text("metadata.creationTimestamp").and_then(time));
    let deadline = since.map(|since| since.saturating_add(options.unschedulable_after_ms));
    match deadline {
        Some(deadline) if now_ms >= deadline => Health::degraded(condition.explain()),
        _ => Health { recheck_at: deadline, ..Health::progressing(condition.explain()) },
    }
}
