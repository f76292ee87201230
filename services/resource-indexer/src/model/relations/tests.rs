use serde_json::json;

use super::*;

/// The relations of a body: how, to what, by which way.
fn related(body: &Value) -> Vec<String> {
    let key = |key: &Key| format!("{}.{} {}/{}", key.kind.kind, key.kind.group, key.namespace, key.name);
    let mut found: Vec<String> = links_of(body)
        .iter()
        .map(|link| match &link.target {
            Target::Uid(uid, of) => format!("{} {uid} {}", link.relation.as_str(), key(of)),
            Target::Key(of) => format!("{} {}", link.relation.as_str(), key(of)),
            Target::Claims(of) => {
                format!("{} claims {} in {}", link.relation.as_str(), of.prefixes.join(","), of.namespace)
            }
            Target::Labels(of) => format!("{} {} in {}", link.relation.as_str(), of.kind.kind, of.namespace),
        })
        .collect();
    found.sort();
    found
}

#[test]
fn all_owners_are_kept_and_the_controlling_one_is_marked() {
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "shop",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": true},
            {"apiVersion": "example.com/v1", "kind": "Lease", "name": "l", "uid": "u2"},
            {"apiVersion": "v1", "kind": "Node", "name": "without"}]}});
    assert_eq!(related(&body), ["controls u1 ReplicaSet.apps shop/web", "owns u2 Lease.example.com shop/l"]);
}

#[test]
fn a_slice_belongs_to_its_service_by_its_label_and_reaches_pods_by_uid() {
    let body = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"targetRef": {"kind": "Pod", "name": "a", "uid": "u1"}},
            {"targetRef": {"kind": "Pod", "name": "a", "uid": "u1"}}, {"targetRef": {"kind": "Node", "name": "n"}}]});
    assert_eq!(related(&body), ["has-endpoints Service. shop/web", "reaches u1 Pod. shop/a"], "each once");
}

#[test]
fn endpoints_without_an_owner_belong_to_the_service_of_their_name() {
    let body = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "namespace": "shop"},
        "subsets": [{"notReadyAddresses": [{"targetRef": {"kind": "Pod", "name": "a"}}]}]});
    assert_eq!(related(&body), ["has-endpoints Service. shop/web", "reaches Pod. shop/a"]);
}

#[test]
fn a_service_without_a_selector_selects_nothing() {
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
    assert_eq!(related(&service(json!({"selector": {"app": "web"}}))), ["selects Pod in shop"]);
    assert!(related(&service(json!({"selector": {}}))).is_empty());
    assert!(related(&service(json!({}))).is_empty());
}

#[test]
fn ingresses_name_services_in_rules_and_defaults_of_every_version() {
    let body = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i", "namespace": "shop"},
        "spec": {"defaultBackend": {"service": {"name": "d"}}, "tls": [{"secretName": "cert"}],
            "rules": [{"http": {"paths": [{"backend": {"service": {"name": "a"}}}, {"backend": {"serviceName": "old"}}]}}]}});
    let expected = [
        "reads Secret. shop/cert",
        "routes-to Service. shop/a",
        "routes-to Service. shop/d",
        "routes-to Service. shop/old",
    ];
    assert_eq!(related(&body), expected);
}

#[test]
fn routes_name_backends_and_gateways_in_other_namespaces_too() {
    let body = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "r", "namespace": "shop"},
        "spec": {"parentRefs": [{"name": "front", "namespace": "edge"}],
            "rules": [{"backendRefs": [{"name": "web"}, {"kind": "Bucket", "group": "example.com", "name": "b"}]}]}});
    let expected = [
        "routes-to Bucket.example.com shop/b",
        "routes-to Service. shop/web",
        "serves Gateway.gateway.networking.k8s.io edge/front",
    ];
    assert_eq!(related(&body), expected);
}

