//! What a comparison says: what a sync would do with each object, and why.

use std::collections::BTreeSet;

use events::configuration::{Adoption, Conflicts};
use events::delivery::SyncOutcome;
use events::requests::diff::{DiffChange, DiffReason, ObjectDiff, SourceDiff, SyncExtent};
use http::Method;
use serde_json::{Value, json};

use crate::rig::{Rig, Source, cluster, config_map, map_path};

fn named<'a>(diff: &'a SourceDiff, name: &str) -> &'a ObjectDiff {
    diff.objects
        .iter()
        .find(|object| object.identity.name == name)
        .unwrap_or_else(|| panic!("{name}: {diff:#?}"))
}

fn of(diff: &SourceDiff, name: &str) -> (DiffChange, Option<DiffReason>) {
    let object = named(diff, name);
    (object.change, object.reason)
}

fn extent(diff: &SourceDiff) -> Option<SyncExtent> {
    diff.stopped.as_ref().map(|stop| stop.extent)
}

#[tokio::test]
async fn what_a_set_founds_itself_is_no_refusal_and_what_is_refused_keeps_the_rest_back() {
    let cluster = cluster().await;
    let home = cluster.namespace("diffset", false).await.unwrap();
    let inner = format!("{home}-inner");
    let mut rig = Rig::start(&cluster, &home).await;
    let mut source = Source::new(&rig, "shop", &home);
    source.with([config_map("goes", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let gone = rig.prune_entry("goes");
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inner}});
    let mut inside = config_map("inside", "v");
    inside["metadata"]["namespace"] = json!(inner);
    source.with([space.clone(), inside.clone()]).pruning([gone.clone()]);
    let diff = rig.diff(&source).await;
    assert_eq!(of(&diff, &inner), (DiffChange::Create, None));
    assert_eq!(of(&diff, "inside"), (DiffChange::Create, Some(DiffReason::NeedsOthers)), "{diff:#?}");
    assert_eq!((of(&diff, "goes"), extent(&diff)), ((DiffChange::Prune, None), None));
    assert_eq!((named(&diff, "inside").file.as_str(), named(&diff, "inside").line), ("1.yaml", 7));

    let mut broken = config_map("broken", "v");
    broken["dta"] = json!({"typo": "x"});
    source.with([space, inside, broken]).pruning([gone]);
    let diff = rig.diff(&source).await;
    assert_eq!(of(&diff, "broken"), (DiffChange::Refused, Some(DiffReason::ApiServer)));
    let refused = named(&diff, "broken");
    assert!(refused.message.as_ref().unwrap().contains("dta"), "{refused:?}");
    assert_eq!((refused.file.as_str(), refused.line), ("2.yaml", 7));
    assert_eq!(extent(&diff), Some(SyncExtent::Foundation));
    assert_eq!(of(&diff, "goes"), (DiffChange::Keep, Some(DiffReason::NotBeforeApplied)));
    // That is what a sync does.
    let finished = rig.sync(&[&source]).await;
    assert_eq!(
        (finished.outcome, finished.counts.created, finished.counts.pruned),
        (SyncOutcome::Failed, 1, 0)
    );
    assert!(cluster.exists(&format!("/api/v1/namespaces/{inner}")).await.unwrap());
    assert!(cluster.exists(&map_path(&home, "goes")).await.unwrap());
}

#[tokio::test]
async fn a_kind_that_nothing_defines_waits_and_nothing_is_pruned_meanwhile() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("diffkind", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let group = format!("g{}.example.com", rig.agent.0.simple());
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("old", "v")]);
    rig.sync(&[&source]).await;
    let entry = rig.prune_entry("old");
    let basket = json!({"apiVersion": format!("{group}/v1"), "kind": "Basket", "metadata": {"name": "late"}});
    let mistake = json!({"apiVersion": "v1", "kind": "Basket", "metadata": {"name": "wrong"}});
    source.with([config_map("new", "v"), basket.clone()]).pruning([entry.clone()]);
    let diff = rig.diff(&source).await;
    assert_eq!(of(&diff, "late"), (DiffChange::Wait, Some(DiffReason::KindAwaited)));
    assert_eq!(of(&diff, "new"), (DiffChange::Create, None));
    assert_eq!(of(&diff, "old"), (DiffChange::Keep, Some(DiffReason::NotBeforeApplied)));
    assert_eq!(extent(&diff), Some(SyncExtent::AllButPrunes));
    source.with([config_map("new", "v"), mistake]).pruning([entry]);
    let diff = rig.diff(&source).await;
    assert_eq!(of(&diff, "wrong"), (DiffChange::Refused, Some(DiffReason::Invalid)));
    assert_eq!(extent(&diff), Some(SyncExtent::Nothing), "nobody can add a kind to this group");
}

