use events::delivery::SyncOutcome;
use events::observation::Observed;
use serde_json::json;
use testkit::eventually;

use crate::rig::{DEADLINE, Rig, Source, case, cluster, config_map, map_path};

pub fn drift(one: &Observed) -> Option<(bool, Vec<events::observation::TakenField>)> {
    match one {
        Observed::DriftSeen { deleted, fields, .. } => Some((*deleted, fields.clone())),
        _ => None,
    }
}

pub fn corrected(one: &Observed) -> Option<()> {
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

pub fn corrected_of(name: &str) -> impl Fn(&Observed) -> Option<()> {
    move |one| match one {
        Observed::DriftCorrected { identity, .. } if identity.name == name => Some(()),
        _ => None,
    }
}

#[tokio::test]
async fn what_was_applied_before_is_put_right_while_something_else_fails() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("beside", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "one"), config_map("b", "v")]);
    rig.sync(&[&source]).await;
    // The next bundle changes one and cannot be applied.
    let mut broken = config_map("broken", "v");
    broken["dta"] = json!({"typo": "x"});
    source.with([config_map("a", "two"), config_map("b", "v"), broken]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Failed);
    let from = rig.process.observed().len();
    cluster.kubectl(["delete", "configmap", "a", "b", "-n", &namespace]).await.unwrap();
    rig.process.wait(from, "correction", corrected_of("a")).await;
    rig.process.wait(from, "correction", corrected_of("b")).await;
    let live = cluster.get(&map_path(&namespace, "a")).await.unwrap();
    assert_eq!(live["data"]["key"], "one", "nothing of the new bundle is written before all of it passed");

    // Also of what was changed while no agent looked.
    let patch = r#"{"data":{"key":"by hand"}}"#;
    let mut next = rig.another().await;
    std::mem::swap(&mut rig.process, &mut next);
    next.stop().await;
    cluster
        .kubectl(["patch", "configmap", "b", "-n", &namespace, "--type=merge", "-p", patch])
        .await
        .unwrap();
    rig.process.holds_lease().await;
    rig.epoch += 1;
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Failed);
    rig.process.wait(0, "correction", corrected_of("b")).await;
    assert_eq!(cluster.get(&map_path(&namespace, "b")).await.unwrap()["data"]["key"], "v");
}

#[tokio::test]
async fn a_fight_goes_on_as_slowly_after_a_restart() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("fight", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "ours")]);
    rig.sync(&[&source]).await;
    let path = format!("{}?fieldManager=rival", map_path(&namespace, "a"));
    let strike = async |round: u32| {
        let body = json!({"data": {"key": format!("theirs {round}")}});
        let body = ("application/merge-patch+json", &body);
        cluster.send(http::Method::PATCH, &path, Some(body)).await.unwrap();
    };
    let mut next = 0;
    for round in 0..4 {
        strike(round).await;
        (_, next) = rig.process.wait(next, "correction", corrected).await;
    }
    rig.restart().await;
    rig.sync(&[&source]).await;
    strike(4).await;
    rig.process.wait(0, "drift", drift).await;
    let clock = world::World::real().clock;
    let since = clock.monotonic();
    // A push that does not change the object does not hurry either.
    source.with([config_map("a", "ours"), config_map("b", "v")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.counts.created, finished.counts.changed, finished.counts.unchanged), (1, 0, 0));
    rig.process.wait(0, "correction", corrected).await;
    let waited = clock.monotonic() - since;
    assert!(waited > std::time::Duration::from_secs(5), "eight seconds: {waited:?}");
}

