//! Kinds that nothing defines yet, and sources that are too large.

use events::delivery::{SyncCounts, SyncOutcome};
use events::observation::Observed;
use serde_json::{Value, json};
use testkit::Cluster;

use crate::rig::{Rig, Source, cluster, config_map, map_path};

fn definition(group: &str, plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "singular": kind.to_lowercase(),
            "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn custom(group: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name}, "spec": {"size": 3}})
}

fn ended(source: &Source) -> impl Fn(&Observed) -> Option<(SyncOutcome, SyncCounts)> {
    let sync = source.sync;
    move |one| match one {
        Observed::SyncFinished { sync: of, outcome, counts, .. } if *of == sync => Some((*outcome, *counts)),
        _ => None,
    }
}

async fn define(cluster: &Cluster, definition: &Value) {
    cluster.kubectl_with_input(["create", "-f", "-"], &definition.to_string()).await.unwrap();
}

#[tokio::test]
async fn a_kind_that_nothing_defines_yet_waits_by_name_and_holds_nothing_up() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("kinds", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let group = format!("g{}.example.com", rig.agent.0.simple());
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("old", "v")]);
    rig.sync(&[&source]).await;
    let entry = rig.prune_entry("old");
    // A template, the kind that a controller makes of it, and what that controller defines, in one source.
    source
        .with([
            config_map("a", "v"),
            custom(&group, "Basket", "late"),
            definition(&group, "templates", "Template"),
            custom(&group, "Template", "basket"),
        ])
        .pruning([entry]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    assert_eq!((finished.counts.created, finished.counts.failed, finished.counts.waiting), (3, 0, 1));
    let named = &finished.failures[0];
    assert_eq!((named.identity.name.as_str(), named.line), ("late", 7));
    assert!(named.message.contains("waits for its kind: no matches for kind \"Basket\""), "{finished:?}");
    assert!(
        cluster.exists(&map_path(&namespace, "old")).await.unwrap(),
        "it may take the place of what goes"
    );

    // What is applied is put right meanwhile.
    let from = rig.process.observed().len();
    cluster.kubectl(["delete", "configmap", "a", "-n", &namespace]).await.unwrap();
    let corrected = |one: &Observed| matches!(one, Observed::DriftCorrected { .. }).then_some(());
    rig.process.wait(from, "correction", corrected).await;

    define(&cluster, &definition(&group, "baskets", "Basket")).await;
    let ((outcome, counts), _) = rig.process.wait(from, "end of the sync", ended(&source)).await;
    assert_eq!((outcome, counts.created, counts.waiting, counts.pruned), (SyncOutcome::Succeeded, 1, 0, 1));
    let path = format!("/apis/{group}/v1/namespaces/{namespace}/baskets/late");
    assert_eq!(cluster.get(&path).await.unwrap()["spec"]["size"], 3);
    assert!(!cluster.exists(&map_path(&namespace, "old")).await.unwrap());

    // The definition goes, and its objects with it: they wait again, and come back with it.
    let from = rig.process.observed().len();
    cluster.kubectl(["delete", "crd", &format!("baskets.{group}")]).await.unwrap();
    let ((outcome, counts), from) = rig.process.wait(from, "end of the sync", ended(&source)).await;
    assert_eq!((outcome, counts.waiting), (SyncOutcome::Succeeded, 1));
    define(&cluster, &definition(&group, "baskets", "Basket")).await;
    let ((outcome, counts), _) = rig.process.wait(from, "end of the sync", ended(&source)).await;
    assert_eq!((outcome, counts.created, counts.waiting), (SyncOutcome::Succeeded, 1, 0));
    assert!(cluster.exists(&path).await.unwrap());
}

#[tokio::test]
async fn a_kind_that_comes_while_the_sync_waits_for_health_is_not_missed() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("kinds", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let group = format!("g{}.example.com", rig.agent.0.simple());
    let mut shop = Source::new(&rig, "shop", &namespace);
    // No node takes it: it becomes healthy when the test says so.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "front"},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": "no-such-node"},
            "containers": [{"name": "front", "image": "front"}]}});
    shop.with([pod, custom(&group, "Basket", "late")]);
    let mut other = Source::new(&rig, "other", &namespace);
    other.with([custom(&group, "Basket", "other")]);
    let from = rig.process.observed().len();
    rig.put(&[&shop, &other]).await;
    let waiting = |one: &Observed| match one {
        Observed::SyncWaiting { source, .. } if *source == shop.id => Some(()),
        _ => None,
    };
    rig.process.wait(from, "wait for health", waiting).await;
    let ((_, counts), from) = rig.process.wait(from, "end of the other sync", ended(&other)).await;
    assert_eq!(counts.waiting, 1);

    // The other source shows that the agent knows the kind, while this one's sync still goes on.
    define(&cluster, &definition(&group, "baskets", "Basket")).await;
    let ((_, counts), from) = rig.process.wait(from, "the other source's object", ended(&other)).await;
    assert_eq!((counts.created, counts.waiting), (1, 0));
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
        .to_string();
    let patch =
        ["patch", "pod", "front", "-n", &namespace, "--subresource=status", "--type=merge", "-p", &ready];
    cluster.kubectl(patch).await.unwrap();
    let ((outcome, counts), from) = rig.process.wait(from, "end of the sync", ended(&shop)).await;
    assert_eq!((outcome, counts.waiting), (SyncOutcome::Succeeded, 1));
    let ((outcome, counts), _) = rig.process.wait(from, "end of the next sync", ended(&shop)).await;
    assert_eq!((outcome, counts.created, counts.waiting), (SyncOutcome::Succeeded, 1, 0));
    let path = format!("/apis/{group}/v1/namespaces/{namespace}/baskets/late");
    assert!(cluster.exists(&path).await.unwrap());
}

