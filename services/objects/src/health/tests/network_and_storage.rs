//! Services, Ingresses and claims of volumes.

use super::*;

#[test]
fn services_and_ingresses() {
    let none = json!({});
    let address = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
    let empty = json!({"loadBalancer": {}});
    table(
        "v1",
        "Service",
        &[
            ("inside", json!({"type": "ClusterIP"}), empty.clone(), Healthy),
            ("no type", none.clone(), none.clone(), Healthy),
            ("load balancer with address", json!({"type": "LoadBalancer"}), address.clone(), Healthy),
            ("load balancer without", json!({"type": "LoadBalancer"}), empty.clone(), Progressing),
        ],
    );
    for api_version in ["networking.k8s.io/v1", "extensions/v1beta1"] {
        table(
            api_version,
            "Ingress",
            &[
                ("address", none.clone(), address.clone(), Healthy),
                ("none", none.clone(), empty.clone(), Progressing),
            ],
        );
    }
    let service = object("v1", "Service", &json!({"type": "LoadBalancer"}), &empty);
    let ingress = object("networking.k8s.io/v1", "Ingress", &none, &empty);
    let strict =
        HealthOptions { load_balancer_optional: false, ingress_optional: false, ..HealthOptions::default() };
    for waiting in [service, ingress] {
        assert!(judge(&waiting).optional && judge(&waiting).is_settled());
        let health = judge_with(&waiting, &strict);
        assert!(!health.optional && !health.is_settled());
    }
}

#[test]
fn claims_of_volumes() {
    let none = json!({});
    table(
        "v1",
        "PersistentVolumeClaim",
        &[
            ("bound", none.clone(), json!({"phase": "Bound"}), Healthy),
            ("pending", none.clone(), json!({"phase": "Pending"}), Progressing),
            ("no phase", none.clone(), none.clone(), Progressing),
            ("lost", none.clone(), json!({"phase": "Lost"}), Degraded),
            ("something else", none, json!({"phase": "Odd"}), Unknown),
        ],
    );
    let options = HealthOptions {
        first_consumer_classes: BTreeSet::from(["local".to_owned()]),
        ..HealthOptions::default()
    };
    let mut claim = object(
        "v1",
        "PersistentVolumeClaim",
        &json!({"storageClassName": "local"}),
        &json!({"phase": "Pending"}),
    );
    let health = judge_with(&claim, &options);
    assert!(
        health.status == Progressing && health.optional && health.message.contains("first pod"),
        "{health:?}"
    );
    assert!(!judge(&claim).optional);
    claim["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "n"});
    assert!(!judge_with(&claim, &options).optional);
}
