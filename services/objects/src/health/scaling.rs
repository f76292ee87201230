//! Autoscalers, disruption budgets, and what extends the API.

use super::Health;
use super::view::View;
use serde_json::Value;

const CANNOT_SCALE: [&str; 2] = ["FailedGetScale", "FailedUpdateScale"];
const CANNOT_MEASURE: [&str; 6] = [
    "FailedGetResourceMetric",
    "FailedGetObjectMetric",
    "FailedGetPodsMetric",
    "FailedGetExternalMetric",
    "FailedComputeMetricsReplicas",
    "InvalidSelector",
];

pub(super) fn autoscaler(view: View<'_>) -> Health {
    // Version 1 of the API keeps the conditions as text in an annotation.
    let annotation =
        view.at("metadata.annotations").value().get("autoscaling.alpha.kubernetes.io/conditions");
    let parsed = annotation
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .map(|conditions| serde_json::json!({"status": {"conditions": conditions}}));
    match &parsed {
        Some(object) if view.list("status.conditions").is_empty() => autoscaler_conditions(View::new(object)),
        _ => autoscaler_conditions(view),
    }
}

fn autoscaler_conditions(view: View<'_>) -> Health {
    for (kind, reasons) in [("AbleToScale", &CANNOT_SCALE[..]), ("ScalingActive", &CANNOT_MEASURE[..])] {
        if let Some(condition) = view.condition(kind).filter(|condition| !condition.is_true())
            && reasons.contains(&condition.reason())
            && !condition.is_stale()
        {
            // What measures the pods may be missing in this cluster for good: no wait brings it.
            return Health::degraded(condition.explain()).optional(kind == "ScalingActive");
        }
    }
    let holds = |kind: &str| view.condition(kind).is_some_and(|condition| condition.is_true());
    if holds("AbleToScale") || holds("ScalingLimited") {
        return Health::healthy();
    }
    Health::progressing("the autoscaler does not say yet that it can scale")
}

pub(super) fn disruption_budget(view: View<'_>) -> Health {
    match view.condition("DisruptionAllowed") {
        Some(condition) if condition.is_false() && condition.reason() != "InsufficientPods" => {
            Health::degraded(condition.explain())
        }
        Some(condition) if condition.is_stale() => Health::progressing(condition.explain()),
        Some(_) => Health::healthy(),
        None => Health::progressing("the controller has not seen it yet"),
    }
}

pub(super) fn api_service(view: View<'_>) -> Health {
    match view.condition("Available") {
        Some(condition) if condition.is_true() => Health::healthy(),
        Some(condition) => Health::progressing(condition.explain()),
        None => Health::progressing("not available yet"),
    }
}

pub(super) fn definition(view: View<'_>) -> Health {
    if let Some(condition) = view.condition("NamesAccepted").filter(|condition| condition.is_false()) {
        return Health::degraded(condition.explain());
    }
    if let Some(condition) = view.condition("NonStructuralSchema").filter(|condition| condition.is_true()) {
        return Health::degraded(condition.explain());
    }
    match view.condition("Established") {
        Some(condition) if condition.is_true() => Health::healthy(),
        Some(condition) if condition.is_false() && condition.reason() != "Installing" => {
            Health::degraded(condition.explain())
        }
        Some(condition) => Health::progressing(condition.explain()),
        None => Health::progressing("the API server does not serve it yet"),
    }
}