#[tokio::test]
async fn a_namespace_that_comes_back_is_noticed_at_once() {
    let cluster = cluster().await;
    let home = cluster.namespace("home", false).await.unwrap();
    let inner = format!("{home}-inner");
    let mut rig = Rig::start(&cluster, &home).await;
    let (mut base, mut app) = (Source::new(&rig, "base", &home), Source::new(&rig, "app", &inner));
    base.with([json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inner}})]);
    app.with([config_map("timetable", "06:10"), config_map("other", "v")]);
    // The second needs what the first makes, and does not wait for its next attempt.
    rig.put(&[&base, &app]).await;
    let succeeded = |one: &Observed| match one {
        Observed::SyncFinished { source, outcome: SyncOutcome::Succeeded, .. } if *source == app.id => {
            Some(())
        }
        _ => None,
    };
    rig.process.wait(0, "success", succeeded).await;

    let hold = json!({"metadata": {"finalizers": ["case10.example/hold"]}});
    let path = map_path(&inner, "timetable");
    let merge = "application/merge-patch+json";
    cluster.send(http::Method::PATCH, &path, Some((merge, &hold))).await.unwrap();
    cluster.kubectl(["delete", "namespace", &inner, "--wait=false"]).await.unwrap();
    let mut next = 0;
    let mut retry_at = None;
    for _ in 0..4 {
        let failed = |one: &Observed| match one {
            Observed::CorrectionFailed { failure, retry_at, .. } if failure.identity.name == "other" => {
                Some((failure.message.clone(), *retry_at))
            }
            _ => None,
        };
        let message;
        ((message, retry_at), next) = rig.process.wait(next, "failure", failed).await;
        assert!(message.contains("being terminated") || message.contains("being deleted"), "{message}");
    }
    // A push meanwhile waits as well.
    app.with([config_map("timetable", "06:12"), config_map("other", "v")]);
    let finished = rig.sync(&[&app, &base]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed, "{finished:?}");
    let from = rig.process.observed().len();
    let released = json!({"metadata": {"finalizers": null}});
    cluster.send(http::Method::PATCH, &path, Some((merge, &released))).await.unwrap();
    let ended = |one: &Observed| match one {
        Observed::SyncFinished { sync, outcome: SyncOutcome::Succeeded, .. } if *sync == app.sync => Some(()),
        _ => None,
    };
    rig.process.wait(from, "success", ended).await;
    let now = world::World::real().clock.now_millis();
    assert!(now < retry_at.unwrap().0, "before its next attempt was due");
    assert_eq!(cluster.get(&path).await.unwrap()["data"]["key"], "06:12");
    assert!(cluster.exists(&map_path(&inner, "other")).await.unwrap());
}

#[tokio::test]
async fn a_namespace_that_somebody_deletes_comes_back_with_all_that_is_in_it() {
    let cluster = cluster().await;
    let home = cluster.namespace("case10", false).await.unwrap();
    let inner = format!("{home}-inner");
    let folder = "10-namespace-deleted-by-hand/commits/1";
    let base_objects = case(&cluster, &format!("{folder}/base/namespace.yaml"), "case10", &inner).await;
    let app_objects = case(&cluster, &format!("{folder}/app/app.yaml"), "case10", &inner).await;
    if base_objects.is_empty() || app_objects.is_empty() {
        return;
    }
    let mut rig = Rig::start(&cluster, &home).await;
    let (mut base, mut app) = (Source::new(&rig, "base", &home), Source::new(&rig, "app", &inner));
    base.with(base_objects);
    app.with(app_objects);
    rig.put(&[&base, &app]).await;
    let succeeded = |one: &Observed| match one {
        Observed::SyncFinished { source, outcome: SyncOutcome::Succeeded, .. } if *source == app.id => {
            Some(())
        }
        _ => None,
    };
    rig.process.wait(0, "success", succeeded).await;
    let is_back = async |uids: [serde_json::Value; 2]| {
        eventually(2 * DEADLINE, || async {
            let namespace = cluster.get(&format!("/api/v1/namespaces/{inner}")).await?;
            anyhow::ensure!(namespace["metadata"]["uid"] != uids[0], "the old namespace");
            for path in [
                map_path(&inner, "timetable"),
                format!("/api/v1/namespaces/{inner}/serviceaccounts/ferry"),
                format!("/api/v1/namespaces/{inner}/services/ferry"),
                format!("/apis/apps/v1/namespaces/{inner}/deployments/ferry"),
            ] {
                anyhow::ensure!(cluster.exists(&path).await?, "no {path}");
            }
            let map = cluster.get(&map_path(&inner, "timetable")).await?;
            anyhow::ensure!(map["metadata"]["uid"] != uids[1], "the old one");
            anyhow::ensure!(
                namespace["metadata"]["labels"]["kasbah.dev/source"] == base.id.to_string(),
                "no mark"
            );
            Ok(())
        })
        .await;
    };
    for is_unlabelled in [false, true] {
        let namespace = cluster.get(&format!("/api/v1/namespaces/{inner}")).await.unwrap();
        let map = cluster.get(&map_path(&inner, "timetable")).await.unwrap();
        if is_unlabelled {
            cluster.kubectl(["label", "namespace", &inner, "kasbah.dev/source-"]).await.unwrap();
        }
        cluster.kubectl(["delete", "namespace", &inner, "--wait=false"]).await.unwrap();
        is_back([namespace["metadata"]["uid"].clone(), map["metadata"]["uid"].clone()]).await;
    }
    let pruned = |one: &Observed| matches!(one, Observed::ObjectPruned { .. });
    assert!(!rig.process.observed().iter().any(pruned), "nothing is pruned");
}