#[tokio::test]
async fn a_field_that_cannot_change_or_is_anothers_is_refused_or_replaced_as_a_sync_would() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("difffield", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let fixed = |value: &str, annotations: Value| {
        let mut map = config_map("fixed", value);
        map["immutable"] = json!(true);
        map["metadata"]["annotations"] = annotations;
        map
    };
    source.with([fixed("one", json!({})), config_map("shared", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    source.with([fixed("two", json!({})), config_map("shared", "v")]);
    let diff = rig.diff(&source).await;
    assert_eq!(of(&diff, "fixed"), (DiffChange::Refused, Some(DiffReason::Immutable)));
    assert!(named(&diff, "fixed").message.as_ref().unwrap().contains("kasbah.dev/replace"), "{diff:?}");
    source.with([fixed("two", json!({"kasbah.dev/replace": "on-immutable"})), config_map("shared", "v")]);
    let diff = rig.diff(&source).await;
    assert_eq!(of(&diff, "fixed"), (DiffChange::Change, Some(DiffReason::Replaced)));
    assert_eq!(extent(&diff), None);
    // An annotation that tells the agent what to do is part of what Git says.
    source.with([fixed("one", json!({"kasbah.dev/prune": "disabled"})), config_map("shared", "v")]);
    let diff = rig.diff(&source).await;
    let added = Some(r#"{"kasbah.dev/prune":"disabled"}"#.to_owned());
    assert_eq!(named(&diff, "fixed").fields, [("metadata.annotations".to_owned(), None, added)], "{diff:?}");

    source.suspended = true;
    source.policies.conflicts = Conflicts::Refuse;
    source.with([fixed("one", json!({})), config_map("shared", "v")]);
    rig.put(&[&source]).await;
    let path = format!("{}?fieldManager=rival&force=true", map_path(&namespace, "shared"));
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"key": "w"}});
    let patch = Some(("application/apply-patch+yaml", &theirs));
    let answer = cluster.send(Method::PATCH, &path, patch).await.unwrap();
    assert!(answer.status.is_success(), "{answer:?}");
    let diff = rig.diff(&source).await;
    assert_eq!(of(&diff, "shared"), (DiffChange::Refused, Some(DiffReason::Conflict)));
    assert!(named(&diff, "shared").message.as_ref().unwrap().contains("rival"), "{diff:?}");
}

#[tokio::test]
async fn no_value_of_a_secret_is_shown_whatever_tool_kept_a_copy_of_it() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("diffsecret", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let value = "aHVudGVyMg==";
    let copy = json!({"apiVersion": "v1", "kind": "Secret", "data": {"old": value}}).to_string();
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s",
        "annotations": {"kapp.k14s.io/original": copy}}, "data": {"old": value}});
    let path = format!("/api/v1/namespaces/{namespace}/secrets?fieldManager=kapp");
    cluster.send(Method::POST, &path, Some(("application/json", &body))).await.unwrap();
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.adoption = Adoption::AdoptAll;
    source.suspended = true;
    source.with([json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"new": "hunter3"}})]);
    rig.put(&[&source]).await;
    let diff = rig.diff(&source).await;
    let secret = named(&diff, "s");
    assert_eq!((secret.change, secret.reason), (DiffChange::Change, Some(DiffReason::Adopted)));
    let paths: BTreeSet<&str> = secret.fields.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(paths, BTreeSet::from(["data.new", "data.old", "metadata.annotations"]));
    let shown = format!("{diff:?}");
    assert!(!shown.contains("aHVudGVy") && !shown.contains("hunter"), "{shown}");
}
