use serde_json::json;

use super::*;

fn left(mut object: Value) -> Value {
    leave_to_controllers(&mut object);
    object
}

/// An object of a kind with more keys.
fn of(api_version: &str, kind: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    object.as_object_mut().expect("map").extend(more.as_object().cloned().expect("map"));
    object
}

/// What a kind states, and what is left of it.
fn becomes(api_version: &str, kind: &str, stated: &Value, left_over: &Value) {
    assert_eq!(left(of(api_version, kind, stated)), of(api_version, kind, left_over), "{kind}: {stated}");
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
/// As Base64: a line feed, a text, a certificate's first line.
const NEWLINE: &str = "Cg==";
const WORDS: &str = "cGxhY2Vob2xkZXI=";
const CERTIFICATE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";

#[test]
fn rules_of_an_aggregated_role_are_the_controllers() {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    for stated in [json!([]), Value::Null, rules.clone()] {
        let rule = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
        becomes(
            RBAC,
            "ClusterRole",
            &json!({"aggregationRule": rule, "rules": stated}),
            &json!({"aggregationRule": rule}),
        );
    }
    let plain = json!({"aggregationRule": null, "rules": rules});
    becomes(RBAC, "ClusterRole", &plain, &plain);
    becomes(RBAC, "Role", &json!({"rules": []}), &json!({"rules": []}));
}

#[test]
fn a_certificate_that_is_none_is_somebody_elses_to_write() {
    for (bundle, stays) in
        [(NEWLINE, false), (WORDS, false), ("", false), (CERTIFICATE, true), ("${CA}", true)]
    {
        let config = json!({"url": "https://a", "caBundle": bundle});
        let expected = if stays { config.clone() } else { json!({"url": "https://a"}) };
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            becomes(
                ADMISSION,
                kind,
                &json!({"webhooks": [{"name": "a", "clientConfig": config}, {"name": "b"}]}),
                &json!({"webhooks": [{"name": "a", "clientConfig": expected}, {"name": "b"}]}),
            );
        }
        becomes(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &json!({"spec": {"conversion": {"webhook": {"clientConfig": config}}}}),
            &json!({"spec": {"conversion": {"webhook": {"clientConfig": expected}}}}),
        );
        becomes(
            "apiregistration.k8s.io/v1",
            "APIService",
            &json!({"spec": config}),
            &json!({"spec": expected}),
        );
    }
}

#[test]
fn a_certificate_that_is_to_be_injected_is_not_the_manifests() {
    for annotation in INJECTED_BY {
        let mut stated = of(ADMISSION, "MutatingWebhookConfiguration", &json!({}));
        stated["metadata"]["annotations"] = json!({*annotation: "shop/certificate"});
        let mut expected = stated.clone();
        stated["webhooks"] = json!([{"clientConfig": {"caBundle": CERTIFICATE}}]);
        expected["webhooks"] = json!([{"clientConfig": {}}]);
        assert_eq!(left(stated), expected);
    }
}

#[test]
fn what_stands_for_nothing_is_allocated_by_the_cluster() {
    let rows = [
        ("PersistentVolumeClaim", json!({"volumeName": ""}), json!({"volumeName": "disk-7"})),
        ("PersistentVolume", json!({"claimRef": {}}), json!({"claimRef": {"name": "a"}})),
        ("Service", json!({"clusterIP": "", "clusterIPs": []}), json!({"clusterIP": "None"})),
        ("Service", json!({"healthCheckNodePort": 0}), json!({"healthCheckNodePort": 30_000})),
        ("Node", json!({"podCIDR": "", "podCIDRs": [""], "providerID": null}), json!({"taints": []})),
        ("Pod", json!({"nodeName": ""}), json!({"nodeName": "n"})),
    ];
    for (kind, unset, set) in rows {
        becomes("v1", kind, &json!({"spec": unset}), &json!({"spec": {}}));
        becomes("v1", kind, &json!({"spec": set}), &json!({"spec": set}));
    }
    becomes(
        "v1",
        "Service",
        &json!({"spec": {"ports": [{"port": 80, "nodePort": 0}, {"port": 81, "nodePort": 30_001}]}}),
        &json!({"spec": {"ports": [{"port": 80}, {"port": 81, "nodePort": 30_001}]}}),
    );
}

#[test]
fn what_controllers_fill_in_is_left_to_them() {
    becomes("v1", "Namespace", &json!({"spec": {"finalizers": ["kubernetes"]}}), &json!({"spec": {}}));
    becomes(
        "coordination.k8s.io/v1",
        "Lease",
        &json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}),
        &json!({}),
    );
    let mut root = of("v1", "ConfigMap", &json!({"data": {"ca.crt": "…"}}));
    assert_eq!(left(root.clone()), root);
    root["metadata"]["name"] = json!("kube-root-ca.crt");
    assert_eq!(left(root)["data"], Value::Null);
    let token =
        json!({"type": ACCOUNT_TOKEN, "data": {"token": "", "ca.crt": "", "namespace": "", "extra": "eA=="}});
    becomes("v1", "Secret", &token, &json!({"type": ACCOUNT_TOKEN, "data": {"extra": "eA=="}}));
    let opaque = json!({"type": "Opaque", "data": {"token": ""}});
    becomes("v1", "Secret", &opaque, &opaque);
}

#[test]
fn annotations_of_controllers_are_left_out() {
    let annotated = |api_version: &str, kind: &str, annotation: &str| {
        let mut object = of(api_version, kind, &json!({}));
        object["metadata"]["annotations"] = json!({annotation: "1", "stays": "s"});
        left(object)["metadata"]["annotations"].clone()
    };
    for (api_version, kind, annotation) in [
        ("apps/v1", "Deployment", "deployment.kubernetes.io/revision"),
        ("apps/v1", "ReplicaSet", "deployment.kubernetes.io/desired-replicas"),
        ("apps/v1", "DaemonSet", "deprecated.daemonset.template.generation"),
        ("v1", "PersistentVolumeClaim", "volume.kubernetes.io/selected-node"),
        ("v1", "ConfigMap", "control-plane.alpha.kubernetes.io/leader"),
    ] {
        assert_eq!(annotated(api_version, kind, annotation), json!({"stays": "s"}), "{annotation}");
    }
    let owner = "kubernetes.io/service-account.uid";
    let mut token = of("v1", "Secret", &json!({"type": ACCOUNT_TOKEN}));
    token["metadata"]["annotations"] = json!({owner: "u", "kubernetes.io/service-account.name": "runner"});
    assert_eq!(
        left(token)["metadata"]["annotations"],
        json!({"kubernetes.io/service-account.name": "runner"})
    );
}

#[test]
fn nobody_may_write_a_status_or_the_time_of_a_creation() {
    let template = |metadata: Value| json!({"spec": {"template": {"metadata": metadata, "spec": {"a": null}}}, "metadata": {"name": "a"}});
    let mut stated = template(json!({"creationTimestamp": null, "labels": {"a": "b"}}));
    stated["status"] = json!({});
    stated["metadata"]["creationTimestamp"] = Value::Null;
    becomes("apps/v1", "Deployment", &stated, &template(json!({"labels": {"a": "b"}})));
    // Of other kinds nobody knows here who writes their status.
    let custom = json!({"status": {"phase": "x"}, "rules": []});
    becomes("example.com/v1", "ClusterRole", &custom, &custom);
}
