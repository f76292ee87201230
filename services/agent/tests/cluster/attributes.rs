//! What requests ask for is understood as the API server itself understands it, by its own audit log.

use std::time::Duration;

use events::attributes::{Attributes, ResourceTarget, Target};
use http::Method;
use objects::attributes::attributes;
use serde_json::{Value, json};
use testkit::{Audit, ControlPlane, ControlPlaneOptions, eventually};

const LIMIT: Duration = Duration::from_secs(30);

const REQUESTS: [&str; 40] = [
    "GET /version",
    "GET /healthz/ping",
    "GET /api",
    "GET /api/v1",
    "GET /apis/apps/v1/",
    "GET /openapi/v3/apis/apps/v1",
    "GET /api/v1/pods?limit=3",
    "GET /api/v1/pods?watch=1&timeoutSeconds=1",
    "GET /api/v1/pods?watch&timeoutSeconds=1",
    "GET /api/v1/pods?watch=False&limit=4",
    "GET /api/v1/pods?watch=0&watch=1",
    "GET /api/v1/pods?limit=many&watch=2&timeoutSeconds=1",
    "GET /api/v1/watch/pods?timeoutSeconds=1",
    "GET /api/v1/watch/namespaces/a/pods?timeoutSeconds=1",
    "GET /api/v1/watch/namespaces/a/pods/web?timeoutSeconds=1",
    "HEAD /api/v1/namespaces/default",
    "GET /api/v1/namespaces",
    "GET /api/v1/namespaces/default/",
    "PUT /api/v1/namespaces/a/finalize",
    "PATCH /api/v1/namespaces/a/status",
    "GET /api/v1/namespaces/a/pods",
    "GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dweb",
    "GET /api/v1/namespaces/a/pods?fieldSelector=status.phase%3DRunning%2Cmetadata.name%3D%3Dweb",
    "GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name!%3Dweb",
    "GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3D..",
    "DELETE /api/v1/namespaces/a/pods?labelSelector=a%3Db",
    "DELETE /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dweb",
    "DELETE /api/v1/namespaces/a/pods/web",
    "POST /api/v1/namespaces/a/pods",
    "PUT /api/v1/namespaces/a/pods/web",
    "PATCH /api/v1/namespaces/a/pods/web/ephemeralcontainers",
    "GET /api/v1/namespaces/a/pods/web/log?follow=true",
    "POST /api/v1/namespaces/a/pods/web/exec?command=ls",
    "POST /api/v1/namespaces/a/pods/web/eviction",
    "POST /api/v1/namespaces/a/serviceaccounts/default/token",
    "POST /api/v1/namespaces/a/services/https:web:443/proxy/a/b",
    "PATCH /apis/apps/v1/namespaces/a/deployments/web/scale",
    "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
    "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "GET /apis/nobody.example/v1/namespaces/a/things/web/part/of/it",
];

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_understood_as_the_api_server_understands_them() {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
        "rules": [{"level": "Metadata", "users": ["admin"]}],
    });
    let options = ControlPlaneOptions {
        workloads: false,
        audit: Audit::Policy(policy),
        ..ControlPlaneOptions::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    for request in REQUESTS {
        let (method, path) = request.split_once(' ').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        plane.send(method, path, None).await.unwrap();
    }
    let last = REQUESTS.last().unwrap().split_once(' ').unwrap().1;
    let log = eventually(LIMIT, || async {
        let log = plane.audit_log().map_err(|error| error.to_string())?;
        if log.iter().any(|entry| entry["requestURI"] == last) {
            Ok(log)
        } else {
            Err("not audited yet".to_owned())
        }
    })
    .await;
    let mut log = log.iter();
    for request in REQUESTS {
        let (method, uri) = request.split_once(' ').unwrap();
        let entry = log.find(|entry| entry["requestURI"] == uri).expect(uri);
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        let understood = attributes(method, path, query, false).unwrap();
        assert_eq!(understood, audited(entry, path), "{request}: {entry}");
    }
}

/// What the API server understood.
fn audited(entry: &Value, path: &str) -> Attributes {
    let verb = entry["verb"].as_str().unwrap().to_owned();
    let Some(object) = entry.get("objectRef") else {
        return Attributes { verb, target: Target::Path(path.trim_end_matches('/').to_owned()) };
    };
    let field = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let target = ResourceTarget {
        group: field("apiGroup"),
        version: field("apiVersion"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
    };
    Attributes { verb, target: Target::Resource(target) }
}
