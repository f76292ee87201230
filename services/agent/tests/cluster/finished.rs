//! Jobs that Kubernetes removes after their end run once for each manifest.

use events::delivery::SyncOutcome;
use events::desired::FinishedManifest;
use events::observation::{Observed, Write};
use serde_json::{Value, json};
use testkit::{Cluster, eventually};

use crate::cases;
use crate::rig::{DEADLINE, Rig, Source, cluster, config_map};

/// How often the Job of this name was created.
fn runs(rig: &Rig, name: &str) -> usize {
    let created = |one: &Observed| {
        matches!(one, Observed::ObjectApplied { object, write: Write::Created, .. }
            if object.identity.kind == "Job" && object.identity.name == name)
    };
    rig.process.observed().iter().filter(|one| created(one)).count()
}

fn end(one: &Observed) -> Option<FinishedManifest> {
    match one {
        Observed::ObjectFinished { digest, failed, .. } => {
            Some(FinishedManifest { digest: *digest, failed: failed.clone() })
        }
        _ => None,
    }
}

async fn is_gone(cluster: &Cluster, path: &str) {
    eventually(DEADLINE * 2, || async {
        anyhow::ensure!(!cluster.exists(path).await?, "{path} is still there");
        Ok(())
    })
    .await;
}

/// A Job without a TTL that is deleted is made again; what its watch showed before that has been seen then.
async fn barrier(rig: &Rig, cluster: &Cluster, namespace: &str) {
    let from = rig.process.observed().len();
    cluster.kubectl(["delete", "job", "barrier", "-n", namespace, "--cascade=background"]).await.unwrap();
    let corrected = |one: &Observed| {
        matches!(one, Observed::DriftCorrected { identity, .. } if identity.name == "barrier").then_some(())
    };
    rig.process.wait(from, "correction of the barrier", corrected).await;
}

fn job(name: &str, ttl: Option<u32>, command: &str) -> Value {
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "migrate", "image": "migrate:1", "command": ["/bin/sh", "-c", command]}]}}}});
    if let Some(ttl) = ttl {
        job["spec"]["ttlSecondsAfterFinished"] = json!(ttl);
    }
    job
}

/// Runs three commits: a Job, another object changed, and the Job changed. `commits` lack the barrier.
#[allow(clippy::cognitive_complexity, reason = "one commit after the other")]
async fn runs_once_a_manifest(cluster: &Cluster, namespace: &str, commits: [Vec<Value>; 3]) {
    let mut rig = Rig::start(cluster, namespace).await;
    let mut source = Source::new(&rig, "shop", namespace);
    let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/migrate");
    let [first, second, third] = commits.map(|mut commit| {
        commit.push(job("barrier", None, "true"));
        commit
    });
    source.with(first);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let (ended, _) = rig.process.wait(0, "end of the Job", end).await;
    assert_eq!(ended.failed, None);
    is_gone(cluster, &path).await;
    barrier(&rig, cluster, namespace).await;
    assert_eq!(runs(&rig, "migrate"), 1, "that it is gone is no drift");

    source.finished = vec![ended.clone()];
    source.with(second);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    source.check_all = true;
    source.sync = events::SyncId(crate::rig::uuid());
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    source.check_all = false;
    assert_eq!(runs(&rig, "migrate"), 1, "its manifest is the same, also for one who asks for a sync");
    let diff = rig.diff(&source).await;
    assert!(diff.objects.is_empty(), "{diff:?}");

    rig.restart().await;
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.created), (SyncOutcome::Succeeded, 0), "{finished:?}");
    barrier(&rig, cluster, namespace).await;
    assert_eq!(runs(&rig, "migrate"), 0, "the new process knows from the server that it ran");

    source.with(third);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.created), (SyncOutcome::Succeeded, 1), "{finished:?}");
    let from = rig.process.observed().iter().rposition(|one| end(one).is_some()).unwrap_or(0);
    let other = |one: &Observed| end(one).filter(|end| end.digest != ended.digest);
    rig.process.wait(from, "end of the other Job", other).await;
    is_gone(cluster, &path).await;
    barrier(&rig, cluster, namespace).await;
    assert_eq!(runs(&rig, "migrate"), 1);
    rig.process.stop().await;
}

#[tokio::test]
async fn a_job_that_its_ttl_removed_is_not_made_again() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("ttl", true).await.unwrap();
    let commits = [("1", "true"), ("2", "true"), ("2", "sleep 0")]
        .map(|(map, command)| vec![job("migrate", Some(0), command), config_map("other", map)]);
    runs_once_a_manifest(&cluster, &namespace, commits).await;
}

#[tokio::test]
async fn case_15_runs_once_a_manifest() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case15", true).await.unwrap();
    let commits = [1, 2, 3].map(|number| cases::commit("15", number, &namespace));
    let [Some(first), Some(second), Some(third)] = commits else { return };
    runs_once_a_manifest(&cluster, &namespace, [first, second, third]).await;
}

#[tokio::test]
async fn a_job_with_a_ttl_that_is_deleted_before_its_end_is_made_again() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("unfinished", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let mut waiting = job("migrate", Some(5), "true");
    waiting["spec"]["suspend"] = json!(true);
    source.with([waiting]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    cluster.kubectl(["delete", "job", "migrate", "-n", &namespace]).await.unwrap();
    let corrected = |one: &Observed| matches!(one, Observed::DriftCorrected { .. }).then_some(());
    rig.process.wait(0, "correction", corrected).await;
    assert_eq!(runs(&rig, "migrate"), 2);
}

/// Lets the Job's pod, which finds no node, succeed.
async fn succeed(cluster: &Cluster, namespace: &str) {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = eventually(DEADLINE, || async {
        let list = cluster.get(&pods).await?;
        let name = list["items"][0]["metadata"]["name"].as_str().map(str::to_owned);
        name.ok_or_else(|| anyhow::anyhow!("no pod: {list}"))
    })
    .await;
    let done = json!({"status": {"phase": "Succeeded"}}).to_string();
    let patch = ["patch", "pod", &pod, "-n", namespace, "--subresource=status", "--type=merge", "-p", &done];
    cluster.kubectl(patch).await.unwrap();
}

/// What is gone may have run to its end or been deleted before: it runs once more, as Jobs may (docs/applying.md).
#[tokio::test]
async fn a_job_that_ends_and_goes_while_no_agent_runs_is_run_once_more() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("unseen", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/migrate");
    let mut migrate = job("migrate", Some(0), "true");
    migrate["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "no-such-node"});
    source.with([migrate]);
    rig.put(&[&source]).await;
    let created =
        |one: &Observed| matches!(one, Observed::ObjectApplied { write: Write::Created, .. }).then_some(());
    rig.process.wait(0, "creation", created).await;
    rig.process.die();
    succeed(&cluster, &namespace).await;
    is_gone(&cluster, &path).await;

    rig.process = rig.another().await;
    rig.process.holds_lease().await;
    rig.epoch += 1;
    rig.put(&[&source]).await;
    rig.process.wait(0, "creation", created).await;
    succeed(&cluster, &namespace).await;
    let (ended, _) = rig.process.wait(0, "end of the Job", end).await;
    assert_eq!(ended.failed, None);
    is_gone(&cluster, &path).await;
    source.finished = vec![ended];
    source.with([config_map("other", "v"), source.manifests.as_ref().unwrap()[0].1.clone()]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    assert_eq!(runs(&rig, "migrate"), 1, "the second end was seen");
}
