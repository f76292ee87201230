//! Fields that cannot change, whatever the kind; and objects whose API has a new version.

use std::collections::BTreeMap;

use events::delivery::SyncOutcome;
use events::observation::{Observed, Write};
use events::requests::diff::DiffChange;
use serde_json::{Value, json};
use testkit::{Cluster, eventually};

use crate::cases;
use crate::rig::{DEADLINE, Rig, Source, cluster, config_map, map_path, version};

async fn uid(cluster: &Cluster, path: &str) -> String {
    cluster.get(path).await.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn replaced(rig: &Rig, from: usize) -> Vec<String> {
    let name = |one: &Observed| match one {
        Observed::ObjectApplied { object, write: Write::Replaced, .. } => Some(object.identity.name.clone()),
        _ => None,
    };
    rig.process.observed().iter().skip(from).filter_map(name).collect()
}

fn annotated(mut object: Value) -> Value {
    object["metadata"]["annotations"] = json!({"kasbah.dev/replace": "on-immutable"});
    object
}

#[tokio::test]
#[allow(clippy::cognitive_complexity, clippy::too_many_lines, reason = "one commit after the other")]
async fn case_07_changes_a_pod_in_place_refuses_or_replaces() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case07", true).await.unwrap();
    let beside = cluster.namespace("case07k", true).await.unwrap();
    let commits = [1, 2, 3, 4, 5].map(|number| cases::commit("07", number, &namespace));
    let [Some(first), Some(second), Some(third), Some(fourth), Some(fifth)] = commits else { return };
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let path = format!("/api/v1/namespaces/{namespace}/pods/lookout");
    source.with(first);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let first_uid = uid(&cluster, &path).await;
    rig.restart().await;
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.unchanged), (SyncOutcome::Succeeded, 2), "{finished:?}");
    let told = |one: &Observed| matches!(one, Observed::ObjectApplied { .. } | Observed::DriftSeen { .. });
    assert!(!rig.process.observed().iter().any(told), "{:?}", rig.process.observed());

    for (commit, path_in_object, expected) in [
        (second, "/metadata/labels/shift", "night"),
        (third, "/spec/containers/0/image", "docker.io/library/busybox:1.36"),
    ] {
        source.with(commit);
        assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
        let live = cluster.get(&path).await.unwrap();
        assert_eq!(live.pointer(path_in_object), Some(&json!(expected)));
        assert_eq!(live["metadata"]["uid"], first_uid);
    }

    source.with(fourth.clone());
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    let failure = &finished.failures[0];
    let hint = "immutable field spec (the annotation kasbah.dev/replace: on-immutable lets the agent delete and create it again): ";
    assert!(failure.message.starts_with(hint), "{}", failure.message);
    assert!(failure.message.len() < 600 && !failure.message.contains('\n'), "{}", failure.message);
    assert_eq!((failure.file.as_str(), failure.line), ("1.yaml", 7));
    assert_eq!(uid(&cluster, &path).await, first_uid);
    let mut by_kubectl = Vec::new();
    for number in [3, 4] {
        let pods = cases::commit("07", number, &beside).unwrap();
        let pod = pods.into_iter().find(|object| object["kind"] == "Pod").unwrap();
        let apply = ["apply", "--server-side", "-n", &beside, "-f", "-"];
        by_kubectl.push(cluster.kubectl_with_input(apply, &pod.to_string()).await.is_ok());
    }
    assert_eq!(by_kubectl, [true, false], "kubectl is refused, too");

    let from = rig.process.observed().len();
    source.with(fifth);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    let live = cluster.get(&path).await.unwrap();
    assert_eq!(live["spec"]["containers"][0]["env"][0]["value"], "west");
    assert_ne!(live["metadata"]["uid"], first_uid);
    assert_eq!(replaced(&rig, from), ["lookout"]);
}