#[test]
fn a_pod_names_all_that_it_needs() {
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"nodeName": "n1", "serviceAccountName": "sa", "imagePullSecrets": [{"name": "pull"}],
            "volumes": [{"configMap": {"name": "cm"}}, {"persistentVolumeClaim": {"claimName": "data"}},
                {"name": "tmp", "ephemeral": {}},
                {"projected": {"sources": [{"secret": {"name": "s1"}}, {"configMap": {"name": "cm"}}]}}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "s2"}}]}],
            "containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "cm2"}}}, {"value": "x"}]}]}});
    let expected = [
        "mounts ConfigMap. shop/cm",
        "mounts PersistentVolumeClaim. shop/data",
        "mounts PersistentVolumeClaim. shop/p-tmp",
        "mounts Secret. shop/s1",
        "reads ConfigMap. shop/cm2",
        "reads Secret. shop/pull",
        "reads Secret. shop/s2",
        "runs-as ServiceAccount. shop/sa",
        "runs-on Node. /n1",
    ];
    assert_eq!(related(&body), expected);
}

#[test]
fn volumes_scalers_budgets_bindings_and_webhooks() {
    let rows = [
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "shop"}, "spec": {"volumeName": "pv1"}}),
            vec!["binds PersistentVolume. /pv1"],
        ),
        (
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "namespace": "shop"},
                "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
            vec!["scales Deployment.apps shop/web"],
        ),
        (
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "shop"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}}}),
            vec!["protects Pod in shop"],
        ),
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b", "namespace": "shop"},
                "roleRef": {"kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "ServiceAccount", "name": "sa"}, {"kind": "User", "name": "ann"}]}),
            vec!["binds ClusterRole.rbac.authorization.k8s.io /view", "grants-to ServiceAccount. shop/sa"],
        ),
        (
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"},
                "webhooks": [{"clientConfig": {"service": {"namespace": "kube", "name": "hook"}}}, {"clientConfig": {"url": "https://x"}}]}),
            vec!["calls Service. kube/hook"],
        ),
    ];
    for (body, expected) in rows {
        assert_eq!(related(&body), expected, "{body}");
    }
}

#[test]
fn a_body_of_any_shape_is_read_without_harm() {
    for body in [
        json!(null),
        json!([1]),
        json!({"metadata": 3}),
        json!({"kind": "Pod", "apiVersion": "v1", "spec": []}),
    ] {
        assert!(related(&body).is_empty(), "{body}");
    }
}

/// A body of a kind in the namespace `shop`, with what is given over it.
fn shop(api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut body =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
    for (key, value) in rest.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("metadata", Value::Object(metadata)) => {
                let known = body["metadata"].as_object_mut().unwrap();
                known.extend(metadata.clone());
            }
            (key, value) => body[key] = value.clone(),
        }
    }
    body
}

#[test]
fn a_mesh_routes_and_configures() {
    let istio = "networking.istio.io/v1";
    let rows = [
        (
            shop(
                istio,
                "VirtualService",
                "v",
                &json!({"spec": {"gateways": ["mesh", "edge/front", "own"],
                "http": [{"route": [{"destination": {"host": "web"}}, {"destination": {"host": "web.other.svc.cluster.local"}},
                    {"destination": {"host": "www.example.com"}}], "mirror": {"host": "copy.other"}}],
                "tcp": [{"route": [{"destination": {"host": "db"}}]}]}}),
            ),
            vec![
                "routes-to Service. other/copy",
                "routes-to Service. other/web",
                "routes-to Service. shop/db",
                "routes-to Service. shop/web",
                "serves Gateway.networking.istio.io edge/front",
                "serves Gateway.networking.istio.io shop/own",
            ],
        ),
        (
            shop(istio, "DestinationRule", "d", &json!({"spec": {"host": "web"}})),
            vec!["configures Service. shop/web"],
        ),
        (shop(istio, "DestinationRule", "d", &json!({"spec": {"host": "*.example.com"}})), vec![]),
        (
            shop(
                istio,
                "ServiceEntry",
                "s",
                &json!({"spec": {"workloadSelector": {"labels": {"app": "x"}}}}),
            ),
            vec!["selects Pod in shop"],
        ),
    ];
    for (body, expected) in rows {
        assert_eq!(related(&body), expected, "{body}");
    }
}

