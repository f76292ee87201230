//! Autoscalers, disruption budgets, extensions of the API.

use super::*;

#[test]
fn autoscalers() {
    let none = json!({});
    let conditions = |list: Value| json!({ "conditions": list });
    let able = condition("AbleToScale", "True", "ReadyForNewScale");
    table(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        &[
            ("nothing told", none.clone(), none.clone(), Progressing),
            ("able", none.clone(), conditions(json!([able])), Healthy),
            ("limited", none.clone(), conditions(json!([condition("ScalingLimited", "True", "")])), Healthy),
            (
                "no target",
                none.clone(),
                conditions(json!([condition("AbleToScale", "False", "FailedGetScale")])),
                Degraded,
            ),
            (
                "no metrics",
                none.clone(),
                conditions(json!([able, condition("ScalingActive", "False", "FailedGetResourceMetric")])),
                Degraded,
            ),
            (
                "bad selector",
                none.clone(),
                conditions(json!([condition("ScalingActive", "False", "InvalidSelector"), able])),
                Degraded,
            ),
            (
                "switched off",
                none,
                conditions(json!([able, condition("ScalingActive", "False", "ScalingDisabled")])),
                Healthy,
            ),
        ],
    );
    let blind = conditions(json!([able, condition("ScalingActive", "False", "FailedGetResourceMetric")]));
    let blind = judge(&object("autoscaling/v2", "HorizontalPodAutoscaler", &json!({}), &blind));
    assert!(
        blind.status == Degraded && blind.is_settled(),
        "a cluster without metrics holds no sync: {blind:?}"
    );
    let lost = conditions(json!([condition("AbleToScale", "False", "FailedGetScale")]));
    assert!(!judge(&object("autoscaling/v2", "HorizontalPodAutoscaler", &json!({}), &lost)).is_settled());
    let mut old =
        object("autoscaling/v1", "HorizontalPodAutoscaler", &json!({}), &json!({"currentReplicas": 1}));
    for (list, expected) in [
        (json!([able]), Healthy),
        (json!([condition("AbleToScale", "False", "FailedUpdateScale")]), Degraded),
        (json!("not conditions"), Progressing),
    ] {
        old["metadata"]["annotations"] =
            json!({"autoscaling.alpha.kubernetes.io/conditions": list.to_string()});
        assert_eq!(judge(&old).status, expected, "{list}");
    }
}

#[test]
fn budgets_and_extensions_of_the_api() {
    let none = json!({});
    let conditions = |list: Value| json!({ "conditions": list });
    let one = |kind: &str, status: &str, reason: &str| conditions(json!([condition(kind, status, reason)]));
    table(
        "policy/v1",
        "PodDisruptionBudget",
        &[
            ("not seen", none.clone(), none.clone(), Progressing),
            ("allows", none.clone(), one("DisruptionAllowed", "True", "SufficientPods"), Healthy),
            ("allows none now", none.clone(), one("DisruptionAllowed", "False", "InsufficientPods"), Healthy),
            ("cannot tell", none.clone(), one("DisruptionAllowed", "False", "SyncFailed"), Degraded),
        ],
    );
    table(
        "apiregistration.k8s.io/v1",
        "APIService",
        &[
            ("available", none.clone(), one("Available", "True", "Passed"), Healthy),
            ("not available", none.clone(), one("Available", "False", "MissingEndpoints"), Progressing),
            ("not seen", none.clone(), none.clone(), Progressing),
        ],
    );
    let names = condition("NamesAccepted", "True", "NoConflicts");
    table(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[
            ("not seen", none.clone(), none.clone(), Progressing),
            ("no conditions", none.clone(), conditions(json!([])), Progressing),
            (
                "established",
                none.clone(),
                conditions(json!([names, condition("Established", "True", "InitialNamesAccepted")])),
                Healthy,
            ),
            (
                "installing",
                none.clone(),
                conditions(json!([names, condition("Established", "False", "Installing")])),
                Progressing,
            ),
            (
                "not established",
                none.clone(),
                conditions(json!([names, condition("Established", "False", "NotAccepted")])),
                Degraded,
            ),
            ("names taken", none.clone(), one("NamesAccepted", "False", "ListKindConflict"), Degraded),
            (
                "no structural schema",
                none,
                conditions(json!([
                    condition("Established", "True", ""),
                    condition("NonStructuralSchema", "True", "")
                ])),
                Degraded,
            ),
        ],
    );
}

#[test]
fn what_a_budget_said_of_the_generation_before_does_not_count() {
    let said =
        json!({"conditions": [{"type": "DisruptionAllowed", "status": "True", "observedGeneration": 1}]});
    let health = judge(&object("policy/v1", "PodDisruptionBudget", &json!({}), &said));
    assert!(health.status == Progressing && health.message.contains("of generation 1"), "{health:?}");
}
