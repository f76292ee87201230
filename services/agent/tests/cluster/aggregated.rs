//! A group that an aggregated API server serves comes and goes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use events::delivery::{SyncCounts, SyncOutcome};
use events::observation::Observed;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{Authority, ControlPlane, ControlPlaneOptions};

use crate::https;
use crate::rig::{Rig, Source, config_map};

const GROUP: &str = "shop.example.com";

/// What the aggregated API server keeps, by path.
type Baskets = Arc<Mutex<BTreeMap<String, Value>>>;

/// As much of an API server as an agent needs to apply and follow objects of one kind.
async fn answer(
    request: Request<Incoming>,
    baskets: Baskets,
) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or("").to_owned());
    let method = request.method().clone();
    let body = request.into_body().collect().await?.to_bytes();
    let said = |status: StatusCode, body: &Value| {
        let body = Full::new(Bytes::from(body.to_string())).boxed();
        let json = (http::header::CONTENT_TYPE, "application/json");
        Response::builder().status(status).header(json.0, json.1).body(body).unwrap()
    };
    if path == format!("/apis/{GROUP}/v1") {
        let basket = json!({"name": "baskets", "singularName": "basket", "namespaced": true, "kind": "Basket",
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]});
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"),
            "resources": [basket]});
        return Ok(said(StatusCode::OK, &list));
    }
    if path.ends_with("/baskets") {
        if query.contains("watch=") {
            let nothing = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>());
            return Ok(Response::new(BodyExt::boxed(nothing)));
        }
        let items: Vec<Value> = baskets.lock().values().cloned().collect();
        let list = json!({"kind": "BasketList", "apiVersion": format!("{GROUP}/v1"),
            "metadata": {"resourceVersion": "7"}, "items": items});
        return Ok(said(StatusCode::OK, &list));
    }
    let known = baskets.lock().get(&path).cloned();
    Ok(match (method, known) {
        (Method::GET, Some(basket)) => said(StatusCode::OK, &basket),
        (Method::PATCH, _) => {
            let mut basket: Value = serde_json::from_slice(&body).unwrap();
            basket["metadata"]["uid"] = json!("5e0c0f0a-0000-4000-8000-000000000001");
            basket["metadata"]["resourceVersion"] = json!("7");
            if !query.contains("dryRun") {
                baskets.lock().insert(path, basket.clone());
            }
            said(StatusCode::CREATED, &basket)
        }
        _ => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                "message": "not found", "code": 404});
            said(StatusCode::NOT_FOUND, &status)
        }
    })
}

fn ended(source: &Source) -> impl Fn(&Observed) -> Option<(SyncOutcome, SyncCounts)> {
    let sync = source.sync;
    move |one| match one {
        Observed::SyncFinished { sync: of, outcome, counts, .. } if *of == sync => Some((*outcome, *counts)),
        _ => None,
    }
}

#[tokio::test]
async fn kinds_of_an_aggregated_api_server_are_known_as_soon_as_they_come_and_while_they_are_there() {
    // Tests that share a control plane must not find a group that does not answer.
    let options = ControlPlaneOptions { workloads: false, ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let home = plane.namespace("aggregated", false).await.unwrap();
    let baskets = Baskets::default();
    let keeping = Arc::clone(&baskets);
    let authority = Authority::new("aggregated").unwrap();
    let port = https::serve(&authority, move |request| answer(request, Arc::clone(&keeping))).await;
    let mut rig = Rig::start(&plane, &home).await;
    let mut source = Source::new(&rig, "shop", &home);
    let basket = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Basket", "metadata": {"name": "late"},
        "spec": {"size": 3}});
    source.with([config_map("a", "v"), basket]);
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.waiting), (SyncOutcome::Succeeded, 1), "{finished:?}");

    let from = rig.process.observed().len();
    let service = json!({"metadata": {"name": "baskets"}, "spec": {"type": "ExternalName", "externalName": "localhost",
        "ports": [{"port": port}]}});
    plane.create_object(&format!("/api/v1/namespaces/{home}/services"), &service).await.unwrap();
    let registered = json!({"metadata": {"name": format!("v1.{GROUP}")}, "spec": {"group": GROUP, "version": "v1",
        "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
        "service": {"name": "baskets", "namespace": home, "port": port}}});
    plane.create_object("/apis/apiregistration.k8s.io/v1/apiservices", &registered).await.unwrap();
    let ((outcome, counts), from) = rig.process.wait(from, "end of the sync", ended(&source)).await;
    assert_eq!((outcome, counts.created, counts.waiting), (SyncOutcome::Succeeded, 1, 0));
    let path = format!("/apis/{GROUP}/v1/namespaces/{home}/baskets/late");
    assert_eq!(baskets.lock()[&path]["spec"]["size"], 3);

    plane.kubectl(["delete", "apiservice", &format!("v1.{GROUP}")]).await.unwrap();
    let ((outcome, counts), _) = rig.process.wait(from, "end of the sync", ended(&source)).await;
    assert_eq!((outcome, counts.waiting), (SyncOutcome::Succeeded, 1));
}
