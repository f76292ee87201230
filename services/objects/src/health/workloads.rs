//! What runs pods: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs, workflows.

use super::view::{View, time};
use super::{Health, HealthStatus, generic};

/// The first of several counts that is not what it should be.
fn first_short(checks: &[(bool, String)]) -> Option<Health> {
    checks.iter().find(|(short, _)| *short).map(|(_, message)| Health::progressing(message.clone()))
}

/// The controller could not make or delete pods.
fn replica_failure(view: View<'_>) -> Option<Health> {
    let failure = view.condition("ReplicaFailure").filter(|condition| condition.is_true())?;
    Some(Health::degraded(failure.explain()))
}

pub(super) fn deployment(view: View<'_>) -> Health {
    if view.is_true("spec.paused") {
        return Health::suspended("the rollout is paused");
    }
    if let Some(health) = generic::stale(view).or_else(|| replica_failure(view)) {
        return health;
    }
    let progressing = view.condition("Progressing");
    if let Some(condition) = progressing.filter(|condition| condition.reason() == "ProgressDeadlineExceeded")
    {
        return Health::degraded(condition.explain());
    }
    let wanted = view.int("spec.replicas").unwrap_or(1);
    let [all, updated, ready, available] =
        ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
            .map(|field| view.at("status").count(field));
    let short = first_short(&[
        (updated < wanted, format!("{updated} of {wanted} pods are updated")),
        (all > updated, format!("{} old pods are still there", all - updated)),
        (available < updated, format!("{available} of {updated} updated pods are available")),
        (ready < wanted, format!("{ready} of {wanted} pods are ready")),
    ]);
    if let Some(health) = short {
        return health;
    }
    // A deadline of 2^31 - 1 means none, and then the condition tells nothing.
    let deadline = view.int("spec.progressDeadlineSeconds").filter(|seconds| *seconds != i64::from(i32::MAX));
    let rolled_out = progressing
        .is_some_and(|condition| condition.is_true() && condition.reason() == "NewReplicaSetAvailable");
    if deadline.is_some() && !rolled_out {
        return Health::progressing("the new ReplicaSet is not available yet");
    }
    match view.condition("Available") {
        Some(condition) if condition.is_true() => Health::healthy(),
        Some(condition) => Health::progressing(condition.explain()),
        None => Health::progressing("the Deployment does not say yet that it is available"),
    }
}

/// ReplicaSets and ReplicationControllers, which tell the same.
pub(super) fn replica_set(view: View<'_>) -> Health {
    if let Some(health) = replica_failure(view) {
        return health;
    }
    let wanted = view.int("spec.replicas").unwrap_or(1);
    let [all, labelled, available, ready] =
        ["replicas", "fullyLabeledReplicas", "availableReplicas", "readyReplicas"]
            .map(|field| view.at("status").count(field));
    first_short(&[
        (labelled < wanted, format!("{labelled} of {wanted} pods have all labels")),
        (available < wanted, format!("{available} of {wanted} pods are available")),
        (ready < wanted, format!("{ready} of {wanted} pods are ready")),
        (all > wanted, format!("{} pods too many", all - wanted)),
    ])
    .unwrap_or_else(Health::healthy)
}

pub(super) fn stateful_set(view: View<'_>) -> Health {
    if view.count("status.observedGeneration") == 0 {
        return Health::progressing("the controller has not seen it yet");
    }
    let wanted = view.int("spec.replicas").unwrap_or(1);
    let status = view.at("status");
    let [all, ready, updated] =
        ["replicas", "readyReplicas", "updatedReplicas"].map(|field| status.count(field));
    let available = status.int("availableReplicas").unwrap_or(ready);
    let short = first_short(&[
        (ready < wanted, format!("{ready} of {wanted} pods are ready")),
        (available < wanted, format!("{available} of {wanted} pods are available")),
        (all > wanted, format!("{} pods too many", all - wanted)),
    ]);
    if let Some(health) = short {
        return health;
    }
    if view.text("spec.updateStrategy.type") == Some("OnDelete") {
        return Health::healthy();
    }
    let partition = view.count("spec.updateStrategy.rollingUpdate.partition");
    if partition > 0 {
        let wanted_new = (wanted - partition).max(0);
        return if updated < wanted_new {
            Health::progressing(format!("{updated} of {wanted_new} pods above the partition are updated"))
        } else {
            Health::healthy()
        };
    }
    if status.text("updateRevision") != status.text("currentRevision") {
        return Health::progressing(format!("{updated} of {wanted} pods have the new revision"));
    }
    Health::healthy()
}

pub(super) fn daemon_set(view: View<'_>) -> Health {
    let status = view.at("status");
    if view.int("metadata.generation").is_none() || status.int("observedGeneration").is_none() {
        return Health::progressing("the controller has not seen it yet");
    }
    let Some(wanted) = status.int("desiredNumberScheduled") else {
        return Health::progressing("the controller has not counted the nodes yet");
    };
    let on_delete = view.text("spec.updateStrategy.type") == Some("OnDelete");
    let [current, updated, available, ready] =
        ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"]
            .map(|field| status.count(field));
    first_short(&[
        (current < wanted, format!("{current} of {wanted} pods are there")),
        (!on_delete && updated < wanted, format!("{updated} of {wanted} pods are updated")),
        (available < wanted, format!("{available} of {wanted} pods are available")),
        (ready < wanted, format!("{ready} of {wanted} pods are ready")),
    ])
    .unwrap_or_else(Health::healthy)
}

