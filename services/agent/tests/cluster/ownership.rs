use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use events::configuration::{Adoption, Conflicts};
use events::delivery::SyncOutcome;
use events::object::GroupKind;
use events::observation::{Observed, Write};
use events::requests::diff::{DiffChange, DiffReason, ObjectHolder, SyncExtent};
use http::Method;
use serde_json::{Value, json};
use testkit::{ControlPlane, ControlPlaneOptions, eventually};
use world::World;
use world::clock::Clock;

use crate::rig::{DEADLINE, Rig, Source, cluster, config_map, map_path};

#[tokio::test]
async fn an_object_of_kubectl_is_adopted_and_a_field_deleted_in_git_disappears() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("adopt", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let existing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace},
        "data": {"key": "old", "gone": "x"}});
    cluster.kubectl_with_input(["apply", "-f", "-"], &existing.to_string()).await.unwrap();
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.adoption = Adoption::MustMatch;
    source.with([config_map("a", "new")]);
    let finished = rig.sync(&[&source]).await;
    assert!(finished.failures[0].message.contains("must_match"), "{finished:?}");

    source.policies.adoption = Adoption::AdoptIfNoInventory;
    source.with([config_map("a", "new")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    let live = cluster.get(&map_path(&namespace, "a")).await.unwrap();
    assert_eq!(live["data"], json!({"key": "new"}));
    assert_eq!(live["metadata"]["annotations"].get("kubectl.kubernetes.io/last-applied-configuration"), None);
    assert!(rig.owned()["a"].adopted);
    let taken = |one: &Observed| match one {
        Observed::ObjectApplied { taken_over, .. } if !taken_over.is_empty() => Some(taken_over.clone()),
        _ => None,
    };
    let (taken, _) = rig.process.wait(0, "taken fields", taken).await;
    assert!(
        taken.iter().any(|field| field.path == "data.key" && field.manager == "kubectl-client-side-apply"),
        "{taken:?}"
    );

    // Adopted: never pruned, also after a restart, unless that is configured.
    rig.restart().await;
    let stated = rig.sync(&[&source]).await;
    assert_eq!(stated.outcome, SyncOutcome::Succeeded, "{stated:?}");
    let entry = rig.prune_entry("a");
    source.with([config_map("b", "v")]).pruning([entry.clone()]);
    rig.sync(&[&source]).await;
    assert!(cluster.exists(&map_path(&namespace, "a")).await.unwrap());
    source.with([config_map("b", "v")]).pruning([entry]);
    source.policies.prune_adopted = true;
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    assert!(!cluster.exists(&map_path(&namespace, "a")).await.unwrap());
}

#[tokio::test]
async fn another_agents_object_is_left_alone_unless_all_may_be_adopted() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("foreign", false).await.unwrap();
    let mut first = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&first, "shop", &namespace);
    source.with([config_map("a", "first")]);
    assert_eq!(first.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let mut second = Rig::start(&cluster, &namespace).await;
    let mut other = Source::new(&second, "shop", &namespace);
    other.with([config_map("a", "second")]);
    let finished = second.sync(&[&other]).await;
    assert!(finished.failures[0].message.contains("belongs to agent"), "{finished:?}");
    let diff = second.diff(&other).await;
    let refused = &diff.objects[0];
    assert_eq!((refused.change, refused.reason), (DiffChange::Refused, Some(DiffReason::AdoptionRefused)));
    assert!(refused.message.as_ref().unwrap().contains(&first.agent.to_string()), "{diff:?}");
    let of_first = |holder: &ObjectHolder| {
        matches!(holder, ObjectHolder::Agent { agent, source: id, .. }
        if *agent == first.agent.to_string() && *id == source.id.to_string())
    };
    assert!(refused.holder.as_ref().is_some_and(of_first), "{diff:?}");
    assert_eq!(cluster.get(&map_path(&namespace, "a")).await.unwrap()["data"]["key"], "first");
    first.process.die();
    other.policies.adoption = Adoption::AdoptAll;
    other.with([config_map("a", "second")]);
    assert_eq!(second.sync(&[&other]).await.outcome, SyncOutcome::Succeeded);
    assert!(second.owned()["a"].adopted);
}

