//! Fields that controllers of the cluster write are not fought over.

use events::delivery::SyncOutcome;
use events::observation::{Observed, Write};
use serde_json::{Value, json};
use testkit::{Cluster, eventually};

use crate::cases;
use crate::rig::{DEADLINE, Rig, Source, cluster, version};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Drifts and writes of objects whose names begin so.
fn words_of(rig: &Rig, prefix: &str) -> Vec<String> {
    let word = |one: &Observed| match one {
        Observed::DriftSeen { identity, fields, .. } => Some((identity.clone(), format!("drift {fields:?}"))),
        Observed::ObjectApplied { object, write, .. } if *write != Write::Unchanged => {
            Some((object.identity.clone(), format!("{write:?}")))
        }
        _ => None,
    };
    let words = rig.process.observed();
    let words = words.iter().filter_map(word).filter(|(identity, _)| identity.name.starts_with(prefix));
    words.map(|(identity, word)| format!("{} {word}", identity.name)).collect()
}

async fn has_rule(cluster: &Cluster, role: &str) {
    eventually(DEADLINE, || async {
        let live = cluster.get(&format!("{ROLES}/{role}")).await?;
        anyhow::ensure!(live["rules"][0]["resources"] == json!(["configmaps"]), "{live}");
        Ok(())
    })
    .await;
}

/// Somebody changes an object of the same kind; once that is corrected, whatever came before has been seen.
async fn barrier(rig: &Rig, cluster: &Cluster, kind: &str, name: &str) {
    let from = rig.process.observed().len();
    let label = ["label", kind, name, "kasbah.dev/source=by-hand", "--overwrite"];
    cluster.kubectl(label).await.unwrap();
    let corrected = |one: &Observed| {
        matches!(one, Observed::DriftCorrected { identity, .. } if identity.name == name).then_some(())
    };
    rig.process.wait(from, "correction", corrected).await;
}

async fn a_role_is_left_to_the_aggregation(
    cluster: &Cluster,
    namespace: &str,
    first: Vec<Value>,
    second: Vec<Value>,
) {
    let mut rig = Rig::start(cluster, namespace).await;
    let mut source = Source::new(&rig, "shop", namespace);
    let gathered = format!("{namespace}-gathered");
    let part = format!("{namespace}-part");
    source.with(first);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    has_rule(cluster, &gathered).await;
    has_rule(cluster, &format!("{gathered}-bare")).await;
    let before = version(cluster, &format!("{ROLES}/{gathered}")).await;
    barrier(&rig, cluster, "clusterrole", &part).await;
    assert_eq!(version(cluster, &format!("{ROLES}/{gathered}")).await, before);
    let created = [format!("{gathered} Created"), format!("{gathered}-bare Created")];
    let mut words = words_of(&rig, &gathered);
    words.sort();
    assert_eq!(words, created, "no drift, and no write but the first");
    let diff = rig.diff(&source).await;
    assert!(diff.objects.is_empty() && diff.extra.is_empty(), "{diff:?}");

    source.with(second);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.changed), (SyncOutcome::Succeeded, 2), "{finished:?}");
    has_rule(cluster, &gathered).await;
    barrier(&rig, cluster, "clusterrole", &part).await;
    assert!(
        !words_of(&rig, &gathered).iter().any(|word| word.contains("drift")),
        "{:?}",
        words_of(&rig, &gathered)
    );

    rig.restart().await;
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    assert_eq!(words_of(&rig, &gathered), [""; 0], "a new process finds all as it should be");
    rig.process.stop().await;
}

fn role(name: &str, labels: &Value, more: &Value) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels}});
    role.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    role
}

#[tokio::test]
async fn rules_of_an_aggregated_role_are_the_controllers() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("gather", false).await.unwrap();
    let roles = |round: &str| {
        let gather = json!({format!("{namespace}.example/gather"): "yes"});
        let rule = json!({"clusterRoleSelectors": [{"matchLabels": gather}]});
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
        let of_round = json!({"round": round});
        vec![
            role(&format!("{namespace}-gathered"), &of_round, &json!({"aggregationRule": rule, "rules": []})),
            role(&format!("{namespace}-gathered-bare"), &of_round, &json!({"aggregationRule": rule})),
            role(&format!("{namespace}-part"), &gather, &json!({"rules": rules})),
        ]
    };
    a_role_is_left_to_the_aggregation(&cluster, &namespace, roles("1"), roles("2")).await;
}

#[tokio::test]
async fn case_04_ends_without_a_fight() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("case04", true).await.unwrap();
    let commits = [1, 2].map(|number| cases::commit("04", number, &namespace));
    let [Some(first), Some(second)] = commits else { return };
    a_role_is_left_to_the_aggregation(&cluster, &namespace, first, second).await;
}

#[tokio::test]
async fn an_injected_certificate_stays() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("inject", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    let webhook = |name: &str, round: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": format!("{namespace}-{name}"), "labels": {"round": round}},
            "webhooks": [{"name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
                "clientConfig": {"url": "https://127.0.0.1:1/", "caBundle": "Cg=="},
                "rules": [{"apiGroups": ["nothing.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]}]})
    };
    source.with([webhook("checks", "1"), webhook("other", "1")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let name = format!("{namespace}-checks");
    let path = format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}");
    let injected = testkit::Authority::new("injected").unwrap();
    let bundle = {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(injected.certificate())
    };
    let patch = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]);
    let at = format!("{path}?fieldManager=cainjector");
    let answer =
        cluster.send(http::Method::PATCH, &at, Some(("application/json-patch+json", &patch))).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.body);
    barrier(&rig, &cluster, "validatingwebhookconfiguration", &format!("{namespace}-other")).await;
    source.with([webhook("checks", "2"), webhook("other", "1")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    let live = cluster.get(&path).await.unwrap();
    assert_eq!(live["webhooks"][0]["clientConfig"]["caBundle"], bundle);
    assert_eq!(words_of(&rig, &name), [format!("{name} Created"), format!("{name} Changed")]);
    rig.process.stop().await;
    cluster.kubectl(["delete", "validatingwebhookconfiguration", &name]).await.unwrap();
}