#[tokio::test]
async fn a_source_that_is_too_large_fails_alone_and_stays_as_it_was() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("large", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    rig.process.service.set_capacity(256 << 10);
    let (mut large, mut small) =
        (Source::new(&rig, "large", &namespace), Source::new(&rig, "small", &namespace));
    large.with([config_map("large", "v")]);
    small.with([config_map("small", "v")]);
    rig.sync(&[&large, &small]).await;
    rig.finished(0, &small).await;
    let from = rig.process.observed().len();
    large.with((0..20).map(|n| config_map(&format!("m{n}"), &"x".repeat(100_000))));
    small.with([config_map("small", "w")]);
    let finished = rig.sync(&[&large, &small]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    let finished = rig.finished(from, &small).await;
    assert_eq!((finished.outcome, finished.counts.changed), (SyncOutcome::Succeeded, 1), "{finished:?}");
    let blocked = |one: &Observed| match one {
        Observed::SourceBlocked { source, reason, .. } if *source == large.id => Some(reason.clone()),
        _ => None,
    };
    let (reason, _) = rig.process.wait(from, "reason", blocked).await;
    assert!(reason.contains("too large for this agent"), "{reason}");
    // What it had before is kept as it was.
    cluster.kubectl(["delete", "configmap", "large", "-n", &namespace]).await.unwrap();
    let corrected = |one: &Observed| matches!(one, Observed::DriftCorrected { .. }).then_some(());
    rig.process.wait(from, "correction", corrected).await;
    assert_eq!(cluster.get(&map_path(&namespace, "large")).await.unwrap()["data"]["key"], "v");
}

#[tokio::test]
async fn a_watch_that_does_not_work_is_shown_until_it_does() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("watch", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let group = format!("g{}.example.com", rig.agent.0.simple());
    let mut two_versions = definition(&group, "baskets", "Basket");
    let mut old = two_versions["spec"]["versions"][0].clone();
    two_versions["spec"]["versions"][0]["name"] = json!("v2");
    old["storage"] = json!(false);
    two_versions["spec"]["versions"].as_array_mut().unwrap().push(old);
    define(&cluster, &two_versions).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([custom(&group, "Basket", "a"), config_map("a", "v")]);
    let succeeded = |one: &Observed| match one {
        Observed::SyncFinished { outcome: SyncOutcome::Succeeded, counts, .. } if counts.waiting == 0 => {
            Some(())
        }
        _ => None,
    };
    rig.put(&[&source]).await;
    rig.process.wait(0, "success", succeeded).await;

    // What is stored in another version than the one in Git cannot be shown any more.
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/baskets.{group}");
    let convert = async |conversion: Value| {
        let body = json!({"spec": {"conversion": conversion}});
        let body = ("application/merge-patch+json", &body);
        let answer = cluster.send(http::Method::PATCH, &path, Some(body)).await.unwrap();
        assert!(answer.status.is_success(), "{answer:?}");
    };
    let from = rig.process.observed().len();
    convert(json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/convert"}}}))
    .await;
    let broken = |one: &Observed| match one {
        Observed::WatchesBroken { source: of, broken, all } if *of == source.id => {
            Some((broken.clone(), *all))
        }
        _ => None,
    };
    let ((watches, all), next) = rig.process.wait(from, "broken watch", broken).await;
    assert_eq!((watches[0].kind.as_str(), watches[0].group.as_str(), all), ("Basket", group.as_str(), 1));
    assert!(watches[0].reason.contains("conversion"), "{watches:?}");
    convert(json!({"strategy": "None", "webhook": null})).await;
    let ((watches, all), _) = rig.process.wait(next, "word that it works", broken).await;
    assert!(watches.is_empty() && all == 0, "{watches:?}");
}