fn extra_of(one: &Observed) -> Option<Vec<(String, String)>> {
    match one {
        Observed::ExtraSeen { fields, .. } => {
            Some(fields.iter().map(|field| (field.path.clone(), field.manager.clone())).collect())
        }
        _ => None,
    }
}

pub async fn patch_as(cluster: &testkit::Cluster, path: &str, manager: &str, body: serde_json::Value) {
    let path = format!("{path}?fieldManager={manager}");
    let body = ("application/merge-patch+json", &body);
    let answer = cluster.send(http::Method::PATCH, &path, Some(body)).await.unwrap();
    assert!(answer.status.is_success(), "{answer:?}");
}

#[tokio::test]
async fn what_others_added_is_shown_and_is_no_drift() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("extra", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v")]);
    rig.sync(&[&source]).await;
    let path = map_path(&namespace, "a");
    patch_as(&cluster, &path, "somebody", json!({"data": {"more": "theirs"}})).await;
    let (extra, next) = rig.process.wait(0, "extra", extra_of).await;
    assert_eq!(extra, [("data.more".to_owned(), "somebody".to_owned())]);
    let diff = rig.diff(&source).await;
    assert!(diff.objects.is_empty(), "{diff:?}");
    assert_eq!(diff.extra[0].fields, [("data.more".to_owned(), "somebody".to_owned())]);
    patch_as(&cluster, &path, "somebody", json!({"data": {"more": null}})).await;
    let (extra, _) = rig.process.wait(next, "extra", extra_of).await;
    assert!(extra.is_empty(), "{extra:?}");
    assert!(!rig.process.observed().iter().any(|one| drift(one).is_some()));
}

#[tokio::test]
async fn a_strict_source_removes_what_kubectl_and_named_managers_added_and_nothing_else() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("strict", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.strict = true;
    source.policies.strict_managers = vec!["rival".to_owned()];
    source.with([config_map("a", "v")]);
    rig.sync(&[&source]).await;
    let path = map_path(&namespace, "a");
    patch_as(&cluster, &path, "operator", json!({"data": {"theirs": "stays"}})).await;
    let mut next = 0;
    for manager in ["kubectl-edit", "rival"] {
        patch_as(&cluster, &path, manager, json!({"data": {"more": manager}})).await;
        let (seen, after) = rig.process.wait(next, "drift", drift).await;
        let fields: Vec<(&str, &str)> =
            seen.1.iter().map(|field| (field.path.as_str(), field.manager.as_str())).collect();
        assert_eq!(fields, [("data.more", manager)]);
        (_, next) = rig.process.wait(after, "correction", corrected).await;
        let data = cluster.get(&path).await.unwrap()["data"].clone();
        assert_eq!(data, json!({"key": "v", "theirs": "stays"}));
    }
}
