use events::configuration::{Mode, ServiceAccount};
use events::delivery::SyncOutcome;
use events::observation::Observed;
use serde_json::json;
use testkit::{Cluster, ControlPlane, ControlPlaneOptions, Folder, eventually};

use crate::kubeconfig;
use crate::rig::{DEADLINE, Rig, Source, cluster, config_map, map_path};
use crate::waits::deployment;

pub async fn service_account(cluster: &Cluster, namespace: &str, name: &str) {
    let object = json!({"metadata": {"name": name}});
    cluster.create_object(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &object).await.unwrap();
}

pub async fn role(cluster: &Cluster, namespace: &str, account: &str, rules: serde_json::Value) {
    let root = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let role = json!({"metadata": {"name": account}, "rules": rules});
    cluster.create_object(&format!("{root}/roles"), &role).await.unwrap();
    let binding = json!({"metadata": {"name": account}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]});
    cluster.create_object(&format!("{root}/rolebindings"), &binding).await.unwrap();
}

/// An agent of one namespace, with these rights; its kubeconfig lives as long as the folder.
pub async fn agent_with(cluster: &Cluster, namespace: &str, rules: serde_json::Value) -> (Rig, Folder) {
    service_account(cluster, namespace, "agent").await;
    role(cluster, namespace, "agent", rules).await;
    let token = cluster.kubectl(["create", "token", "agent", "-n", namespace]).await.unwrap();
    let folder = Folder::temporary().unwrap();
    let kubeconfig = folder.path().join("agent.kubeconfig");
    kubeconfig::with_token(cluster, token.trim(), &kubeconfig);
    let mut rig = Rig::start_as(&kubeconfig, namespace).await;
    rig.mode = Mode::Namespaced;
    (rig, folder)
}

fn blocked(one: &Observed) -> Option<String> {
    match one {
        Observed::SourceBlocked { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn a_role_is_enough_in_namespaced_mode_and_a_missing_right_is_named() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("role", false).await.unwrap();
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update"]}]);
    let (mut rig, _folder) = agent_with(&cluster, &namespace, rules).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    // Watches work with the Role as well.
    cluster.kubectl(["delete", "configmap", "a", "-n", &namespace]).await.unwrap();
    let corrected = |one: &Observed| matches!(one, Observed::DriftCorrected { .. }).then_some(());
    rig.process.wait(0, "correction", corrected).await;
    assert!(cluster.exists(&map_path(&namespace, "a")).await.unwrap());

    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    source.with([config_map("a", "v"), secret]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    let message = &finished.failures[0].message;
    assert!(
        message.contains("patch") && message.contains("secrets") && message.contains(&namespace),
        "{message}"
    );
    rig.process.wait(0, "block", blocked).await;
    let namespaced = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "never"}});
    source.with([namespaced]);
    let finished = rig.sync(&[&source]).await;
    assert!(finished.failures[0].message.contains("cluster-scoped"), "{finished:?}");
}

/// In place of its controller.
async fn set_available(cluster: &Cluster, namespace: &str, available: u32) {
    let condition = |kind: &str, is: bool, reason: &str| json!({"type": kind, "status": if is { "True" } else { "False" }, "reason": reason});
    let conditions = [
        condition("Progressing", true, "NewReplicaSetAvailable"),
        condition("Available", available > 0, "MinimumReplicas"),
    ];
    let status = json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": available,
        "availableReplicas": available, "unavailableReplicas": 1 - available, "conditions": conditions}});
    let patch = ["patch", "deployment", "web", "-n", namespace, "--subresource=status", "--type=merge", "-p"];
    eventually(DEADLINE, || async {
        cluster.kubectl(patch.into_iter().chain([status.to_string().as_str()])).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_followed_is_looked_at_before_a_sync_is_called_healthy() {
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let cluster = ControlPlane::start(options).await.unwrap();
    let namespace = cluster.namespace("unfollowed", false).await.unwrap();
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "create", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update"]}]);
    let (mut rig, _folder) = agent_with(&cluster, &namespace, rules).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([deployment("web", 1, None), config_map("a", "first")]);
    rig.put(&[&source]).await;
    set_available(&cluster, &namespace, 1).await;
    assert_eq!(rig.finished(0, &source).await.outcome, SyncOutcome::Succeeded);

    set_available(&cluster, &namespace, 0).await;
    source.policies.health_timeout_seconds = 3;
    source.with([deployment("web", 1, None), config_map("a", "second")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.unhealthy), (SyncOutcome::Unhealthy, 1), "{finished:?}");
    set_available(&cluster, &namespace, 1).await;
    source.policies.health_timeout_seconds = 300;
    source.with([deployment("web", 1, None), config_map("a", "third")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
}

#[tokio::test]
async fn a_source_acts_as_its_service_account_and_lockdown_demands_one() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("account", false).await.unwrap();
    let other = cluster.namespace("beyond", false).await.unwrap();
    service_account(&cluster, &namespace, "deployer").await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    role(&cluster, &namespace, "deployer", rules).await;
    let mut rig = Rig::start(&cluster, &namespace).await;
    rig.lockdown = true;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Failed);
    let (reason, _) = rig.process.wait(0, "block", blocked).await;
    assert!(reason.contains("service_account"), "{reason}");
    source.account = Some(ServiceAccount { namespace: namespace.clone(), name: "deployer".into() });
    source.with([config_map("a", "v")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    let mut beyond = config_map("b", "v");
    beyond["metadata"]["namespace"] = json!(other);
    source.with([config_map("a", "v"), beyond]);
    let finished = rig.sync(&[&source]).await;
    let message = &finished.failures[0].message;
    assert!(message.contains("deployer") && message.contains(&other), "{message}");
    // Its watch is its own too: narrowed to the namespace where it may look.
    source.with([config_map("a", "v")]);
    rig.sync(&[&source]).await;
    let from = rig.process.observed().len();
    cluster.kubectl(["delete", "configmap", "a", "-n", &namespace]).await.unwrap();
    let corrected = |one: &Observed| matches!(one, Observed::DriftCorrected { .. }).then_some(());
    rig.process.wait(from, "correction", corrected).await;
}
