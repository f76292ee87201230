//! A real admission webhook that takes no part in dry runs.

use std::sync::Arc;

use bytes::Bytes;
use events::delivery::SyncOutcome;
use events::requests::diff::{DiffChange, DiffReason};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use testkit::{Authority, Cluster};
use tokio_rustls::TlsAcceptor;
use world::World;

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
    let world = World::real();
    let authority = Authority::new("webhook").unwrap();
    let certified = authority.server(&[], &[[127, 0, 0, 1].into()]).unwrap();
    let folder = testkit::Folder::temporary().unwrap();
    let (certificate, key) = certified.write(folder.path(), "webhook").unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_file(certificate).unwrap()],
            PrivateKeyDer::from_pem_file(key).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = world.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let port = listener.local_address().unwrap().port();
    let seen = Seen::default();
    let (spawner, told) = (Arc::clone(&world.spawner), Arc::clone(&seen));
    let accepting = async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, told) = (acceptor.clone(), Arc::clone(&told));
            let serving = async move {
                let Ok(socket) = acceptor.accept(socket).await else { return };
                let service = service_fn(move |request| answer(request, Arc::clone(&told)));
                let connection = hyper::server::conn::http1::Builder::new();
                let _gone = connection.serve_connection(TokioIo::new(socket), service).await;
            };
            spawner.spawn("webhook connection", Box::pin(serving));
        }
    };
    world.spawner.spawn("webhook", Box::pin(accepting));
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
