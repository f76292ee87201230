//! An autoscaler and `replicas` in Git (case 11): a slowing fight that is reported while Git names a number, and none without one.

use events::delivery::SyncOutcome;
use events::observation::Observed;
use serde_json::{Value, json};
use testkit::Cluster;

use crate::cases;
use crate::drift::{corrected_of, patch_as};
use crate::rig::{Rig, Source, cluster, config_map, map_path};
use crate::waits::deployment;

const AUTOSCALER: &str = "kube-controller-manager";

fn tug(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments/tug")
}

/// What the autoscaler does; the one of the control plane may have done it already, as there are fewer replicas than it wants.
async fn scale(cluster: &Cluster, namespace: &str, replicas: u32) {
    let scale = format!("{}/scale", tug(namespace));
    patch_as(cluster, &scale, AUTOSCALER, json!({"spec": {"replicas": replicas}})).await;
}

async fn replicas(cluster: &Cluster, namespace: &str) -> Value {
    cluster.get(&tug(namespace)).await.unwrap()["spec"]["replicas"].clone()
}

/// Who set the number of replicas, by manager and subresource.
async fn owners(cluster: &Cluster, namespace: &str) -> Vec<(String, String)> {
    let live = cluster.get(&tug(namespace)).await.unwrap();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let entries = live["metadata"]["managedFields"].as_array().unwrap().iter();
    let owning = entries.filter(|entry| entry.pointer("/fieldsV1/f:spec/f:replicas").is_some());
    owning.map(|entry| (text(entry, "manager"), text(entry, "subresource"))).collect()
}

fn drift_of(name: &str) -> impl Fn(&Observed) -> Option<Vec<(String, String)>> {
    move |one| match one {
        Observed::DriftSeen { identity, fields, .. } if identity.name == name => {
            Some(fields.iter().map(|field| (field.path.clone(), field.manager.clone())).collect())
        }
        _ => None,
    }
}

/// A change by hand of another Deployment is undone: what its kind's watch showed before has been seen then.
async fn barrier(rig: &Rig, cluster: &Cluster, namespace: &str) {
    let from = rig.process.observed().len();
    let arguments = ["scale", "deployment/barrier", "--replicas=1", "-n", namespace];
    cluster.kubectl(arguments).await.unwrap();
    rig.process.wait(from, "correction of the barrier", corrected_of("barrier")).await;
}

/// A change by hand of another object of the source is corrected before the Deployment's next correction is due.
async fn others_are_not_held_up(rig: &Rig, cluster: &Cluster, namespace: &str, from: usize) {
    let by_hand = json!({"data": {"key": "by hand"}});
    patch_as(cluster, &map_path(namespace, "other"), "somebody", by_hand).await;
    rig.process.wait(from, "correction of another object", corrected_of("other")).await;
    let all = rig.process.observed();
    let early = all.iter().skip(from).any(|one| corrected_of("tug")(one).is_some());
    assert!(!early, "sixteen seconds are not over: {all:?}");
}

async fn leaves_the_number_to_the_autoscaler(cluster: &Cluster, namespace: &str, commits: [Vec<Value>; 2]) {
    let mut rig = Rig::start(cluster, namespace).await;
    let mut source = Source::new(&rig, "shop", namespace);
    let [first, second] = commits.map(|mut commit| {
        commit.extend([config_map("other", "v"), deployment("barrier", 0, None)]);
        commit
    });
    source.with(first);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");

    // Git and the autoscaler want different numbers: the agent reports the author, and corrects it ever more rarely.
    let mut next = 0;
    for round in 0..5 {
        scale(cluster, namespace, 3).await;
        let fields;
        (fields, next) = rig.process.wait(next, "drift", drift_of("tug")).await;
        assert_eq!(fields, [("spec.replicas".to_owned(), AUTOSCALER.to_owned())], "round {round}");
        (_, next) = rig.process.wait(next, "correction", corrected_of("tug")).await;
    }
    scale(cluster, namespace, 3).await;
    (_, next) = rig.process.wait(next, "drift", drift_of("tug")).await;
    others_are_not_held_up(&rig, cluster, namespace, next).await;
    assert_eq!(replicas(cluster, namespace).await, 3);

    // The number leaves Git after the autoscaler wrote it: it stays.
    source.with(second);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    assert_eq!(replicas(cluster, namespace).await, 3);
    let theirs = [(AUTOSCALER.to_owned(), "scale".to_owned())];
    assert_eq!(owners(cluster, namespace).await, theirs);
    stays_theirs(&mut rig, cluster, namespace, &source).await;
    rig.process.stop().await;
}

/// No drift, no difference and no write: quantities in another form, an autoscaler that acts, a restart, `kubectl scale`.
async fn stays_theirs(rig: &mut Rig, cluster: &Cluster, namespace: &str, source: &Source) {
    let diff = rig.diff(source).await;
    assert!(diff.objects.is_empty(), "{diff:?}");
    let from = rig.process.observed().len();
    scale(cluster, namespace, 4).await;
    barrier(rig, cluster, namespace).await;
    let is_of_tug = |one: &Observed| drift_of("tug")(one).is_some() || corrected_of("tug")(one).is_some();
    assert!(!rig.process.observed().iter().skip(from).any(is_of_tug), "{:?}", rig.process.observed());

    rig.restart().await;
    let finished = rig.sync(&[source]).await;
    let all = u32::try_from(source.manifests.as_ref().unwrap().len()).unwrap();
    assert_eq!((finished.outcome, finished.counts.unchanged), (SyncOutcome::Succeeded, all), "{finished:?}");
    let by_hand = ["scale", "deployment/tug", "--replicas=5", "-n", namespace];
    cluster.kubectl(by_hand).await.unwrap();
    barrier(rig, cluster, namespace).await;
    assert_eq!(replicas(cluster, namespace).await, 5);
    assert!(!rig.process.observed().iter().any(is_of_tug), "{:?}", rig.process.observed());
    let diff = rig.diff(source).await;
    assert!(diff.objects.is_empty(), "{diff:?}");
}

/// The same commits by kubectl, with an autoscaler that acts in between: the number, and whose it is.
async fn by_kubectl(cluster: &Cluster, namespace: &str, commits: [Vec<Value>; 2]) {
    let apply = async |objects: Vec<Value>| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let apply = ["apply", "--server-side", "--force-conflicts", "-n", namespace, "-f", "-"];
        cluster.kubectl_with_input(apply, &list.to_string()).await.unwrap();
    };
    let [first, second] = commits;
    apply(first).await;
    scale(cluster, namespace, 3).await;
    apply(second).await;
    assert_eq!(replicas(cluster, namespace).await, 3);
    assert_eq!(owners(cluster, namespace).await, [(AUTOSCALER.to_owned(), "scale".to_owned())]);
}

#[tokio::test]
async fn case_11_leaves_the_number_of_replicas_to_the_autoscaler() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case11", true).await.unwrap();
    let beside = cluster.namespace("case11k", true).await.unwrap();
    let read = |namespace: &str| {
        let [first, second] = [1, 2].map(|number| cases::commit("11", number, namespace));
        Some([first?, second?])
    };
    let (Some(ours), Some(kubectl)) = (read(&namespace), read(&beside)) else { return };
    leaves_the_number_to_the_autoscaler(&cluster, &namespace, ours).await;
    by_kubectl(&cluster, &beside, kubectl).await;
}
