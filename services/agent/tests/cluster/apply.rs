use events::configuration::KindPattern;
use events::delivery::SyncOutcome;
use events::observation::{Observed, Write};
use events::requests::diff::DiffChange;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::rig::{Rig, Source, cluster, config_map, map_path, version};

#[tokio::test]
async fn a_bundle_is_applied_and_a_change_touches_one_object() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("apply", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let maps = |changed: &str| {
        (0..40).map(|n| config_map(&format!("m{n}"), if n == 7 { changed } else { "v" })).collect::<Vec<_>>()
    };
    source.with(maps("one"));
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    assert_eq!((finished.counts.created, finished.counts.unchanged), (40, 0));

    let live = cluster.get(&map_path(&namespace, "m7")).await.unwrap();
    assert_eq!(live["data"]["key"], "one");
    assert_eq!(live["metadata"]["labels"]["kasbah.dev/source"], source.id.to_string());
    let managers: Vec<&str> = live["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers, ["kasbah"]);
    let other = version(&cluster, &map_path(&namespace, "m8")).await;

    source.with(maps("two"));
    let finished = rig.sync(&[&source]).await;
    assert_eq!(
        (finished.counts.changed, finished.counts.created, finished.counts.unchanged),
        (1, 0, 39),
        "{finished:?}"
    );
    assert_eq!(cluster.get(&map_path(&namespace, "m7")).await.unwrap()["data"]["key"], "two");
    assert_eq!(version(&cluster, &map_path(&namespace, "m8")).await, other);

    // The same content under a new commit: nothing to do, and the list is complete in the end.
    source.with(maps("two"));
    let finished = rig.sync(&[&source]).await;
    assert_eq!(
        (finished.counts.changed, finished.counts.created, finished.counts.unchanged),
        (0, 0, 40),
        "{finished:?}"
    );
    assert_eq!(rig.owned().len(), 40);
}

#[tokio::test]
async fn a_refused_object_keeps_the_whole_set_back_and_names_its_place() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("refused", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let mut broken = config_map("broken", "v");
    broken["dta"] = json!({"typo": "x"});
    source.with([config_map("good", "v"), broken]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    let failure = &finished.failures[0];
    assert_eq!(
        (failure.file.as_str(), failure.line, failure.identity.name.as_str()),
        ("1.yaml", 7, "broken")
    );
    assert!(failure.message.contains("dta"), "{}", failure.message);
    assert!(!cluster.exists(&map_path(&namespace, "good")).await.unwrap());
    let retry = |one: &Observed| match one {
        Observed::ObjectFailed { retry_at, .. } => Some(retry_at.is_some()),
        _ => None,
    };
    assert!(rig.process.wait(0, "failure", retry).await.0);

    source.with([config_map("good", "v"), config_map("broken", "v")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    assert!(cluster.exists(&map_path(&namespace, "good")).await.unwrap());
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_the_manifests_fault_and_told_at_once() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("typed", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let labels = json!({"app": "web"});
    source.with([json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": "many", "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}})]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    assert!(finished.failures[0].message.contains(".spec.replicas: expected numeric"), "{finished:?}");
    assert_eq!(
        rig.process.counts.api_requests.with(["dry_run", "refused"]).get(),
        1,
        "it is not tried again as if the API server were ill"
    );
}

#[tokio::test]
async fn namespaces_definitions_and_what_needs_them_come_in_one_set() {
    let cluster = cluster().await;
    let home = cluster.namespace("found", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &home).await;
    let mut source = Source::new(&rig, "shop", &home);
    let (inner, group) = (format!("{home}-inner"), format!("g{}.example.com", rig.agent.0.simple()));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("carts.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "carts", "singular": "cart", "kind": "Cart", "listKind": "CartList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}});
    let cart = json!({"apiVersion": format!("{group}/v1"), "kind": "Cart", "metadata": {"name": "a", "namespace": inner}, "spec": {"size": 3}});
    let mut map = config_map("inside", "v");
    map["metadata"]["namespace"] = json!(inner);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": inner},
        "spec": {"serviceAccountName": "runner", "containers": [{"name": "web", "image": "web:1"}]}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner", "namespace": inner}});
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inner}});
    source.with([cart.clone(), pod, map, definition, account, made]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    assert_eq!(finished.counts.created, 6);
    assert_eq!(
        cluster.get(&format!("/apis/{group}/v1/namespaces/{inner}/carts/a")).await.unwrap()["spec"]["size"],
        3
    );

    let mut unknown = cart;
    unknown["kind"] = json!("Basket");
    unknown["apiVersion"] = json!("v1");
    source.with([unknown]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed, "nobody can add a kind to this group");
    assert!(finished.failures[0].message.contains("no matches for kind \"Basket\""), "{finished:?}");
}

