//! What `/readyz` says when something is wrong.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use events::Timestamp;
use events::configuration::Mode;
use events::desired::ConfigurationRejection;
use serde_json::{Value, json};
use testkit::{Cluster, Folder, Proxy, eventually};
use world::World;

use crate::gateway::{Driver, Gateway, LIMIT, Pki};
use crate::{cluster, start_at};

/// The page, once it has all of these texts.
async fn page(admin: &str, path: &str, texts: &[&str]) -> String {
    eventually(LIMIT, || async {
        let page = testkit::admin_page(admin, path).map_err(|error| error.to_string())?;
        if texts.iter().all(|text| page.contains(text)) { Ok(page) } else { Err(page) }
    })
    .await
}

/// Changes the cluster's kubeconfig into another one.
fn kubeconfig(cluster: &Cluster, folder: &Path, change: impl FnOnce(&mut Value)) -> PathBuf {
    let text = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    change(&mut config);
    let path = folder.join("agent.kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}

fn api_server(cluster: &Cluster) -> SocketAddr {
    let text = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    server.strip_prefix("https://").unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_not_ready_without_its_server_or_its_api_server_and_says_why() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("readiness", false).await.unwrap();
    let folder = Folder::temporary().unwrap();
    let proxy = Proxy::start(api_server(&cluster)).unwrap();
    let config = kubeconfig(&cluster, folder.path(), |config| {
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", proxy.address()));
    });
    let pki = Pki::new(|_| {});
    let port = testkit::free_port().unwrap();
    let server = format!("localhost:{port}");
    let admin = format!("127.0.0.1:{}", testkit::free_port().unwrap());
    let options = ["--admin-listen", admin.as_str()];
    let _process = start_at(folder.path(), &config, &namespace, &server, &pki.authority, &options);

    let why = format!("not connected to the server {server}: cannot reach");
    let said = page(&admin, "/readyz", &[&why, "tunnel failed since 20"]).await;
    assert!(said.starts_with("HTTP/1.0 503") && said.ends_with("\nnot ready: tunnel\n"), "{said}");
    assert!(testkit::admin_page(&admin, "/healthz").unwrap().starts_with("HTTP/1.0 200"), "it is alive");

    let gateway = Gateway::listen(World::real(), &pki, &format!("127.0.0.1:{port}")).await;
    let _tunnel = gateway.accept(None).await.unwrap();
    let reached = ["api-server passed since", "lease passed: held", "tunnel passed since"];
    let said = page(&admin, "/readyz?verbose", &reached).await;
    assert!(said.starts_with("HTTP/1.0 200") && said.ends_with("\nready\n"), "{said}");

    proxy.shut(true);
    proxy.cut();
    let said = page(&admin, "/readyz", &["api-server failed since 20", "cannot be reached"]).await;
    assert!(said.starts_with("HTTP/1.0 503") && said.ends_with("\nnot ready: api-server\n"), "{said}");
    // An agent that stands by does its job.
    let stands_by = ["lease passed: not held: this instance stands by"];
    page(&admin, "/readyz?verbose", &stands_by).await;
    proxy.shut(false);
    page(&admin, "/readyz", &["HTTP/1.0 200", "\r\n\r\nready\n"]).await;
}

async fn account_with_a_role(cluster: &Cluster, namespace: &str, rules: &Value) -> String {
    let create = async |path: String, object: Value| cluster.create_object(&path, &object).await.unwrap();
    let account = json!({"metadata": {"name": "agent"}});
    create(format!("/api/v1/namespaces/{namespace}/serviceaccounts"), account).await;
    let root = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    create(format!("{root}/roles"), json!({"metadata": {"name": "agent"}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": "agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": namespace}]});
    create(format!("{root}/rolebindings"), binding).await;
    cluster.kubectl(["create", "token", "agent", "-n", namespace]).await.unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_and_a_rejected_configuration_are_named_and_leave_it_ready() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("rights", false).await.unwrap();
    let folder = Folder::temporary().unwrap();
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update"]}]);
    let token = account_with_a_role(&cluster, &namespace, &rules).await;
    let config = kubeconfig(&cluster, folder.path(), |config| {
        config["users"][0]["user"] = json!({"token": token});
    });
    let pki = Pki::new(|_| {});
    let gateway = Gateway::listen(World::real(), &pki, "127.0.0.1:0").await;
    let server = format!("localhost:{}", gateway.address.port());
    let admin = format!("127.0.0.1:{}", testkit::free_port().unwrap());
    let options = ["--admin-listen", admin.as_str()];
    let mut process = start_at(folder.path(), &config, &namespace, &server, &pki.authority, &options);
    let (connection, instance) = gateway.accept(None).await.unwrap();
    let mut driver = Driver::new(connection, instance, gateway.agent);
    driver.mode = Mode::Namespaced;
    let (observed, holds) = (Arc::clone(&driver.observed), Arc::clone(&driver.holds));
    let reading = Driver::read_events(driver.connection.clone(), observed, holds);
    World::real().spawner.spawn("events", Box::pin(reading));
    driver.holds_lease().await;

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let _sync = driver.put(&namespace, &[map.clone(), secret]).await;
    let user = format!("system:serviceaccount:{namespace}:agent");
    let right = format!("{user} may not patch secrets in namespace {namespace}");
    let said = page(&admin, "/readyz", &["rights warning since 20", &right]).await;
    assert!(said.starts_with("HTTP/1.0 200") && said.ends_with("\nready\n"), "{said}");

    let reason = "commit 0123 was rejected: config.yaml:3: unknown key".to_owned();
    driver.rejected = Some(ConfigurationRejection { since: Timestamp(1_000), reason: reason.clone() });
    let sync = driver.put(&namespace, &[map]).await;
    driver.finished(sync).await;
    let configuration = format!("configuration warning since 1970-01-01T00:00:01.000Z: {reason}");
    let said = page(&admin, "/readyz?verbose", &[&configuration, "rights passed"]).await;
    assert!(said.starts_with("HTTP/1.0 200"), "{said}");
    driver.rejected = None;
    driver.put(&namespace, &[]).await;
    page(&admin, "/readyz?verbose", &["configuration passed: as the server sent it"]).await;
    process.terminate(Duration::from_secs(20)).unwrap();
}
