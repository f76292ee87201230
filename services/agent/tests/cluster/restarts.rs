//! A Deployment that somebody restarted, before and after it is adopted (case 08), beside kubectl.

use events::observation::Observed;
use events::requests::diff::DiffReason;
use serde_json::{Value, json};
use testkit::Cluster;

use crate::rig::{Rig, Source, case, cluster};

const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";

/// What people did to the Deployment before anybody adopted it.
async fn before_the_adoption(cluster: &Cluster, namespace: &str, crane: &Value) {
    cluster.kubectl_with_input(["apply", "-f", "-"], &crane.to_string()).await.unwrap();
    for arguments in
        [&["rollout", "restart", "deployment/crane"][..], &["set", "env", "deployment/crane", "X=1"]]
    {
        cluster.kubectl(arguments.iter().copied().chain(["-n", namespace])).await.unwrap();
    }
    cluster.kubectl(["scale", "deployment/crane", "--replicas=3", "-n", namespace]).await.unwrap();
}

/// What the Deployment asks for, whenever it was restarted.
fn without_moment(live: &Value) -> Value {
    let mut spec = live["spec"].clone();
    let at = &mut spec["template"]["metadata"]["annotations"][RESTARTED];
    assert!(at.is_string(), "{spec}");
    *at = json!("then");
    spec
}

/// The same Deployment in a namespace where kubectl applies the commits.
struct Beside {
    cluster: Cluster,
    namespace: String,
}

impl Beside {
    async fn begin(cluster: &Cluster, before: &Value) -> Self {
        let namespace = cluster.namespace("case08k", true).await.unwrap();
        let beside = Self { cluster: cluster.clone(), namespace };
        before_the_adoption(cluster, &beside.namespace, &beside.here(before)).await;
        beside
    }

    fn here(&self, crane: &Value) -> Value {
        let mut crane = crane.clone();
        crane["metadata"]["namespace"] = json!(self.namespace);
        crane
    }

    /// Applies a commit; gives what the Deployment asks for then.
    async fn applies(&self, crane: &Value) -> Value {
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.cluster.kubectl_with_input(apply, &self.here(crane).to_string()).await.unwrap();
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/crane", self.namespace);
        without_moment(&self.cluster.get(&path).await.unwrap())
    }
}

#[tokio::test]
async fn adoption_replaces_no_pod_and_a_restart_by_hand_stays() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case08", true).await.unwrap();
    let folder = "08-rollout-restart-and-adoption";
    let mut commits = Vec::new();
    for number in 1..=3 {
        let path = format!("{folder}/commits/{number}/crane.yaml");
        commits.extend(case(&cluster, &path, "case08", &namespace).await);
    }
    let before = case(&cluster, &format!("{folder}/before/crane.yaml"), "case08", &namespace).await;
    let Some(before) = before.first() else { return };
    let beside = Beside::begin(&cluster, before).await;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/crane");
    before_the_adoption(&cluster, &namespace, before).await;
    let restarted = async || {
        let live = cluster.get(&path).await.unwrap();
        live["spec"]["template"]["metadata"]["annotations"][RESTARTED].clone()
    };
    let at = restarted().await;
    assert!(at.is_string());
    let template = cluster.get(&path).await.unwrap()["spec"]["template"].clone();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = 1;
    source.with([commits[0].clone()]);
    source.suspended = true;
    rig.put(&[&source]).await;
    let diff = rig.diff(&source).await;
    assert_eq!(diff.objects[0].reason, Some(DiffReason::Adopted), "{diff:?}");
    source.suspended = false;
    let fields: Vec<&str> =
        diff.objects.iter().flat_map(|object| &object.fields).map(|(path, ..)| path.as_str()).collect();
    assert_eq!(
        fields,
        ["metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]", "spec.replicas"]
    );
    rig.sync(&[&source]).await;
    let live = cluster.get(&path).await.unwrap();
    assert_eq!(live["spec"]["template"], template, "no pod is replaced");
    assert_eq!(live["spec"]["replicas"], 2);
    assert_eq!(without_moment(&live), beside.applies(&commits[0]).await, "as kubectl applies it");

    // A restart after the adoption is nobody's drift.
    let from = rig.process.observed().len();
    let restart = ["rollout", "restart", "deployment/crane", "-n"];
    for namespace in [&namespace, &beside.namespace] {
        cluster.kubectl(restart.into_iter().chain([namespace.as_str()])).await.unwrap();
    }
    let at = restarted().await;
    for commit in commits.iter().skip(1) {
        source.with([commit.clone()]);
        rig.sync(&[&source]).await;
        assert_eq!(restarted().await, at);
        let live = cluster.get(&path).await.unwrap();
        assert_eq!(without_moment(&live), beside.applies(commit).await, "as kubectl applies it");
    }
    let live = cluster.get(&path).await.unwrap();
    assert_eq!(live["spec"]["template"]["metadata"]["annotations"]["case08.example/note"], "from-git");
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().len(), 2);
    let drifts = rig.process.observed().into_iter().skip(from);
    assert_eq!(drifts.filter(|one| matches!(one, Observed::DriftSeen { .. })).count(), 0);
}
