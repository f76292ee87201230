//! What a workload does not say of itself: why its pods are not well. A Deployment whose image does not exist says for ten minutes that a
//! pod is not available yet; the pod says why.

use std::borrow::Borrow;

use serde_json::Value;

use super::view::{View, time};
use super::{Health, HealthOptions, HealthStatus, RuleSource, pod};

/// The labels by which the pods of a workload are found, where its kind runs pods.
#[must_use]
pub fn selector_of_pods(workload: &Value) -> Option<Vec<(String, String)>> {
    let view = View::new(workload);
    let group = view.text("apiVersion").unwrap_or_default().split('/').next().unwrap_or_default();
    let path = match (group, view.text("kind").unwrap_or_default()) {
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job")
        | ("argoproj.io", "Rollout") => "spec.selector.matchLabels",
        ("v1", "ReplicationController") => "spec.selector",
        _ => return None,
    };
    let labels = view.at(path).value().as_object()?;
    let labels: Vec<(String, String)> =
        labels.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    (!labels.is_empty()).then_some(labels)
}

/// The verdict on a workload that is not well, given its pods and the warnings about itself: where a pod of its newest template fails,
/// that is the reason; where none could be made, the warning that says why. `health` is what it says of itself.
#[must_use]
pub fn with_pods<B: Borrow<Value>>(
    workload: &Value,
    health: Health,
    pods: &[B],
    warnings: &[B],
    now_ms: i64,
    options: &HealthOptions,
) -> Health {
    let is_open = matches!(health.status, HealthStatus::Progressing | HealthStatus::Degraded);
    if !is_open || health.terminating {
        return health;
    }
    let view = View::new(workload);
    // What tries again by itself, as a Job does, has not failed yet; and a declared rule has the last word on the state.
    let stands = view.text("kind") == Some("Job") || health.source == RuleSource::Declared;
    let status = if stands { health.status } else { HealthStatus::Degraded };
    let (failing, recheck_at) = failing_pod(view, pods, now_ms, options);
    let reason = failing.or_else(|| {
        // What could not be made is the reason only where the workload itself says nothing more exact.
        (health.status == HealthStatus::Progressing).then(|| refused_pod(pods, warnings)).flatten()
    });
    match reason {
        Some(reason) => Health { status, message: reason, recheck_at: None, ..health },
        None => Health { recheck_at, ..health },
    }
}

/// Of the pods of the newest template, the message of one that fails, and when the others are to be judged again.
fn failing_pod<B: Borrow<Value>>(
    workload: View<'_>,
    pods: &[B],
    now_ms: i64,
    options: &HealthOptions,
) -> (Option<String>, Option<i64>) {
    let mut own: Vec<View<'_>> = pods
        .iter()
        .map(|pod| View::new(pod.borrow()))
        .filter(|pod| is_of(*pod, workload))
        .filter(|pod| !is_going(*pod))
        .collect();
    own.sort_by_key(|pod| std::cmp::Reverse(made_at(*pod)));
    let Some(newest) = own.first().map(|pod| template_of(*pod).map(str::to_owned)) else {
        return (None, None);
    };
    let mut recheck_at: Option<i64> = None;
    for pod in own.into_iter().filter(|pod| template_of(*pod) == newest.as_deref()) {
        let health = pod::rule(pod, now_ms, options);
        if health.status == HealthStatus::Degraded {
            let name = pod.text("metadata.name").unwrap_or_default();
            return (Some(format!("pod {name}: {}", health.message)), None);
        }
        recheck_at = [recheck_at, health.recheck_at].into_iter().flatten().min();
    }
    (None, recheck_at)
}

/// The newest warning that a pod could not be made, unless a pod was made since.
fn refused_pod<B: Borrow<Value>>(pods: &[B], warnings: &[B]) -> Option<String> {
    let newest_pod = pods.iter().map(|pod| made_at(View::new(pod.borrow()))).max().unwrap_or(0);
    let refused = warnings
        .iter()
        .map(|event| View::new(event.borrow()))
        .filter(|event| event.text("reason") == Some("FailedCreate"));
    let newest = refused.max_by_key(|event| event_at(*event))?;
    let message = newest.text("message").unwrap_or_default();
    (event_at(newest) >= newest_pod).then(|| format!("FailedCreate: {message}"))
}

fn is_of(pod: View<'_>, workload: View<'_>) -> bool {
    let kind = workload.text("kind").unwrap_or_default();
    let name = workload.text("metadata.name").unwrap_or_default();
    let uid = workload.text("metadata.uid");
    pod.list("metadata.ownerReferences").into_iter().filter(|owner| owner.is_true("controller")).any(
        |owner| {
            let between =
                matches!(kind, "Deployment" | "Rollout") && owner.text("kind") == Some("ReplicaSet");
            if between {
                let of_name =
                    owner.text("name").and_then(|owner| owner.strip_prefix(name)?.strip_prefix('-'));
                of_name.is_some_and(|hash| !hash.contains('-'))
            } else {
                uid.is_some() && owner.text("uid") == uid
            }
        },
    )
}

fn is_going(pod: View<'_>) -> bool {
    !pod.at("metadata.deletionTimestamp").is_null()
}

/// What tells pods of one template from those of another.
fn template_of(pod: View<'_>) -> Option<&str> {
    let labels = pod.at("metadata.labels").value();
    ["pod-template-hash", "rollouts-pod-template-hash", "controller-revision-hash"]
        .into_iter()
        .find_map(|label| labels.get(label)?.as_str())
}

fn made_at(pod: View<'_>) -> i64 {
    pod.text("metadata.creationTimestamp").and_then(time).unwrap_or(0)
}

fn event_at(event: View<'_>) -> i64 {
    let paths = ["series.lastObservedTime", "lastTimestamp", "eventTime", "metadata.creationTimestamp"];
    paths.into_iter().filter_map(|path| event.text(path).and_then(time)).max().unwrap_or(0)
}
