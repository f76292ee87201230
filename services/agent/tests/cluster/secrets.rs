//! A Secret means the same whether its values stand there as texts or as data.

use events::delivery::SyncOutcome;
use events::observation::{Observed, Write};
use serde_json::{Value, json};
use testkit::{Cluster, eventually};

use crate::cases;
use crate::rig::{DEADLINE, Rig, Source, cluster, version};

const BOTH: [&str; 2] = ["written-as-text", "written-as-data"];

fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{name}")
}

async fn data(cluster: &Cluster, namespace: &str, name: &str) -> Value {
    cluster.get(&path(namespace, name)).await.unwrap()["data"].clone()
}

/// Changes a Secret by hand, and waits until that is undone.
async fn undone(rig: &Rig, cluster: &Cluster, namespace: &str, name: &str, patch: &Value) {
    let before = data(cluster, namespace, name).await;
    let from = rig.process.observed().len();
    let content = ("application/json-patch+json", patch);
    let at = format!("{}?fieldManager=somebody", path(namespace, name));
    assert!(cluster.send(http::Method::PATCH, &at, Some(content)).await.unwrap().status.is_success());
    let corrected = |one: &Observed| {
        matches!(one, Observed::DriftCorrected { identity, .. } if identity.name == name).then_some(())
    };
    rig.process.wait(from, "correction", corrected).await;
    eventually(DEADLINE, || async {
        let now = data(cluster, namespace, name).await;
        anyhow::ensure!(now == before, "{name} has other values");
        Ok(())
    })
    .await;
}

fn writes(rig: &Rig) -> Vec<(String, Write)> {
    let write = |one: &Observed| match one {
        Observed::ObjectApplied { object, write, .. } if object.identity.kind == "Secret" => {
            Some((object.identity.name.clone(), *write))
        }
        _ => None,
    };
    rig.process.observed().iter().filter_map(write).collect()
}

/// `commits`: three values; one of them gone; the forms exchanged, one value given in both.
#[allow(clippy::cognitive_complexity, reason = "one commit after the other")]
async fn means_the_same(cluster: &Cluster, namespace: &str, commits: [Vec<Value>; 3]) {
    let kubectl = cluster.namespace("secret-kubectl", false).await.unwrap();
    let mut rig = Rig::start(cluster, namespace).await;
    let mut source = Source::new(&rig, "shop", namespace);
    let [first, second, third] = commits;
    source.with(first.clone());
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    for name in BOTH {
        let wrong = json!([{"op": "replace", "path": "/data/code", "value": "d3Jvbmc="}]);
        undone(&rig, cluster, namespace, name, &wrong).await;
        undone(&rig, cluster, namespace, name, &json!([{"op": "remove", "path": "/data/user"}])).await;
    }
    source.with(second.clone());
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    for commit in [first, second] {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": secrets_of(commit)});
        let apply = ["apply", "--server-side", "-n", &kubectl, "-f", "-"];
        cluster.kubectl_with_input(apply, &list.to_string()).await.unwrap();
    }
    let expected = json!({"user": "aGFyYm91cg==", "code": "Zmlyc3QtdmFsdWU="});
    for name in BOTH {
        assert_eq!(data(cluster, namespace, name).await, expected, "{name}");
        let by_kubectl = data(cluster, &kubectl, name).await;
        for key in expected.as_object().unwrap().keys() {
            assert_eq!(by_kubectl[key], expected[key], "kubectl means the same");
        }
    }
    source.with(third);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let wins = json!({"user": "aGFyYm91cg==", "code": "d2lucw=="});
    assert_eq!(data(cluster, namespace, "written-as-text").await, wins);
    assert_eq!(data(cluster, namespace, "written-as-data").await, expected);

    let versions = || async {
        let [one, other] = BOTH.map(|name| path(namespace, name));
        (version(cluster, &one).await, version(cluster, &other).await)
    };
    let before = versions().await;
    let told = format!("{:?}", rig.process.observed());
    for value in ["harbour", "aGFyYm91cg", "first-value", "Zmlyc3QtdmFsdWU", "wins", "d2lucw"] {
        assert!(!told.contains(value), "{value} left the cluster");
    }
    rig.restart().await;
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    assert_eq!(versions().await, before);
    assert_eq!(writes(&rig), [], "a new process writes nothing and says nothing");
    rig.process.stop().await;
}

fn secrets_of(commit: Vec<Value>) -> Vec<Value> {
    let mut secrets: Vec<Value> = commit.into_iter().filter(|object| object["kind"] == "Secret").collect();
    for secret in &mut secrets {
        secret["metadata"].as_object_mut().unwrap().remove("namespace");
    }
    secrets
}

fn secret(name: &str, more: &Value) -> Value {
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    secret.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    secret
}

#[tokio::test]
async fn texts_are_kept_as_data_is() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("secrets", false).await.unwrap();
    let texts = json!({"user": "harbour", "code": "first-value"});
    let values = json!({"user": "aGFyYm91cg==", "code": "Zmlyc3QtdmFsdWU="});
    let (mut more_texts, mut more_values) = (texts.clone(), values.clone());
    more_texts["old-code"] = json!("to-be-removed");
    more_values["old-code"] = json!("dG8tYmUtcmVtb3ZlZA==");
    let commits = [
        (json!({"stringData": more_texts}), json!({"data": more_values})),
        (json!({"stringData": texts}), json!({"data": values})),
        (
            json!({"data": {"user": "aGFyYm91cg==", "code": "bG9zZXM="}, "stringData": {"code": "wins"}}),
            json!({"stringData": texts}),
        ),
    ];
    let commits = commits.map(|(text, data)| vec![secret(BOTH[0], &text), secret(BOTH[1], &data)]);
    means_the_same(&cluster, &namespace, commits).await;
}

#[tokio::test]
async fn case_05_treats_both_secrets_alike() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case05", false).await.unwrap();
    let commits = [1, 2, 3].map(|number| cases::commit("05", number, &namespace));
    let [Some(first), Some(second), Some(third)] = commits else { return };
    means_the_same(&cluster, &namespace, [first, second, third]).await;
}