#[tokio::test]
async fn an_immutable_field_fails_by_name_and_is_replaced_by_opt_in() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("immutable", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let map = |value: &str| {
        let mut map = config_map("a", value);
        map["immutable"] = json!(true);
        map
    };
    source.with([map("one")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let before = cluster.get(&map_path(&namespace, "a")).await.unwrap()["metadata"]["uid"].clone();
    source.with([map("two")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    let message = &finished.failures[0].message;
    assert!(
        message.starts_with("immutable field data") && message.contains("kasbah.dev/replace"),
        "{message}"
    );

    let mut replaced = map("two");
    replaced["metadata"]["annotations"] = json!({"kasbah.dev/replace": "on-immutable"});
    source.with([replaced]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    let live = cluster.get(&map_path(&namespace, "a")).await.unwrap();
    assert_eq!(live["data"]["key"], "two");
    assert_ne!(live["metadata"]["uid"], before);
    let replaced =
        |one: &Observed| matches!(one, Observed::ObjectApplied { write: Write::Replaced, .. }).then_some(());
    rig.process.wait(0, "replacement", replaced).await;
}

#[tokio::test]
async fn kinds_that_the_configuration_forbids_are_refused() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("rules", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    rig.resources.exclude = vec![KindPattern { group: String::new(), kind: "Secret".into() }];
    let mut source = Source::new(&rig, "shop", &namespace);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    source.with([config_map("a", "v"), secret.clone()]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    assert!(
        finished.failures[0].message.contains("configuration does not let it manage kind Secret"),
        "{finished:?}"
    );
    assert!(!cluster.exists(&map_path(&namespace, "a")).await.unwrap());
    // A refusal that would quote a value does not.
    rig.resources.exclude.clear();
    source.with([json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "n"}, "stringData": {"pin": 918_273}})]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    assert!(!format!("{:?}", rig.process.observed()).contains("918273"), "{finished:?}");
    // Allowed, it is applied, and its value is reported nowhere.
    rig.resources.exclude.clear();
    source.with([secret]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let told = format!("{:?}", rig.process.observed());
    assert!(!told.contains("hunter2") && !told.contains("aHVudGVyMg"), "{told}");
    assert_eq!(rig.owned()["s"].digest, None);
}

#[tokio::test]
async fn a_diff_says_what_would_change_and_shows_no_secret() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("diff", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": value}});
    source.with([config_map("same", "v"), config_map("other", "one"), secret("hunter2")]);
    rig.sync(&[&source]).await;
    let gone = rig.prune_entry("other");
    source.with([config_map("same", "v"), config_map("new", "v"), secret("hunter3")]).pruning([gone]);
    let diff = rig.diff(&source).await;
    let changes: Vec<(&str, DiffChange)> =
        diff.objects.iter().map(|object| (object.identity.name.as_str(), object.change)).collect();
    assert_eq!(
        changes,
        [("new", DiffChange::Create), ("s", DiffChange::Change), ("other", DiffChange::Prune)]
    );
    assert_eq!(diff.unchanged, 1);
    let secret = &diff.objects[1];
    assert_eq!(secret.fields.len(), 1, "{secret:?}");
    assert_eq!(secret.fields[0].0, "data.p");
    assert!(!format!("{diff:?}").contains("aHVudGVy"), "{diff:?}");
    assert!(!cluster.exists(&map_path(&namespace, "new")).await.unwrap(), "nothing was applied");
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    assert!(cluster.exists(&map_path(&namespace, "new")).await.unwrap());
    assert!(!cluster.exists(&map_path(&namespace, "other")).await.unwrap());
    let diff = rig.diff(&source).await;
    assert_eq!((diff.objects.len(), diff.unchanged), (0, 3), "what is gone is not to be pruned: {diff:?}");
}

#[tokio::test]
async fn the_debug_page_is_json_without_secrets() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("debug", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v")]);
    rig.sync(&[&source]).await;
    let (status, body) = rig.process.ask(Method::GET, "/v1/debug/state", Vec::new()).await;
    let state: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status, &state["holds_lease"], &state["sources"][0]["objects"]),
        (StatusCode::OK, &json!(true), &json!(1))
    );
    let (status, _) = rig.process.ask(Method::GET, "/v1/nothing", Vec::new()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (state, _) = rig.state(&[&source]);
    let older = events::desired::DesiredState { revision: 0, ..state };
    let (status, body) = rig.process.ask(Method::PUT, "/v1/desired", events::encode(&older).unwrap()).await;
    let stale: tunnel::wire::StaleRevision = events::decode(&body).unwrap();
    assert_eq!((status, stale.revision), (StatusCode::CONFLICT, 1));
}
