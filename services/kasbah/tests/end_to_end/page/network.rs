//! Who sends traffic to whom, on a real API server: routes, Services, workloads, policies, and what a mesh secures.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::{drive_chromium, eventually};

use super::{ENOUGH, given, place, script, seen_enough};
use crate::index::Stage;
use crate::scene::LIMIT;

const NETWORK: &str = include_str!("network.mjs");
/// A proxy of a mesh beside the containers.
const MESHED: &str = "initContainers: [{name: istio-proxy, image: \"proxy:1\", restartPolicy: Always}]\n      terminationGracePeriodSeconds: 0";

fn definition(group: &str, kind: &str, plural: &str) -> String {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    // The API server wants to know who approved kinds of groups that are Kubernetes' own.
    let approved = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": approved},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
    .to_string()
}

async fn create(stage: &Stage, api_version: &str, kind: &str, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": stage.namespace()});
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    // The API server serves a new kind a moment after its definition.
    let object = object.to_string();
    eventually(LIMIT, || stage.cluster().kubectl_with_input(["apply", "-f", "-"], &object)).await;
}

fn backend(service: &str) -> Value {
    json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}})
}

/// Two workloads in a mesh, and all that leads to them.
async fn build(stage: &Stage) {
    for (group, kind, plural) in [
        ("networking.istio.io", "Gateway", "gateways"),
        ("networking.istio.io", "VirtualService", "virtualservices"),
        ("security.istio.io", "PeerAuthentication", "peerauthentications"),
        ("gateway.networking.k8s.io", "Gateway", "gateways"),
        ("gateway.networking.k8s.io", "HTTPRoute", "httproutes"),
    ] {
        let definition = definition(group, kind, plural);
        stage.cluster().kubectl_with_input(["create", "-f", "-"], &definition).await.unwrap();
    }
    let [istio, security, gateway_api] =
        ["networking.istio.io/v1", "security.istio.io/v1", "gateway.networking.k8s.io/v1"];
    let selects = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    create(stage, "v1", "Service", "web", selects).await;
    let paths = json!([backend("web"), backend("gone")]);
    let ingress = json!({"rules": [{"http": {"paths": paths}}]});
    create(stage, "networking.k8s.io/v1", "Ingress", "site", ingress).await;
    create(stage, istio, "Gateway", "edge", json!({"selector": {"istio": "ingress"}})).await;
    let routes = json!({"hosts": ["shop.example"], "gateways": ["edge"],
        "http": [{"route": [{"destination": {"host": "web"}}]}]});
    create(stage, istio, "VirtualService", "shop", routes).await;
    create(stage, gateway_api, "Gateway", "front", json!({"gatewayClassName": "any"})).await;
    let route =
        json!({"parentRefs": [{"name": "front"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
    create(stage, gateway_api, "HTTPRoute", "api", route).await;
    create(stage, security, "PeerAuthentication", "all", json!({"mtls": {"mode": "STRICT"}})).await;
    let policy = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]});
    create(stage, "networking.k8s.io/v1", "NetworkPolicy", "web", policy).await;
}

const QUERY: &str = "query Network($filter: ResourceFilter!) { network(filter: $filter) { nodes { kind name role missing pods mesh { mesh mtls reason } } edges { from to relation } leftOut } }";

fn network(stage: &Stage) -> anyhow::Result<Value> {
    let filter = format!("filter={}", json!({"namespace": stage.namespace()}));
    let answer = stage.json(&["graphql", QUERY, "--variable", &filter])?;
    Ok(answer["network"].clone())
}

/// Each edge, such as `Service web selects Deployment web`.
fn edges(network: &Value) -> BTreeSet<String> {
    let name = |place: &Value| {
        let node = &network["nodes"][usize::try_from(place.as_u64().unwrap()).unwrap()];
        format!("{} {}", node["kind"].as_str().unwrap(), node["name"].as_str().unwrap())
    };
    let edges = network["edges"].as_array().unwrap().iter();
    edges
        .map(|edge| {
            format!("{} {} {}", name(&edge["from"]), edge["relation"].as_str().unwrap(), name(&edge["to"]))
        })
        .collect()
}

fn expected() -> BTreeSet<String> {
    [
        "Gateway edge serves VirtualService shop",
        "Gateway front serves HTTPRoute api",
        "HTTPRoute api routes-to Service web",
        "Ingress site routes-to Service gone",
        "Ingress site routes-to Service web",
        "NetworkPolicy web protects Deployment web",
        "PeerAuthentication all protects Deployment web",
        "Service web selects Deployment web",
        "VirtualService shop routes-to Service web",
    ]
    .map(str::to_owned)
    .into()
}

fn node<'n>(network: &'n Value, kind: &str, name: &str) -> &'n Value {
    let nodes = network["nodes"].as_array().unwrap();
    nodes.iter().find(|node| (&node["kind"], &node["name"]) == (&json!(kind), &json!(name))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_traffic_to_whom_is_seen_with_what_a_mesh_secures_now_and_before() {
    let stage = Stage::start().await;
    stage.deploy("web:1", MESHED).await;
    stage.health_becomes("deploy/web", "healthy").await;
    build(&stage).await;
    let known = eventually(LIMIT, || async {
        let network = network(&stage)?;
        ensure!(network["edges"].is_array(), "{network:#}");
        let found = edges(&network);
        let missing: Vec<_> = expected().difference(&found).cloned().collect();
        ensure!(missing.is_empty(), "missing {missing:?} in {network:#}");
        Ok(network)
    })
    .await;
    let web = node(&known, "Deployment", "web");
    assert_eq!((&web["role"], &web["pods"]), (&json!("WORKLOAD"), &json!(2)), "{web:#}");
    assert_eq!(web["mesh"]["mtls"], "strict", "{web:#}");
    assert_eq!(node(&known, "Service", "gone")["missing"], true);
    let given = given(&stage.scene.kasbah, &json!({ "path": place(&stage.scene), "enough": ENOUGH }));
    let changes = async {
        seen_enough(&stage.scene.kasbah, ENOUGH).await;
        let off = json!({"mtls": {"mode": "DISABLE"}});
        create(&stage, "security.istio.io/v1", "PeerAuthentication", "all", off).await;
    };
    let driven = script(NETWORK);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), changes);
    let all = json!({
        "columns": ["Lets traffic in", "Routes", "Services", "Workloads", "Policies"],
        "mesh": "mTLS strict",
        "missing": true,
        "keyboard": "web",
        "rows": true,
        "off": "mTLS off",
        "before": "mTLS strict",
        "opened": "web",
        "images": 0,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), all);
}