#[tokio::test]
async fn conflicts_are_taken_over_with_their_manager_or_stop_the_sync() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("conflict", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let path = format!("{}?fieldManager=operator", map_path(&namespace, "a"));
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": "theirs"}});
    let answer =
        cluster.send(Method::PATCH, &path, Some(("application/apply-patch+yaml", &body))).await.unwrap();
    assert!(answer.status.is_success());
    source.policies.conflicts = Conflicts::Refuse;
    source.with([config_map("a", "ours")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    assert!(finished.failures[0].message.contains("operator"), "{finished:?}");
    source.policies.conflicts = Conflicts::Force;
    source.with([config_map("a", "ours")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let taken = |one: &Observed| match one {
        Observed::ObjectApplied { taken_over, .. } if !taken_over.is_empty() => Some(taken_over[0].clone()),
        _ => None,
    };
    let (taken, _) = rig.process.wait(0, "taken field", taken).await;
    assert_eq!((taken.path.as_str(), taken.manager.as_str()), ("data.key", "operator"));
}

#[tokio::test]
async fn moving_a_file_between_sources_deletes_nothing() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("move", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut from = Source::new(&rig, "from", &namespace);
    let mut to = Source::new(&rig, "to", &namespace);
    from.with([config_map("moves", "v"), config_map("stays", "v")]);
    to.with([config_map("there", "v")]);
    rig.sync(&[&from, &to]).await;
    rig.finished(0, &to).await;
    let before = cluster.get(&map_path(&namespace, "moves")).await.unwrap()["metadata"]["uid"].clone();
    // In both at once it is an error of the newcomer.
    to.with([config_map("there", "v"), config_map("moves", "v")]);
    let finished = rig.sync(&[&to, &from]).await;
    assert!(
        finished.failures[0].message.contains("source from, another source of this agent"),
        "{finished:?}"
    );
    assert_eq!(
        (finished.counts.unchanged, finished.counts.failed),
        (1, 1),
        "nothing else fails: {finished:?}"
    );
    let entry = rig.prune_entry("moves");
    from.with([config_map("stays", "v")]).pruning([entry]);
    to.with([config_map("there", "v"), config_map("moves", "v")]);
    let finished = rig.sync(&[&to, &from]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    rig.finished(0, &from).await;
    let live = cluster.get(&map_path(&namespace, "moves")).await.unwrap();
    assert_eq!(live["metadata"]["uid"], before);
    assert_eq!(live["metadata"]["labels"]["kasbah.dev/source"], to.id.to_string());
    assert!(!rig.owned()["moves"].adopted);
}

#[tokio::test]
async fn what_another_source_holds_is_left_out_until_the_server_hands_it_over() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("held", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut from = Source::new(&rig, "from", &namespace);
    let mut to = Source::new(&rig, "to", &namespace);
    from.with([config_map("shared", "from"), config_map("stays", "v")]);
    assert_eq!(rig.sync(&[&from]).await.outcome, SyncOutcome::Succeeded);
    let before = cluster.get(&map_path(&namespace, "shared")).await.unwrap()["metadata"].clone();

    to.with([config_map("shared", "to"), config_map("there", "v")]).wanting(&["shared"], &from);
    let finished = rig.sync(&[&to, &from]).await;
    assert_eq!(
        (finished.outcome, finished.counts.created, finished.counts.failed),
        (SyncOutcome::Failed, 1, 1)
    );
    let failure = &finished.failures[0];
    assert!(failure.message.contains("source from of this agent holds it"), "{finished:?}");
    assert_eq!((failure.file.as_str(), failure.identity.name.as_str()), ("0.yaml", "shared"));
    let retry = |one: &Observed| match one {
        Observed::ObjectFailed { source, retry_at, .. } if *source == to.id => Some(*retry_at),
        _ => None,
    };
    assert_eq!(rig.process.wait(0, "failure", retry).await.0, None, "only another state changes it");
    assert!(cluster.exists(&map_path(&namespace, "there")).await.unwrap());
    let diff = rig.diff(&to).await;
    assert_eq!((diff.objects.len(), diff.objects[0].change), (1, DiffChange::Refused), "{diff:?}");
    let refused = &diff.objects[0];
    assert!(refused.message.as_ref().unwrap().contains("source from"), "{diff:?}");
    assert_eq!((refused.file.as_str(), refused.line), ("0.yaml", 7), "{diff:?}");
    let holder = ObjectHolder::Source { source: from.id.to_string(), name: "from".to_owned() };
    assert_eq!((refused.reason, refused.holder.as_ref()), (Some(DiffReason::HeldBySource), Some(&holder)));
    assert_eq!(diff.stopped, None, "it keeps nothing else back");

    // The holder drops it: it stays, whoever is told first, and is the other one's from then on.
    let entry = rig.prune_entry("shared");
    from.with([config_map("stays", "v")]).pruning([entry]);
    assert_eq!(rig.sync(&[&from, &to]).await.outcome, SyncOutcome::Succeeded);
    to.with([config_map("shared", "to"), config_map("there", "v")]);
    assert_eq!(rig.sync(&[&to, &from]).await.outcome, SyncOutcome::Succeeded);
    let live = cluster.get(&map_path(&namespace, "shared")).await.unwrap();
    assert_eq!((&live["metadata"]["uid"], &live["data"]["key"]), (&before["uid"], &json!("to")));
    assert_eq!(live["metadata"]["labels"]["kasbah.dev/source"], to.id.to_string());
}

#[tokio::test]
async fn what_a_source_had_before_is_not_believed_to_be_there_when_it_comes_back() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("joined", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut whole = Source::new(&rig, "whole", &namespace);
    let mut part = Source::new(&rig, "part", &namespace);
    whole.with([config_map("stays", "v"), config_map("moves", "v")]);
    assert_eq!(rig.sync(&[&whole]).await.outcome, SyncOutcome::Succeeded);
    whole.with([config_map("stays", "v")]);
    part.with([config_map("moves", "v")]);
    assert_eq!(rig.sync(&[&part, &whole]).await.outcome, SyncOutcome::Succeeded);
    // It leaves, and what it had goes with it.
    let entry = rig.prune_entry("moves");
    part.with([]).pruning([entry]);
    part.removed = true;
    assert_eq!(rig.sync(&[&part, &whole]).await.counts.pruned, 1);
    whole.with([config_map("stays", "v"), config_map("moves", "v")]);
    let finished = rig.sync(&[&whole, &part]).await;
    assert_eq!((finished.counts.created, finished.counts.unchanged), (1, 1), "{finished:?}");
    assert!(cluster.exists(&map_path(&namespace, "moves")).await.unwrap());
}

#[tokio::test]
async fn an_agent_that_is_registered_again_takes_over_what_its_name_had() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("again", false).await.unwrap();
    let mut first = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&first, "shop", &namespace);
    source.with([config_map("a", "v"), config_map("left-git", "v")]);
    assert_eq!(first.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let before = cluster.get(&map_path(&namespace, "a")).await.unwrap();
    first.process.die();

    let mut second = Rig::start(&cluster, &namespace).await;
    second.organization = first.organization;
    second.replaces = vec![first.agent];
    let mut source = Source::new(&second, "shop", &namespace);
    source.policies.adoption = Adoption::MustMatch;
    source.with([config_map("a", "v")]);
    let finished = second.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.changed), (SyncOutcome::Succeeded, 1), "{finished:?}");
    let mut after = cluster.get(&map_path(&namespace, "a")).await.unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"]["labels"]["kasbah.dev/source"], source.id.to_string());
    assert!(!second.owned()["a"].adopted);
    for (place, key) in [("labels", "kasbah.dev/source"), ("annotations", "kasbah.dev/owner")] {
        after["metadata"][place][key] = before["metadata"][place][key].clone();
    }
    for key in ["resourceVersion", "managedFields"] {
        after["metadata"][key] = before["metadata"][key].clone();
    }
    assert_eq!(after, before, "nothing else was written");
    // What left Git meanwhile is in the inventory, and goes.
    assert_eq!(second.owned()["left-git"].source, source.id);
    let entry = second.prune_entry("left-git");
    source.with([config_map("a", "v")]).pruning([entry]);
    assert_eq!(second.sync(&[&source]).await.counts.pruned, 1);
    assert!(!cluster.exists(&map_path(&namespace, "left-git")).await.unwrap());
}

#[tokio::test]
async fn what_its_owner_gives_up_is_taken_at_once() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("give-up", false).await.unwrap();
    let mut rig = Rig::start_in(without_long_waits(), cluster.kubeconfig(), &namespace).await;
    let mut from = Source::new(&rig, "from", &namespace);
    let mut to = Source::new(&rig, "to", &namespace);
    from.with([config_map("moves", "v"), config_map("stays", "v")]);
    assert_eq!(rig.sync(&[&from]).await.outcome, SyncOutcome::Succeeded);
    to.with([config_map("moves", "v")]);
    assert_eq!(rig.sync(&[&to, &from]).await.outcome, SyncOutcome::Failed);
    let told = rig.process.observed().len();
    let entry = rig.prune_entry("moves");
    from.with([config_map("stays", "v")]).pruning([entry]);
    assert_eq!(rig.sync(&[&from, &to]).await.outcome, SyncOutcome::Succeeded);
    let finished = rig.finished(told, &to).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    let live = cluster.get(&map_path(&namespace, "moves")).await.unwrap();
    assert_eq!(live["metadata"]["labels"]["kasbah.dev/source"], to.id.to_string());
}

/// A world in which no wait of more than a moment ends, so that nothing is tried again by itself.
fn without_long_waits() -> World {
    struct Impatient(Arc<dyn Clock>);

    #[async_trait]
    impl Clock for Impatient {
        fn now_millis(&self) -> i64 {
            self.0.now_millis()
        }

        fn monotonic(&self) -> Duration {
            self.0.monotonic()
        }

        async fn sleep(&self, duration: Duration) {
            if duration > Duration::from_secs(7) {
                std::future::pending::<()>().await;
            }
            self.0.sleep(duration).await;
        }
    }

    let world = World::real();
    World { clock: Arc::new(Impatient(Arc::clone(&world.clock))), ..world }
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_stops_no_other() {
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("broken", false).await.unwrap();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.broken.example"},
        "spec": {"group": "broken.example", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "nowhere", "name": "nobody"}}}}}});
    plane
        .create_object("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .await
        .unwrap();
    let things = format!("/apis/broken.example/v1/namespaces/{namespace}/things");
    let thing = json!({"apiVersion": "broken.example/v1", "kind": "Thing", "metadata": {"name": "stored"}});
    eventually(DEADLINE, || async { plane.create_object(&things, &thing).await.map(drop) }).await;
    let refused = plane.get("/apis/broken.example/v2/things").await.unwrap_err();
    assert!(format!("{refused:#}").contains("conversion webhook"), "{refused:#}");

    let mut rig = Rig::start(&plane, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let unlisted = |one: &Observed| match one {
        Observed::InventoryStated { unlisted, last: true, .. } => Some(unlisted.clone()),
        _ => None,
    };
    let (unlisted, _) = rig.process.wait(0, "inventory", unlisted).await;
    assert_eq!(unlisted, [GroupKind { group: "broken.example".into(), kind: "Thing".into() }]);
}

#[tokio::test]
async fn what_is_created_while_the_inventory_is_stated_again_is_not_lost() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("restated", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let mut objects = vec![config_map("first", "v")];
    source.with(objects.clone());
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    rig.process.stop_reading().await;
    let object = rig.owned()["first"].clone();
    for _ in 0..=20_000 {
        let object = object.clone();
        rig.process.outbox.report(Observed::ObjectApplied {
            sync: None,
            object,
            write: Write::Changed,
            taken_over: Vec::new(),
        });
    }
    let told = rig.process.observed().len();
    rig.process.read_on();
    let stated = |rig: &Rig| {
        let told = &rig.process.observed()[told..];
        told.iter().any(|one| matches!(one, Observed::InventoryStated { last: true, .. }))
    };
    // As many as it takes until one falls into the statement.
    while !stated(&rig) {
        objects.push(config_map(&format!("m{}", objects.len()), "v"));
        source.with(objects.clone());
        assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    }
    assert_eq!(rig.owned().len(), objects.len());
}

#[tokio::test]
async fn what_another_tool_wrote_and_git_lacks_disappears_and_defaults_stay() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("tools", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    for (manager, content_type) in [
        ("helm", "application/json"),
        ("argocd-controller", "application/apply-patch+yaml"),
        ("kustomize-controller", "application/apply-patch+yaml"),
        ("kapp-server-side-apply", "application/apply-patch+yaml"),
        ("kasbah", "application/apply-patch+yaml"),
    ] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": manager},
            "data": {"key": "v", "gone": "x", "later": "y"}});
        let (method, path) = if content_type == "application/json" {
            (Method::POST, format!("/api/v1/namespaces/{namespace}/configmaps?fieldManager={manager}"))
        } else {
            (Method::PATCH, format!("{}?fieldManager={manager}", map_path(&namespace, manager)))
        };
        let answer = cluster.send(method, &path, Some((content_type, &body))).await.unwrap();
        assert!(answer.status.is_success(), "{answer:?}");
        let mut source = Source::new(&rig, manager, &namespace);
        let manifest = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": manager}, "data": data});
        source.with([manifest(json!({"key": "v", "later": "y"}))]);
        let finished = rig.sync(&[&source]).await;
        assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
        let data = cluster.get(&map_path(&namespace, manager)).await.unwrap()["data"].clone();
        assert_eq!(data, json!({"key": "v", "later": "y"}), "{manager}");
        source.with([manifest(json!({"key": "v"}))]);
        rig.sync(&[&source]).await;
        let data = cluster.get(&map_path(&namespace, manager)).await.unwrap()["data"].clone();
        assert_eq!(data, json!({"key": "v"}), "{manager}");
    }
}

