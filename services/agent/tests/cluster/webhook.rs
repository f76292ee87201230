//! A real admission webhook that takes no part in dry runs.

use std::sync::Arc;

use bytes::Bytes;
use events::delivery::SyncOutcome;
use events::requests::diff::{DiffChange, DiffReason};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{Authority, Cluster};

use crate::https;
use crate::rig::{Rig, Source, cluster, config_map, map_path};

/// Whether each request was a dry run.
type Seen = Arc<Mutex<Vec<bool>>>;

async fn answer(request: Request<Incoming>, seen: Seen) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let dry = review["request"]["dryRun"] == true;
    seen.lock().push(dry);
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
        "uid": review["request"]["uid"], "allowed": !dry,
        "status": {"code": 400, "message": "this webhook does not support dry run"}}});
    Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
}

/// Starts the webhook and registers it for the ConfigMaps of a namespace.
async fn webhook(cluster: &Cluster, namespace: &str) -> (String, Seen) {
    let authority = Authority::new("webhook").unwrap();
    let seen = Seen::default();
    let told = Arc::clone(&seen);
    let port = https::serve(&authority, move |request| answer(request, Arc::clone(&told))).await;
    let bundle = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(authority.certificate())
    };
    let collection = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({"metadata": {"name": namespace}, "webhooks": [{
        "name": "no.dry.run", "sideEffects": "NoneOnDryRun", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "clientConfig": {"url": format!("https://127.0.0.1:{port}/"), "caBundle": bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]});
    cluster.create_object(collection, &hook).await.unwrap();
    (format!("{collection}/{namespace}"), seen)
}

#[tokio::test]
async fn a_webhook_that_refuses_dry_runs_gives_unverified_not_failure() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("unverified", false).await.unwrap();
    let (hook, seen) = webhook(&cluster, &namespace).await;
    // The API server hears of a webhook a moment later.
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut probe = 0;
    while seen.lock().is_empty() {
        probe += 1;
        let object = json!({"metadata": {"name": format!("probe-{probe}")}});
        cluster.create_object(&collection, &object).await.unwrap();
    }
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.suspended = true;
    source.with([config_map("a", "v")]);
    rig.put(&[&source]).await;
    let diff = rig.diff(&source).await;
    let (change, reason) = (diff.objects[0].change, diff.objects[0].reason);
    assert_eq!((change, reason), (DiffChange::Create, Some(DiffReason::Unverified)), "{diff:?}");
    source.suspended = false;
    let finished = rig.sync(&[&source]).await;
    cluster.send(Method::DELETE, &hook, None).await.unwrap();
    assert_eq!(finished.outcome, SyncOutcome::Succeeded, "{finished:?}");
    assert!(seen.lock().contains(&true), "the dry run was tried");
    assert!(cluster.exists(&map_path(&namespace, "a")).await.unwrap());
}
