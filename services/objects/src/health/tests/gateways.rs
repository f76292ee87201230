//! The gateway API.

use super::*;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

fn accepted() -> Value {
    condition("Accepted", "True", "")
}

fn pending() -> Value {
    condition("Programmed", "Unknown", "Pending")
}

fn refused() -> Value {
    condition("ResolvedRefs", "False", "InvalidCertificateRef")
}

/// True, but for an older generation.
fn stale() -> Value {
    json!({"type": "Accepted", "status": "True", "observedGeneration": 1, "reason": "r"})
}

#[test]
fn gateways() {
    let none = json!({});
    let (accepted, programmed) = (accepted(), condition("Programmed", "True", ""));
    let (pending, refused) = (pending(), refused());
    let both = json!([accepted, programmed]);
    table(
        GATEWAY,
        "Gateway",
        &[
            ("not seen", none.clone(), none.clone(), Progressing),
            ("programmed", none.clone(), json!({ "conditions": both }), Healthy),
            (
                "refused",
                none.clone(),
                json!({"conditions": [condition("Accepted", "False", "Invalid")]}),
                Degraded,
            ),
            (
                "not decided",
                none.clone(),
                json!({"conditions": [condition("Accepted", "Unknown", "Pending")]}),
                Progressing,
            ),
            ("not programmed", none.clone(), json!({"conditions": [accepted, pending]}), Progressing),
            (
                "a listener is refused",
                none.clone(),
                json!({"conditions": both, "listeners": [{"conditions": both}, {"conditions": [pending]}, {"conditions": [refused]}]}),
                Degraded,
            ),
            (
                "a listener is not programmed",
                none.clone(),
                json!({"conditions": both, "listeners": [{"conditions": [accepted, pending]}]}),
                Progressing,
            ),
        ],
    );
}

#[test]
fn gateway_classes() {
    let none = json!({});
    let accepted = accepted();
    table(
        GATEWAY,
        "GatewayClass",
        &[
            ("accepted", none.clone(), json!({"conditions": [accepted]}), Healthy),
            ("refused", none.clone(), json!({"conditions": [condition("Accepted", "False", "X")]}), Degraded),
            (
                "not decided",
                none.clone(),
                json!({"conditions": [condition("Accepted", "Unknown", "Waiting")]}),
                Progressing,
            ),
            ("not seen", none.clone(), none.clone(), Progressing),
            ("accepted an older one", none.clone(), json!({"conditions": [stale()]}), Progressing),
        ],
    );
}

#[test]
fn routes() {
    let none = json!({});
    let (accepted, pending, refused) = (accepted(), pending(), refused());
    let parent = |list: Value| json!({"parents": [{"conditions": list}]});
    for kind in ["HTTPRoute", "GRPCRoute"] {
        table(
            GATEWAY,
            kind,
            &[
                (
                    "accepted",
                    none.clone(),
                    parent(json!([accepted, condition("ResolvedRefs", "True", "")])),
                    Healthy,
                ),
                ("not seen", none.clone(), none.clone(), Progressing),
                ("a parent tells nothing", none.clone(), parent(json!([])), Progressing),
                (
                    "refused",
                    none.clone(),
                    parent(json!([condition("Accepted", "False", "NoMatchingParent")])),
                    Degraded,
                ),
                ("backend missing", none.clone(), parent(json!([accepted, refused])), Degraded),
                ("not programmed", none.clone(), parent(json!([accepted, pending])), Progressing),
                ("accepted an older one", none.clone(), parent(json!([stale()])), Progressing),
                (
                    "one of two parents refuses",
                    none.clone(),
                    json!({"parents": [{"conditions": [accepted]}, {"conditions": [refused]}]}),
                    Degraded,
                ),
            ],
        );
    }
}

#[test]
fn backend_tls_policies() {
    let none = json!({});
    let (accepted, refused) = (accepted(), refused());
    let ancestor = |list: Value| json!({"ancestors": [{"conditions": list}]});
    table(
        GATEWAY,
        "BackendTLSPolicy",
        &[
            ("accepted", none.clone(), ancestor(json!([accepted])), Healthy),
            ("refused", none.clone(), ancestor(json!([condition("Accepted", "False", "Invalid")])), Degraded),
            ("certificate missing", none.clone(), ancestor(json!([accepted, refused])), Degraded),
            ("not seen", none.clone(), none.clone(), Progressing),
            ("accepted an older one", none, ancestor(json!([stale()])), Progressing),
        ],
    );
}
