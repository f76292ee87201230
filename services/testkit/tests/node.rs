//! A real node: containers run, serve, are reached from this machine, and reach it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{ControlPlane, ControlPlaneOptions, Image, Node, Tools, cluster_node, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const IMAGE: &str = "docker.io/library/busybox:1.36";

fn pod(name: &str, script: &str) -> Value {
    let container = json!({
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    });
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    })
}

#[tokio::test]
async fn containers_run_and_the_network_goes_both_ways() {
    if let Err(skipped) = Node::possible() {
        println!("{skipped}");
        return;
    }
    let options = ControlPlaneOptions {
        reachable_at: Some(cluster_node::HOST.into()),
        ..ControlPlaneOptions::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let busybox = Tools::find().unwrap().node_parts().unwrap().join("busybox");
    let images = [Image::of_busybox(IMAGE, &busybox).unwrap()];
    let node = Node::start(&plane, &images).await.unwrap();
    let namespace = plane.namespace("node", true).await.unwrap();
    let pods = format!("/api/v1/namespaces/{namespace}/pods");

    let serve = "mkdir -p /tmp/www; echo hello > /tmp/www/index.html; exec httpd -f -p 8080 -h /tmp/www";
    plane.create_object(&pods, &pod("server", serve)).await.unwrap();
    let address = eventually(Duration::from_secs(60), || async {
        let pod = plane.get(&format!("{pods}/server")).await?;
        let running = pod["status"]["phase"] == "Running";
        let address = pod["status"]["podIP"].as_str().filter(|_| running).map(str::to_owned);
        address.ok_or_else(|| anyhow::anyhow!("{}", pod["status"]))
    })
    .await;
    let answer = eventually(Duration::from_secs(30), || ask(&address)).await;
    assert!(answer.contains("hello"), "{answer}");
    let said = plane
        .kubectl(["exec", "-n", &namespace, "server", "--", "cat", "/tmp/www/index.html"])
        .await
        .unwrap();
    assert_eq!(said, "hello\n");

    // From a pod to this machine, and to the API server under its service's address.
    let listener = TcpListener::bind((cluster_node::HOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = format!(
        "echo from-pod | nc {} {port}; nc -w 5 $KUBERNETES_SERVICE_HOST 443 < /dev/null && echo api-server-reached",
        cluster_node::HOST
    );
    let mut object = pod("client", &client);
    object["spec"]["restartPolicy"] = "Never".into();
    plane.create_object(&pods, &object).await.unwrap();
    let (mut stream, _) =
        tokio::time::timeout(Duration::from_secs(60), listener.accept()).await.unwrap().unwrap();
    let mut said = [0; 9];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"from-pod\n");
    drop(stream);
    eventually(Duration::from_secs(60), || async {
        let log = plane.kubectl(["logs", "-n", &namespace, "client"]).await?;
        anyhow::ensure!(log.contains("api-server-reached"), "the client said {log:?}");
        Ok(())
    })
    .await;
    drop(node);
    eventually(Duration::from_secs(60), || async {
        anyhow::ensure!(
            !Path::new("/sys/class/net/kasbah-node").exists(),
            "the link to the node is still there"
        );
        Ok(())
    })
    .await;
}

async fn ask(address: &str) -> anyhow::Result<String> {
    let connect = TcpStream::connect((address, 8080));
    let mut stream = tokio::time::timeout(Duration::from_secs(5), connect).await??;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
