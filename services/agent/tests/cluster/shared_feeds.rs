//! One feed of a kind serves the observer and the applier.

use events::configuration::{ObserveRules, ServiceAccount};
use events::delivery::SyncOutcome;
use events::observation::{Gone, Observed};
use http::Method;
use serde_json::{Value, json};
use testkit::{Cluster, ControlPlane, ControlPlaneOptions, Proxy, eventually};

use crate::drift::{corrected, drift};
use crate::kubeconfig;
use crate::observer::{Follower, is_gone, only, pattern};
use crate::prune::register_silent_group;
use crate::rig::{DEADLINE, Rig, Source, cluster, config_map, map_path, nothing};
use crate::rights::{role, service_account};

/// How many watches of the applier are feeds that it reads along.
async fn subscriptions(rig: &Rig) -> u64 {
    let (_, body) = rig.process.ask(Method::GET, "/v1/debug/state", Vec::new()).await;
    let state: Value = serde_json::from_slice(&body).unwrap();
    state["observer"]["subscriptions"].as_u64().unwrap()
}

async fn reads_along(rig: &Rig, expected: u64) {
    eventually(DEADLINE, || async {
        let now = subscriptions(rig).await;
        anyhow::ensure!(now == expected, "{now} subscriptions");
        Ok(())
    })
    .await;
}

/// Watches that an API server has open, over all its clients.
async fn watches(cluster: &Cluster, resources: &[&str]) -> anyhow::Result<u64> {
    let metrics = cluster.send(Method::GET, "/metrics", None).await?;
    let text = metrics.body.as_str().unwrap_or_default().to_owned();
    let lines = text.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && line.contains("verb=\"WATCH\"")
            && resources.iter().any(|resource| line.contains(&format!("resource=\"{resource}\"")))
    });
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    Ok(values.sum::<f64>() as u64)
}

async fn has_watches(cluster: &Cluster, resources: &[&str], expected: u64) {
    eventually(DEADLINE, || async {
        let now = watches(cluster, resources).await?;
        anyhow::ensure!(now == expected, "{now} watches, not {expected}");
        Ok(())
    })
    .await;
}

async fn patch(cluster: &Cluster, namespace: &str, name: &str, value: &str) {
    let patch = json!({"data": {"key": value}}).to_string();
    cluster
        .kubectl(["patch", "configmap", name, "-n", namespace, "--type=merge", "-p", &patch])
        .await
        .unwrap();
}

/// A change, a deletion and a lost label are seen and corrected.
async fn corrects(rig: &Rig, cluster: &Cluster, namespace: &str, name: &str) {
    let from = rig.process.observed().len();
    patch(cluster, namespace, name, "by hand").await;
    let ((deleted, _), next) = rig.process.wait(from, "drift", drift).await;
    assert!(!deleted);
    let (_, next) = rig.process.wait(next, "correction", corrected).await;
    cluster.kubectl(["delete", "configmap", name, "-n", namespace]).await.unwrap();
    let ((deleted, _), next) = rig.process.wait(next, "drift", drift).await;
    assert!(deleted);
    let (_, next) = rig.process.wait(next, "correction", corrected).await;
    cluster.kubectl(["label", "configmap", name, "-n", namespace, "kasbah.dev/source-"]).await.unwrap();
    let ((deleted, fields), next) = rig.process.wait(next, "drift", drift).await;
    assert!(!deleted && fields.iter().any(|field| field.path.contains("kasbah.dev/source")), "{fields:?}");
    rig.process.wait(next, "correction", corrected).await;
}

#[tokio::test]
async fn drift_is_seen_and_corrected_by_the_observers_feed_as_by_a_watch() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("along", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    rig.observe = only([pattern("", "ConfigMap", "*"), pattern("", "Secret", "*")]);
    let mut source = Source::new(&rig, "shop", &namespace);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "stringData": {"password": "hunter2"}});
    source.with([config_map("a", "v"), config_map("b", &"x".repeat(800_000)), config_map("c", "v"), secret]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    reads_along(&rig, 2).await;
    corrects(&rig, &cluster, &namespace, "a").await;
    // As large as an object may be.
    corrects(&rig, &cluster, &namespace, "b").await;
    let from = rig.process.observed().len();
    let data = r#"{"data":{"password":"aHVudGVyMw=="}}"#;
    cluster.kubectl(["patch", "secret", "s", "-n", &namespace, "-p", data]).await.unwrap();
    let ((_, fields), next) = rig.process.wait(from, "drift", drift).await;
    assert!(fields.iter().any(|field| field.path.contains("password")), "{fields:?}");
    rig.process.wait(next, "correction", corrected).await;
    assert!(!format!("{:?}", rig.process.observed()).contains("aHVu"));
    assert_eq!(subscriptions(&rig).await, 2);
    // Nobody observes any more: the applier watches by itself.
    rig.observe = nothing();
    rig.put(&[&source]).await;
    reads_along(&rig, 0).await;
    corrects(&rig, &cluster, &namespace, "c").await;
}