pub(super) fn job(view: View<'_>) -> Health {
    let holds = |kind: &str| view.condition(kind).filter(|condition| condition.is_true());
    if let Some(condition) = holds("Failed").or_else(|| holds("FailureTarget")) {
        return Health::degraded(condition.explain());
    }
    if holds("Complete").is_some() {
        return Health::healthy();
    }
    if holds("Suspended").is_some() || view.is_true("spec.suspend") {
        return Health::suspended("the Job is suspended");
    }
    let done = view.count("status.succeeded");
    let wanted = view.int("spec.completions").unwrap_or(1);
    Health::progressing(format!("{done} of {wanted} completed"))
}

pub(super) fn cron_job(view: View<'_>) -> Health {
    if view.is_true("spec.suspend") {
        return Health::suspended("the CronJob is suspended");
    }
    if view.at("status").is_null() {
        return Health::progressing("the controller has not seen it yet");
    }
    if !view.list("status.active").is_empty() {
        return Health::healthy();
    }
    let at = |field: &str| view.text(field).and_then(time);
    match (at("status.lastScheduleTime"), at("status.lastSuccessfulTime")) {
        (Some(scheduled), Some(succeeded)) if succeeded < scheduled => {
            // The next run may be a night away, and its command another one by now: no wait brings it.
            Health::degraded("the last run did not succeed").optional(true)
        }
        _ => Health::healthy(),
    }
}

/// Argo Rollouts, whose controller says in a word how the rollout is (since version 1.0), and which generation that is of as text.
pub(super) fn rollout(view: View<'_>) -> Health {
    let observed = view.text("status.observedGeneration").and_then(|text| text.parse::<i64>().ok());
    if let (Some(observed), Some(latest)) = (observed, view.generation())
        && observed < latest
    {
        return Health::progressing(format!(
            "the controller has seen generation {observed}, the latest is {latest}"
        ));
    }
    let annotations = view.at("metadata.annotations").value();
    let workload = annotations.get("rollout.argoproj.io/workload-generation").and_then(|text| text.as_str());
    if let (Some(latest), Some(observed)) = (workload, view.text("status.workloadObservedGeneration"))
        && latest != observed
    {
        return Health::progressing(format!(
            "the controller has seen generation {observed} of its workload, the latest is {latest}"
        ));
    }
    if let Some(condition) = view.condition("InvalidSpec").filter(|condition| condition.is_true()) {
        return Health::degraded(condition.explain());
    }
    let failed = |reason: &str| matches!(reason, "RolloutAborted" | "ProgressDeadlineExceeded");
    if let Some(condition) = view.condition("Progressing").filter(|condition| failed(condition.reason())) {
        return Health::degraded(condition.explain());
    }
    let told = view.text("status.message").filter(|message| !message.is_empty());
    match view.text("status.phase") {
        Some("Healthy") => Health::healthy(),
        Some("Paused") => Health::suspended(told.unwrap_or("the rollout is paused")),
        Some("Degraded") => Health::degraded(told.unwrap_or("the rollout is degraded")),
        Some("Progressing") => Health::progressing(told.unwrap_or("the rollout goes on")),
        Some(other) => Health::new(HealthStatus::Unknown, format!("the rollout's phase is {other}")),
        None => rollout_counts(view),
    }
}

/// Controllers before version 1.0.
fn rollout_counts(view: View<'_>) -> Health {
    if view.is_true("spec.paused") || view.condition("Paused").is_some_and(|paused| paused.is_true()) {
        return Health::suspended("the rollout is paused");
    }
    if view.at("status").is_null() {
        return Health::progressing("the controller has not seen it yet");
    }
    let wanted = view.int("spec.replicas").unwrap_or(1);
    let [all, updated, available] =
        ["replicas", "updatedReplicas", "availableReplicas"].map(|field| view.at("status").count(field));
    // Blue and green stand beside each other for as long as one likes.
    let replaces = !view.at("spec.strategy.canary").is_null();
    first_short(&[
        (updated < wanted, format!("{updated} of {wanted} pods are updated")),
        (replaces && all > updated, format!("{} old pods are still there", all - updated)),
        (available < updated, format!("{available} of {updated} updated pods are available")),
    ])
    .unwrap_or_else(Health::healthy)
}

/// Argo Workflows.
pub(super) fn workflow(view: View<'_>) -> Health {
    let phase = view.text("status.phase").filter(|phase| !phase.is_empty()).unwrap_or("Pending");
    let told = view.text("status.message").filter(|message| !message.is_empty());
    let message = told.map_or_else(|| format!("the workflow's phase is {phase}"), str::to_owned);
    match phase {
        "Pending" | "Running" => Health::progressing(message),
        "Succeeded" => Health::healthy(),
        "Failed" | "Error" => Health::degraded(message),
        _ => Health::new(HealthStatus::Unknown, message),
    }
}