/// Objects of built-in kinds, each with a change that its API server refuses: before and after.
#[allow(clippy::too_many_lines, reason = "a table")]
fn changes(prefix: &str) -> Vec<(Value, Value)> {
    let object = |api_version: &str, kind: &str, more: Value| {
        let name = format!("{prefix}-{}", kind.to_lowercase());
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    let template = |app: &str, image: &str| {
        json!({"metadata": {"labels": {"app": app, "more": "a"}}, "spec": {"terminationGracePeriodSeconds": 0,
            "restartPolicy": "Always", "containers": [{"name": "a", "image": image}]}})
    };
    let workload = |app: &str| json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"app": app}}, "template": template(app, "a:1")}});
    let job = |image: &str| {
        let mut template = template("a", image);
        template["spec"]["restartPolicy"] = json!("Never");
        json!({"spec": {"suspend": false, "template": template}})
    };
    let pod =
        |containers: Value| json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": containers}});
    let rules = |name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
    let quota = |scope: &str| json!({"spec": {"hard": {"pods": "100"}, "scopes": [scope]}});
    let claim = |mode: &str| json!({"spec": {"accessModes": [mode], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}});
    let daemons = |app: &str| {
        let mut set = workload(app);
        set["spec"].as_object_mut().unwrap().remove("replicas");
        set
    };
    let set = |service: &str| {
        let mut set = workload("a");
        set["spec"]["serviceName"] = json!(service);
        set
    };
    [
        (
            "v1",
            "Pod",
            pod(json!([{"name": "a", "image": "a:1"}])),
            pod(json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}])),
        ),
        ("v1", "Secret", json!({"type": "Opaque"}), json!({"type": "example.com/other"})),
        (
            "v1",
            "ConfigMap",
            json!({"immutable": true, "data": {"a": "1"}}),
            json!({"immutable": true, "data": {"a": "2"}}),
        ),
        ("v1", "ResourceQuota", quota("Terminating"), quota("NotTerminating")),
        ("v1", "PersistentVolumeClaim", claim("ReadWriteOnce"), claim("ReadWriteMany")),
        ("apps/v1", "Deployment", workload("a"), workload("b")),
        ("apps/v1", "DaemonSet", daemons("c"), daemons("d")),
        ("apps/v1", "StatefulSet", set("a"), set("b")),
        ("batch/v1", "Job", job("a:1"), job("a:2")),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", rules("a"), rules("b")),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", rules("a"), rules("b")),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1}), json!({"value": 2})),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            json!({"provisioner": "a.example.com"}),
            json!({"provisioner": "b.example.com"}),
        ),
        (
            "networking.k8s.io/v1",
            "IngressClass",
            json!({"spec": {"controller": "example.com/a"}}),
            json!({"spec": {"controller": "example.com/b"}}),
        ),
        ("node.k8s.io/v1", "RuntimeClass", json!({"handler": "a"}), json!({"handler": "b"})),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": []}),
            json!({"addressType": "IPv6", "endpoints": []}),
        ),
    ]
    .into_iter()
    .map(|(api_version, kind, before, after)| {
        (object(api_version, kind, before), object(api_version, kind, after))
    })
    .collect()
}

#[tokio::test]
async fn every_kind_whose_change_is_refused_can_be_replaced() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("replace", true).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.policies.health_timeout_seconds = 1;
    let (before, after): (Vec<Value>, Vec<Value>) = changes(&namespace).into_iter().unzip();
    source.with(before);
    let finished = rig.sync(&[&source]).await;
    assert_ne!(finished.outcome, SyncOutcome::Failed, "{finished:?}");
    source.with(after.clone());
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Failed);
    let refusals: BTreeMap<String, String> = rig
        .process
        .observed()
        .into_iter()
        .filter_map(|one| match one {
            Observed::ObjectFailed { failure, .. } => Some((failure.identity.kind, failure.message)),
            _ => None,
        })
        .collect();
    assert_eq!(refusals.len(), after.len(), "{refusals:#?}");
    for (kind, message) in &refusals {
        let is_hinted =
            message.starts_with("immutable field ") && message.contains("(the annotation kasbah.dev/replace");
        assert!(is_hinted, "{kind}: {message}");
    }
    let from = rig.process.observed().len();
    source.with(after.iter().cloned().map(annotated));
    let finished = rig.sync(&[&source]).await;
    assert_ne!(finished.outcome, SyncOutcome::Failed, "{finished:?}");
    assert_eq!(replaced(&rig, from).len(), after.len());
}