#[tokio::test]
async fn what_a_tool_wrote_in_an_older_version_of_the_api_disappears_too() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("versions", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let path = |version: &str| {
        format!("/apis/autoscaling/{version}/namespaces/{namespace}/horizontalpodautoscalers")
    };
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let body = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "labels": {"gone": "x", "stays": "y"}},
        "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3, "targetCPUUtilizationPercentage": 80}});
    let created = format!("{}?fieldManager=helm", path("v1"));
    let answer = cluster.send(Method::POST, &created, Some(("application/json", &body))).await.unwrap();
    assert!(answer.status.is_success(), "{answer:?}");
    let mut source = Source::new(&rig, "shop", &namespace);
    let metrics = json!([{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}}}]);
    source.with([json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "labels": {"stays": "y"}},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": metrics}})]);
    source.policies.health_timeout_seconds = 1;
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.counts.changed, finished.counts.failed), (1, 0), "{finished:?}");
    let live = cluster.get(&format!("{}/web", path("v2"))).await.unwrap();
    assert_eq!(live["metadata"]["labels"].get("gone"), None, "{live:#}");
    assert_eq!((&live["spec"]["metrics"], &live["spec"]["minReplicas"]), (&metrics, &json!(1)), "{live:#}");
}

#[tokio::test]
async fn an_object_of_a_helm_release_is_adopted_only_when_all_may_be() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("release", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a",
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": namespace}}, "data": {"key": "old"}});
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?fieldManager=helm");
    cluster.send(Method::POST, &path, Some(("application/json", &body))).await.unwrap();
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "new")]);
    let finished = rig.sync(&[&source]).await;
    assert!(finished.failures[0].message.contains("managed by the Helm release"), "{finished:?}");
    let diff = rig.diff(&source).await;
    let refused = &diff.objects[0];
    let words = refused.message.clone().unwrap();
    assert!(words.contains("managed by the Helm release") && words.contains("adopt_all"), "{words}");
    let holder = ObjectHolder::Tool { name: format!("the Helm release {namespace}/web") };
    assert_eq!((refused.reason, refused.holder.as_ref()), (Some(DiffReason::AdoptionRefused), Some(&holder)));
    assert_eq!(diff.stopped.map(|stop| stop.extent), Some(SyncExtent::Nothing));
    assert_eq!(cluster.get(&map_path(&namespace, "a")).await.unwrap()["data"]["key"], "old");
    let mut annotated = config_map("a", "new");
    annotated["metadata"]["annotations"] = json!({"kasbah.dev/adopt": "adopt_all"});
    source.with([annotated]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let live = cluster.get(&map_path(&namespace, "a")).await.unwrap();
    assert_eq!(live["data"]["key"], "new");
    assert_eq!(
        live["metadata"]["annotations"].get("meta.helm.sh/release-name"),
        None,
        "Helm's marks are gone"
    );
}
