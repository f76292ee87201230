use events::delivery::SyncOutcome;
use events::observation::Observed;
use serde_json::json;
use testkit::eventually;

use crate::rig::{DEADLINE, Rig, Source, cluster, config_map, map_path};

fn drift(one: &Observed) -> Option<(bool, Vec<events::observation::TakenField>)> {
    match one {
        Observed::DriftSeen { deleted, fields, .. } => Some((*deleted, fields.clone())),
        _ => None,
    }
}

fn corrected(one: &Observed) -> Option<()> {
    matches!(one, Observed::DriftCorrected { .. }).then_some(())
}

#[tokio::test]
async fn a_change_by_hand_is_told_with_its_author_and_corrected() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("drift", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v"), config_map("b", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let patch = r#"{"data":{"key":"by hand","more":"theirs"}}"#;
    let arguments = [
        "patch",
        "configmap",
        "a",
        "-n",
        &namespace,
        "--type=merge",
        "-p",
        patch,
        "--field-manager=somebody",
    ];
    cluster.kubectl(arguments).await.unwrap();
    let ((deleted, fields), next) = rig.process.wait(0, "drift", drift).await;
    assert!(!deleted);
    let fields: Vec<(&str, &str)> =
        fields.iter().map(|field| (field.path.as_str(), field.manager.as_str())).collect();
    assert_eq!(fields, [("data.key", "somebody")]);
    let (_, next) = rig.process.wait(next, "correction", corrected).await;
    // What others added stays theirs.
    let data = cluster.get(&map_path(&namespace, "a")).await.unwrap()["data"].clone();
    assert_eq!(data, json!({"key": "v", "more": "theirs"}));

    cluster.kubectl(["delete", "configmap", "b", "-n", &namespace]).await.unwrap();
    let ((deleted, _), next) = rig.process.wait(next, "drift", drift).await;
    assert!(deleted);
    let (_, next) = rig.process.wait(next, "correction", corrected).await;
    assert_eq!(cluster.get(&map_path(&namespace, "b")).await.unwrap()["data"]["key"], "v");

    // Without its label an object leaves the watch, and is found all the same.
    cluster.kubectl(["label", "configmap", "a", "-n", &namespace, "kasbah.dev/source-"]).await.unwrap();
    let ((deleted, fields), next) = rig.process.wait(next, "drift", drift).await;
    assert!(!deleted, "it lost its label only");
    assert!(fields.iter().any(|field| field.path.contains("kasbah.dev/source")), "{fields:?}");
    rig.process.wait(next, "correction", corrected).await;
    let label =
        cluster.get(&map_path(&namespace, "a")).await.unwrap()["metadata"]["labels"]["kasbah.dev/source"]
            .clone();
    assert_eq!(label, source.id.to_string());
}

#[tokio::test]
async fn drift_is_only_told_where_it_is_not_to_be_corrected() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("tolerate", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.correct_drift = false;
    source.with([config_map("a", "v")]);
    rig.sync(&[&source]).await;
    let patch = r#"{"data":{"key":"by hand"}}"#;
    cluster
        .kubectl(["patch", "configmap", "a", "-n", &namespace, "--type=merge", "-p", patch])
        .await
        .unwrap();
    rig.process.wait(0, "drift", drift).await;
    // The next sync is a barrier: had a correction been due, it would have come before.
    source.with([config_map("a", "v"), config_map("b", "v")]);
    let before = rig.process.observed().len();
    rig.sync(&[&source]).await;
    let corrected_early = rig.process.observed().iter().take(before).any(|one| corrected(one).is_some());
    assert!(!corrected_early);
}

#[tokio::test]
async fn a_fight_with_another_writer_slows_down() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("fight", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "ours")]);
    rig.sync(&[&source]).await;
    let mut next = 0;
    for round in 0..3 {
        let body = json!({"data": {"key": format!("theirs {round}")}});
        let path = format!("{}?fieldManager=rival", map_path(&namespace, "a"));
        cluster
            .send(http::Method::PATCH, &path, Some(("application/merge-patch+json", &body)))
            .await
            .unwrap();
        (_, next) = rig.process.wait(next, "drift", drift).await;
        (_, next) = rig.process.wait(next, "correction", corrected).await;
    }
    let seen: Vec<i64> = rig
        .process
        .observed()
        .iter()
        .filter(|one| drift(one).is_some() || corrected(one).is_some())
        .map(|_| 1)
        .collect();
    assert_eq!(seen.len(), 6);
    eventually(DEADLINE, || async {
        let live = cluster.get(&map_path(&namespace, "a")).await?;
        anyhow::ensure!(live["data"]["key"] == "ours", "{live}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_source_sync_by_hand_checks_each_object_again() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("again", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v"), config_map("b", "v")]);
    rig.sync(&[&source]).await;
    source.check_all = true;
    source.with([config_map("a", "v"), config_map("b", "v")]);
    let from = rig.process.observed().len();
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.unchanged), (SyncOutcome::Succeeded, 2), "{finished:?}");
    let checked = rig
        .process
        .observed()
        .iter()
        .skip(from)
        .filter(|one| matches!(one, Observed::ObjectApplied { .. }))
        .count();
    assert_eq!(checked, 2);
}