fn definition(group: &str, versions: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("gates.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "versions": versions,
            "names": {"plural": "gates", "singular": "gate", "kind": "Gate", "listKind": "GateList"}}})
}

#[tokio::test]
async fn a_rule_of_somebodys_own_words_is_a_field_that_cannot_change_but_a_wrong_value_is_not() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("rule", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let group = format!("g{}.example.com", rig.agent.0.simple());
    let port = json!({"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "a port is where it is"}]});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"port": port}}}}});
    let definition =
        definition(&group, json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]));
    let gate = |port: &str| {
        annotated(
            json!({"apiVersion": format!("{group}/v1"), "kind": "Gate", "metadata": {"name": "north"}, "spec": {"port": port}}),
        )
    };
    let path = format!("/apis/{group}/v1/namespaces/{namespace}/gates/north");
    source.with([definition.clone(), gate("ferries")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let first = uid(&cluster, &path).await;
    source.with([definition.clone(), gate("a name that is far too long for it")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed, "{finished:?}");
    assert_eq!(uid(&cluster, &path).await, first, "what could not be created is not deleted for it");
    source.with([definition, gate("trains")]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    assert_ne!(uid(&cluster, &path).await, first);
}

/// `commits`: a custom resource; the same in a newer version that has one more field; the older version is gone; a label changes.
async fn moves_to_a_new_version(
    cluster: &Cluster,
    namespace: &str,
    group: &str,
    commits: [Vec<Value>; 4],
    touched: bool,
) {
    let mut rig = Rig::start(cluster, namespace).await;
    let mut source = Source::new(&rig, "shop", namespace);
    let path = format!("/apis/{group}/v1beta2/namespaces/{namespace}/gates/north");
    let [first, second, third, fourth] = commits;
    source.with(first);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    if touched {
        let old = format!("gates.v1beta1.{group}");
        cluster
            .kubectl(["label", &old, "north", "-n", namespace, "by=hand", "--field-manager=somebody"])
            .await
            .unwrap();
        rig.restart().await;
        assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    }
    source.with(second.clone());
    let diff = rig.diff(&source).await;
    assert!(diff.objects.iter().all(|object| object.change != DiffChange::Refused), "{diff:?}");
    let before = version(cluster, &path).await;
    let _looked = rig.diff(&source).await;
    assert_eq!(version(cluster, &path).await, before, "who looks changes nothing");
    for (round, commit) in [second, third, fourth].into_iter().enumerate() {
        source.with(commit);
        let finished = rig.sync(&[&source]).await;
        assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{round}: {finished:?}");
        assert_eq!(cluster.get(&path).await.unwrap()["spec"]["admits"], "nobody");
    }
    let live = cluster.get(&path).await.unwrap();
    assert_eq!(live["metadata"]["labels"]["shift"], "late");
    if touched {
        assert_eq!(live["metadata"]["labels"]["by"], "hand");
    }
}

#[tokio::test]
async fn a_custom_resource_moves_to_a_new_version_of_its_api() {
    let cluster = cluster().await;
    for touched in [false, true] {
        let namespace = cluster.namespace("version", false).await.unwrap();
        let group = format!("harbour.{namespace}.example");
        let fields = |more: Value| {
            let mut properties = json!({"port": {"type": "string"}});
            properties.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}})
        };
        let old = json!({"name": "v1beta1", "served": true, "storage": false, "schema": fields(json!({}))});
        let new = json!({"name": "v1beta2", "served": true, "storage": true,
            "schema": fields(json!({"admits": {"type": "string", "default": "nobody"}}))});
        let gate = |version: &str, shift: &str| {
            json!({"apiVersion": format!("{group}/{version}"), "kind": "Gate",
                "metadata": {"name": "north", "labels": {"shift": shift}}, "spec": {"port": "ferries"}})
        };
        let both = definition(&group, json!([old, new]));
        let newest = definition(&group, json!([new]));
        let commits = [
            vec![both.clone(), gate("v1beta1", "early")],
            vec![both, gate("v1beta2", "early")],
            vec![newest.clone(), gate("v1beta2", "early")],
            vec![newest, gate("v1beta2", "late")],
        ];
        moves_to_a_new_version(&cluster, &namespace, &group, commits, touched).await;
    }
}

/// The same commits by kubectl, definitions first; how far each got.
async fn moved_by_kubectl(
    cluster: &Cluster,
    namespace: &str,
    commits: [Vec<Value>; 4],
    touched: bool,
) -> Vec<bool> {
    let apply = ["apply", "--server-side", "--field-manager=compare", "-n", namespace, "-f", "-"];
    let group = format!("harbour.{namespace}.example");
    let mut went = Vec::new();
    for (number, commit) in commits.into_iter().enumerate() {
        let (gates, others): (Vec<Value>, Vec<Value>) =
            commit.into_iter().partition(|object| object["kind"] == "Gate");
        let others = json!({"apiVersion": "v1", "kind": "List", "items": others}).to_string();
        cluster.kubectl_with_input(apply, &others).await.unwrap();
        let definition = format!("crd/gates.{group}");
        cluster.kubectl(["wait", &definition, "--for=condition=Established", "--timeout=30s"]).await.unwrap();
        // The API server takes a changed definition into use a moment after it says so.
        let version = gates[0]["apiVersion"].as_str().unwrap().to_owned();
        eventually(DEADLINE, || async {
            cluster.get(&format!("/apis/{version}/namespaces/{namespace}/gates")).await
        })
        .await;
        went.push(cluster.kubectl_with_input(apply, &gates[0].to_string()).await.is_ok());
        if touched && number == 0 {
            let old = format!("gates.v1beta1.{group}");
            let label = ["label", &old, "north", "-n", namespace, "by=hand", "--field-manager=somebody"];
            cluster.kubectl(label).await.unwrap();
        }
    }
    went
}

#[tokio::test]
async fn case_06_applies_all_four_commits_where_kubectl_does_or_fails() {
    let cluster = cluster().await;
    for touched in [false, true] {
        let namespace = cluster.namespace("case06", false).await.unwrap();
        let beside = cluster.namespace("case06k", false).await.unwrap();
        let read = |namespace: &str| {
            let [one, two, three, four] = [1, 2, 3, 4].map(|number| cases::commit("06", number, namespace));
            Some([one?, two?, three?, four?])
        };
        let (Some(commits), Some(by_kubectl)) = (read(&namespace), read(&beside)) else { return };
        let group = format!("harbour.{namespace}.example");
        moves_to_a_new_version(&cluster, &namespace, &group, commits, touched).await;
        let went = moved_by_kubectl(&cluster, &beside, by_kubectl, touched).await;
        println!("touched by somebody: {touched}, kubectl applied: {went:?}");
        let gate = async |namespace: &str| {
            let path =
                format!("/apis/harbour.{namespace}.example/v1beta2/namespaces/{namespace}/gates/north");
            let live = cluster.get(&path).await.unwrap();
            (live["spec"].clone(), live["metadata"]["labels"]["shift"].clone())
        };
        if went == [true; 4] {
            assert_eq!(gate(&namespace).await, gate(&beside).await);
        }
        for namespace in [namespace, beside] {
            let definition = format!("gates.harbour.{namespace}.example");
            cluster.kubectl(["delete", "customresourcedefinition", &definition]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_name_that_is_quoted_by_chance_excuses_no_failure() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("excuse", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let labels = json!({"app": "web"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"restartPolicy": "sometimes", "containers": [{"name": "web", "image": "web:1"}]}}}});
    source.with([config_map("sometimes", "v"), deployment]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!(finished.outcome, SyncOutcome::Failed);
    assert!(finished.failures[0].message.contains("\"sometimes\""), "{finished:?}");
    assert!(!cluster.exists(&map_path(&namespace, "sometimes")).await.unwrap(), "nothing was applied");
}
