//! An API server that has enough: 429 with Retry-After, from its own priority and fairness.

use std::collections::BTreeMap;
use std::time::Duration;

use events::delivery::SyncOutcome;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::{Audit, Cluster, ControlPlane, ControlPlaneOptions, User, eventually};

use crate::rig::{Rig, Source, config_map};

const USER: &str = "throttled-agent";
const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[tokio::test]
async fn whoever_is_told_to_wait_waits_and_then_gets_through() {
    let plane = ControlPlane::start(ControlPlaneOptions {
        audit: Audit::Requests,
        users: vec![User::new(USER, &["system:authenticated"])],
        workloads: false,
        ..ControlPlaneOptions::default()
    })
    .await
    .unwrap();
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER});
    let binding = json!({"metadata": {"name": USER}, "roleRef": role, "subjects": [subject]});
    plane.create_object("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.unwrap();
    throttle(&plane).await;
    let namespace = plane.namespace("throttled", false).await.unwrap();
    let mut rig = Rig::start_as(plane.user(USER).unwrap().kubeconfig(), &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with((0..150).map(|number| config_map(&format!("m{number}"), "v")));
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.created), (SyncOutcome::Succeeded, 150), "{finished:?}");

    let mut told = BTreeMap::<String, Timestamp>::new();
    let mut refused = 0;
    for entry in plane.audit_log().unwrap() {
        let of_agent = entry["user"]["username"] == USER && entry["objectRef"]["resource"] == "configmaps";
        if !of_agent || entry["verb"] != "patch" {
            continue;
        }
        let moment = |name: &str| entry[name].as_str().unwrap().parse::<Timestamp>().unwrap();
        let path = entry["requestURI"].as_str().unwrap().to_owned();
        if let Some(since) = told.remove(&path) {
            let waited = moment("requestReceivedTimestamp").duration_since(since);
            assert!(waited >= jiff::SignedDuration::from_secs(1), "{path} came again after {waited}");
        }
        if entry["responseStatus"]["code"] == 429 {
            refused += 1;
            told.insert(path, moment("stageTimestamp"));
        }
    }
    assert!(refused > 0, "the API server took everything: this tested nothing");
    assert!(told.is_empty(), "given up: {told:?}");
}

/// Lets the API server take so few of the agent's writes at once that it refuses most.
async fn throttle(plane: &Cluster) {
    let limited = json!({
        "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    });
    let level = json!({"metadata": {"name": USER}, "spec": {"type": "Limited", "limited": limited}});
    plane.create_object(&format!("{FLOWS}/prioritylevelconfigurations"), &level).await.unwrap();
    let resources =
        json!([{"verbs": ["patch"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["*"]}]);
    let rules = json!([{"subjects": [{"kind": "User", "user": {"name": USER}}], "resourceRules": resources}]);
    let flow = json!({
        "metadata": {"name": USER},
        "spec": {"matchingPrecedence": 2, "priorityLevelConfiguration": {"name": USER}, "rules": rules},
    });
    plane.create_object(&format!("{FLOWS}/flowschemas"), &flow).await.unwrap();
    let path = format!("{FLOWS}/flowschemas/{USER}");
    eventually(Duration::from_secs(30), || async {
        let answer = plane.send(Method::GET, &path, None).await?;
        let dangling = |one: &Value| one["type"] == "Dangling" && one["status"] == "False";
        let known =
            answer.body["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(dangling));
        anyhow::ensure!(known, "{}", answer.body["status"]);
        Ok(())
    })
    .await;
}