#[test]
fn a_mesh_protects_what_its_policies_select_or_name() {
    let rows = [
        (
            shop(
                "security.istio.io/v1",
                "AuthorizationPolicy",
                "a",
                &json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}}),
            ),
            vec!["protects Pod in shop"],
        ),
        (
            shop(
                "security.istio.io/v1",
                "AuthorizationPolicy",
                "a",
                &json!({"spec": {"targetRefs":
                [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"}, {"group": "", "kind": "Service", "name": "web"}]}}),
            ),
            vec!["protects Gateway.gateway.networking.k8s.io shop/g", "protects Service. shop/web"],
        ),
        (shop("security.istio.io/v1", "PeerAuthentication", "p", &json!({})), vec!["protects Pod in shop"]),
        (
            shop(
                "policy.linkerd.io/v1beta3",
                "Server",
                "s",
                &json!({"spec": {"podSelector": {"matchLabels": {"app": "x"}}}}),
            ),
            vec!["protects Pod in shop"],
        ),
        (
            shop(
                "policy.linkerd.io/v1alpha1",
                "AuthorizationPolicy",
                "a",
                &json!({"spec": {
                "targetRef": {"group": "policy.linkerd.io", "kind": "Server", "name": "s"},
                "requiredAuthenticationRefs": [{"group": "policy.linkerd.io", "kind": "MeshTLSAuthentication", "name": "m"}]}}),
            ),
            vec![
                "protects Server.policy.linkerd.io shop/s",
                "uses MeshTLSAuthentication.policy.linkerd.io shop/m",
            ],
        ),
    ];
    for (body, expected) in rows {
        assert_eq!(related(&body), expected, "{body}");
    }
}

#[test]
fn volumes_classes_and_drivers() {
    let rows = [
        (
            shop(
                "v1",
                "PersistentVolumeClaim",
                "c",
                &json!({"spec": {"volumeName": "pv1", "storageClassName": "fast"}}),
            ),
            vec!["binds PersistentVolume. /pv1", "uses StorageClass.storage.k8s.io /fast"],
        ),
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv1"},
                "spec": {"storageClassName": "fast", "csi": {"driver": "disk.example"}}}),
            vec!["uses CSIDriver.storage.k8s.io /disk.example", "uses StorageClass.storage.k8s.io /fast"],
        ),
        (
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "disk.example"}),
            vec!["uses CSIDriver.storage.k8s.io /disk.example"],
        ),
        (
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"},
                "spec": {"attacher": "disk.example", "nodeName": "n1", "source": {"persistentVolumeName": "pv1"}}}),
            vec![
                "binds PersistentVolume. /pv1",
                "runs-on Node. /n1",
                "uses CSIDriver.storage.k8s.io /disk.example",
            ],
        ),
        (
            shop(
                "apps/v1",
                "StatefulSet",
                "db",
                &json!({"spec": {"selector": {"matchLabels": {"app": "db"}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}, {"metadata": {"name": "log"}}]}}),
            ),
            vec!["mounts claims data-db-,log-db- in shop"],
        ),
        (
            shop("networking.k8s.io/v1", "Ingress", "i", &json!({"spec": {"ingressClassName": "nginx"}})),
            vec!["uses IngressClass.networking.k8s.io /nginx"],
        ),
        (
            shop(
                "gateway.networking.k8s.io/v1",
                "Gateway",
                "g",
                &json!({"spec": {"gatewayClassName": "envoy"}}),
            ),
            vec!["uses GatewayClass.gateway.networking.k8s.io /envoy"],
        ),
    ];
    for (body, expected) in rows {
        assert_eq!(related(&body), expected, "{body}");
    }
}

