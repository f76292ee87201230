//! Deployments: a real cluster's own controllers write to them as well, so nothing here asks what only one writer may say.

use super::*;

fn deployment(name: &str, value: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"laws": "yes"}},
        "spec": {
            // Nothing is to be started.
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {"value": value}},
                "spec": {"containers": [{"name": "web", "image": "registry.example/web:1"}]},
            },
        },
    })
}

fn generation(object: &Value) -> u64 {
    object["metadata"]["generation"].as_u64().unwrap()
}

/// A condition that no controller knows, and so leaves alone.
fn condition(word: &str) -> Value {
    json!({"type": "Laws", "status": "True", "reason": word})
}

fn says(object: &Value, word: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Laws" && one["reason"] == word))
}

impl Asking {
    /// Somebody says how a Deployment is doing.
    async fn say(&self, name: &str, patch: &Value) -> Value {
        let path = format!("{}/status?fieldManager=laws", self.deployment(name));
        let call = Call::write(Method::PATCH, path, MERGE, bytes(patch));
        self.send(call).await.unwrap().json().unwrap()
    }
}

pub(super) async fn a_generation_counts_what_the_spec_was(asking: &Asking) {
    let first = deployment("counted", "a");
    let tried = asking.apply(&first, TRY).await.unwrap();
    assert_eq!((tried.status, generation(&tried.json().unwrap())), (StatusCode::CREATED, 1));
    let made = asking.applied(&first).await;
    assert_eq!((generation(&made), &made["spec"]["progressDeadlineSeconds"]), (1, &json!(600)));
    assert!(covers(&made, &first) && touch_mark(&made).is_some());
    assert_eq!(generation(&asking.applied(&first).await), 1);
    let mut labelled = first.clone();
    labelled["metadata"]["labels"]["more"] = json!("yes");
    assert_eq!(generation(&asking.applied(&labelled).await), 1);
    let second = deployment("counted", "b");
    let tried: Value = asking.apply(&second, TRY).await.unwrap().json().unwrap();
    assert_eq!(generation(&tried), 2);
    assert_eq!(generation(&asking.get(&asking.deployment("counted")).await), 1);
    let changed = asking.applied(&second).await;
    assert_eq!((generation(&changed), uid(&changed)), (2, uid(&made)));
    assert!(covers(&changed, &second) && !covers(&changed, &labelled));
    let mut fewer = second.clone();
    fewer["spec"].as_object_mut().unwrap().remove("replicas");
    fewer["spec"]["paused"] = json!(true);
    let changed = asking.applied(&fewer).await;
    assert_eq!((generation(&changed), &changed["spec"]["replicas"]), (3, &json!(1)));
    let deleted = asking.send(Call::delete(asking.deployment("counted"), uid(&made))).await.unwrap();
    assert_eq!(deleted.status, StatusCode::OK);
    assert_eq!(generation(&asking.applied(&first).await), 1);
}

pub(super) async fn who_writes_a_status_writes_nothing_else(asking: &Asking) {
    let mut manifest = deployment("told", "a");
    manifest["status"] = json!({"conditions": [condition("unheard")]});
    let made = asking.applied(&manifest).await;
    assert!(!says(&made, "unheard") && made["status"].is_object(), "{made}");
    manifest.as_object_mut().unwrap().remove("status");
    assert!(covers(&made, &manifest));
    let patch = json!({"spec": {"paused": true}, "status": {"conditions": [condition("heard")]}});
    let told = asking.say("told", &patch).await;
    assert!(says(&told, "heard") && told["spec"] == made["spec"], "{told}");
    assert_eq!((generation(&told), touch_mark(&told)), (1, touch_mark(&made)));
    assert!(version(&told) > version(&made));
    let fields = told["metadata"]["managedFields"].as_array().unwrap();
    let said = fields.iter().find(|entry| entry["manager"] == "laws").unwrap();
    assert_eq!((&said["subresource"], &said["operation"]), (&json!("status"), &json!("Update")));
    let path = format!("{}?fieldManager=kubectl-edit", asking.deployment("told"));
    let patch =
        json!({"metadata": {"annotations": {"a": "b"}}, "status": {"conditions": null, "replicas": 7}});
    let call = Call::write(Method::PATCH, path, MERGE, bytes(&patch));
    let edited: Value = asking.send(call).await.unwrap().json().unwrap();
    assert!(says(&edited, "heard") && edited["status"]["replicas"] != json!(7), "{edited}");
    // Annotations count as the spec does.
    assert_eq!(generation(&edited), 2);
    let changed = asking.applied(&deployment("told", "b")).await;
    assert!(says(&changed, "heard") && generation(&changed) == 3, "{changed}");
    let read = asking.get(&format!("{}/status", asking.deployment("told"))).await;
    assert!(says(&read, "heard") && read["kind"] == json!("Deployment"), "{read}");
    let missing = asking.send(Call::get(format!("{}/status", asking.map("told")))).await;
    assert_eq!(refusal(missing).code, 404);
}

pub(super) async fn who_follows_sees_what_a_status_says(asking: &Asking) {
    let made = asking.applied(&deployment("seen", "a")).await;
    let query = format!(
        "/apis/apps/v1/namespaces/{}/deployments?watch=1&labelSelector=laws&timeoutSeconds=60&resourceVersion={}",
        asking.namespace,
        version(&made)
    );
    let mut following = asking.watch(Call::get(query)).await;
    let told = asking.say("seen", &json!({"status": {"conditions": [condition("heard")]}})).await;
    loop {
        let seen = following.event().await;
        assert_eq!((&seen["type"], generation(&seen["object"])), (&json!("MODIFIED"), 1));
        if version(&seen["object"]) >= version(&told) {
            assert!(says(&seen["object"], "heard"), "{seen}");
            return;
        }
    }
}