#[tokio::test]
async fn an_observed_kind_is_watched_once() {
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("once", false).await.unwrap();
    service_account(&plane, &namespace, "deployer").await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    role(&plane, &namespace, "deployer", rules).await;
    let kinds = ["configmaps", "secrets", "namespaces", "customresourcedefinitions", "apiservices"];
    let before = watches(&plane, &kinds).await.unwrap();
    let mut rig = Rig::start(&plane, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    source.with([config_map("a", "v"), secret]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    has_watches(&plane, &kinds, before + 5).await;
    rig.observe = ObserveRules::default();
    rig.put(&[&source]).await;
    reads_along(&rig, 5).await;
    has_watches(&plane, &kinds, before + 5).await;
    corrects(&rig, &plane, &namespace, "a").await;
    // A source with another account needs what that account sees: a watch of its own.
    let mut other = Source::new(&rig, "other", &namespace);
    other.account = Some(ServiceAccount { namespace: namespace.clone(), name: "deployer".into() });
    other.with([config_map("z", "v")]);
    assert_eq!(rig.sync(&[&other, &source]).await.outcome, SyncOutcome::Succeeded);
    has_watches(&plane, &kinds, before + 6).await;
    assert_eq!(subscriptions(&rig).await, 5);
    let from = rig.process.observed().len();
    patch(&plane, &namespace, "z", "by hand").await;
    rig.process.wait(from, "correction", corrected).await;
}

#[tokio::test]
async fn what_happened_while_no_feed_was_live_is_told_to_both() {
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let mut plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("gap", false).await.unwrap();
    let proxy = Proxy::start((std::net::Ipv4Addr::LOCALHOST, plane.port()).into()).unwrap();
    let kubeconfig = plane.folder().join("through-the-proxy.kubeconfig");
    kubeconfig::at(&plane, &format!("https://{}", proxy.address()), &kubeconfig);
    let mut rig = Rig::start_as(&kubeconfig, &namespace).await;
    rig.observe = only([pattern("", "ConfigMap", "*")]);
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v"), config_map("b", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let follower = Follower::start(&rig);
    reads_along(&rig, 1).await;
    let (from, told) = (rig.process.observed().len(), follower.heard());
    proxy.shut(true);
    proxy.cut();
    plane.kubectl(["delete", "configmap", "a", "-n", &namespace]).await.unwrap();
    // It forgets its history.
    plane.kill_api_server();
    plane.start_api_server().await.unwrap();
    proxy.shut(false);
    let (_, why) = follower.hears(told, "end", is_gone("a")).await;
    assert!(matches!(why, Gone::Vanished | Gone::Deleted), "{why:?}");
    rig.process.wait(from, "correction", corrected).await;
    assert!(plane.exists(&map_path(&namespace, "a")).await.unwrap());
    reads_along(&rig, 1).await;
    // Connections that break off lose nothing either.
    for round in 0..3 {
        proxy.cut();
        let value = format!("by hand {round}");
        patch(&plane, &namespace, "b", &value).await;
        eventually(DEADLINE, || async {
            let live = plane.get(&map_path(&namespace, "b")).await?;
            anyhow::ensure!(live["data"]["key"] == "v", "{}", live["data"]);
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_group_without_a_backend_and_a_kind_that_goes_hold_up_nothing_else() {
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("alone", false).await.unwrap();
    register_silent_group(&plane, &namespace).await;
    let mut rig = Rig::start(&plane, &namespace).await;
    rig.observe = ObserveRules::default();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "carts.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "carts", "singular": "cart", "kind": "Cart", "listKind": "CartList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    let cart = json!({"apiVersion": "example.com/v1", "kind": "Cart", "metadata": {"name": "c"}, "spec": {"size": 3}});
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v"), definition, cart]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let follower = Follower::start(&rig);
    // ConfigMaps, carts and definitions of the source; namespaces, definitions and API services as signals.
    reads_along(&rig, 6).await;
    let settled = |one: &Observed| match one {
        Observed::KindsSettled { silent } => Some(silent.clone()),
        _ => None,
    };
    assert_eq!(follower.hears(0, "all kinds", settled).await, ["silent.example.com"]);
    corrects(&rig, &plane, &namespace, "a").await;
    let (from, told) = (rig.process.observed().len(), follower.heard());
    plane.kubectl(["delete", "crd", "carts.example.com"]).await.unwrap();
    follower.hears(told, "end", is_gone("c")).await;
    // The definition is back first, and then what it defines.
    let path = format!("/apis/example.com/v1/namespaces/{namespace}/carts/c");
    eventually(DEADLINE, || async {
        let live = plane.get(&path).await?;
        anyhow::ensure!(live["spec"]["size"] == 3, "{live}");
        Ok(())
    })
    .await;
    rig.process.wait(from, "correction", corrected).await;
    reads_along(&rig, 6).await;
    corrects(&rig, &plane, &namespace, "a").await;
}