#[test]
fn policies_tokens_scalers_roles_and_operators() {
    let rows = [
        (
            shop("networking.k8s.io/v1", "NetworkPolicy", "n", &json!({"spec": {"podSelector": {}}})),
            vec!["protects Pod in shop"],
        ),
        (
            shop(
                "v1",
                "Secret",
                "t",
                &json!({"type": "kubernetes.io/service-account-token", "metadata": {"annotations":
                {"kubernetes.io/service-account.name": "sa", "kubernetes.io/service-account.uid": "u1"}}}),
            ),
            vec!["owns u1 ServiceAccount. shop/sa"],
        ),
        (
            shop(
                "keda.sh/v1alpha1",
                "ScaledObject",
                "k",
                &json!({"spec": {"scaleTargetRef": {"name": "web"}}}),
            ),
            vec!["scales Deployment.apps shop/web"],
        ),
        (
            shop(
                "autoscaling.k8s.io/v1",
                "VerticalPodAutoscaler",
                "v",
                &json!({"spec": {"targetRef":
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}}}),
            ),
            vec!["scales StatefulSet.apps shop/db"],
        ),
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}}),
            vec!["binds ClusterRole in "],
        ),
        (
            shop(
                "operators.coreos.com/v1alpha1",
                "ClusterServiceVersion",
                "c",
                &json!({"metadata": {"annotations":
                {"olm.operatorGroup": "og", "olm.operatorNamespace": "ops"}}}),
            ),
            vec!["owns OperatorGroup.operators.coreos.com ops/og"],
        ),
    ];
    for (body, expected) in rows {
        assert_eq!(related(&body), expected, "{body}");
    }
}

#[test]
fn a_claim_belongs_to_the_set_whose_name_and_ordinal_it_has() {
    let prefixes = [Text::from("data-web-")];
    for (name, expected) in [
        ("data-web-0", true),
        ("data-web-12", true),
        ("x-data-web-0", false),
        ("data-web-a", false),
        ("data-web-", false),
    ] {
        assert_eq!(is_claim_of(&prefixes, name), expected, "{name}");
    }
}

fn declared(names: Option<&str>, labels: Option<&str>, namespace: Option<&str>) -> RelationSet {
    use events::configuration::{DeclaredRelation, KindPattern};
    let kind = |group: &str, kind: &str| KindPattern { group: group.to_owned(), kind: kind.to_owned() };
    let own = |text: Option<&str>| text.map(str::to_owned);
    RelationSet::new(&[DeclaredRelation {
        name: "uses-database".to_owned(),
        from: kind("*.example.com", "App"),
        to: kind("db.example.com", "Database"),
        names: own(names),
        labels: own(labels),
        namespace: own(namespace),
    }])
}

#[test]
fn declared_relations_name_and_select() {
    let body = shop(
        "a.example.com/v1",
        "App",
        "web",
        &json!({"spec": {"database": "orders", "all": ["a", "b", "a"],
        "labels": {"team": "x"}, "nothing": null}}),
    );
    let kind = Kind::new("a.example.com", "App");
    let links = |set: &RelationSet| {
        let links = set.links_of(&body, &kind);
        let shown = links.iter().map(|link| match &link.target {
            Target::Key(key) => format!("{} {}/{}", key.kind.kind, key.namespace, key.name),
            Target::Labels(of) => {
                format!(
                    "{} in {} by {:?}",
                    of.kind.kind,
                    of.namespace,
                    of.selector.exact().map(|(key, _)| key.to_string())
                )
            }
            other => panic!("{other:?}"),
        });
        shown.collect::<Vec<_>>()
    };
    let by_name = declared(Some("spec.database"), None, None);
    assert_eq!(
        (by_name.name(0), links(&by_name)),
        (Some("uses-database"), vec!["Database shop/orders".to_owned()])
    );
    assert!(by_name.begins_at(&kind) && !by_name.begins_at(&Kind::new("example.com", "App")));
    assert_eq!(
        links(&declared(Some("spec.all"), None, Some("'data'"))),
        ["Database data/a", "Database data/b"]
    );
    assert_eq!(links(&declared(None, Some("spec.labels"), None)), ["Database in shop by Some(\"team\")"]);
    for (names, labels) in
        [(Some("spec.absent"), None), (Some("spec.nothing"), None), (Some("3"), None), (None, Some("{}"))]
    {
        assert!(links(&declared(names, labels, None)).is_empty(), "{names:?} {labels:?}");
    }
}
