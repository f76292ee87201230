//! The demo shop by itself: everything in it is accepted, runs and serves, before Kasbah has any part in it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use testkit::{ControlPlane, ControlPlaneOptions, FakeNodes, Image, Node, Tools, cluster_node, eventually};

const IMAGE: &str = "docker.io/library/busybox:1.36";

#[tokio::test]
async fn every_object_is_accepted_and_every_program_runs() {
    let skipped = Node::possible();
    let reachable_at = skipped.is_ok().then(|| cluster_node::HOST.into());
    let plane = ControlPlane::start(ControlPlaneOptions { reachable_at, ..ControlPlaneOptions::default() })
        .await
        .unwrap();
    let (mut node, mut fake) = (None, None);
    match skipped {
        Ok(()) => {
            let busybox = Tools::find().unwrap().node_parts().unwrap().join("busybox");
            let image = Image::of_busybox(IMAGE, &busybox).unwrap();
            node = Some(Node::start(&plane, &[image]).await.unwrap());
        }
        Err(skipped) => {
            println!("{skipped}; on fake nodes instead");
            fake = Some(FakeNodes::start(&plane, 2, &[]).await.unwrap());
        }
    }
    let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/demo/shop");
    for environment in ["staging", "production"] {
        let folder = shop.join(environment);
        let namespace = folder.join("namespace.yaml");
        for path in [namespace.to_str().unwrap(), folder.to_str().unwrap()] {
            plane.kubectl(["apply", "--server-side", "--validate=strict", "-f", path]).await.unwrap();
        }
    }
    for environment in ["shop-staging", "shop-production"] {
        all_ready(&plane, environment).await;
    }
    if node.is_some() {
        let serve = ["exec", "-n", "shop-staging", "deploy/storefront", "--", "wget", "-q", "-O", "-"];
        let answer =
            plane.kubectl(serve.into_iter().chain(["http://127.0.0.1:8080/greeting.txt"])).await.unwrap();
        assert!(answer.contains("souk"), "{answer}");
    }
    drop((node, fake));
}

async fn all_ready(plane: &ControlPlane, namespace: &str) {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let job = format!("/apis/batch/v1/namespaces/{namespace}/jobs/opening");
    eventually(Duration::from_secs(180), || async {
        let deployments = plane.get(&path).await?;
        let items = deployments["items"].as_array().cloned().unwrap_or_default();
        let missing: Vec<&Value> = items
            .iter()
            .filter(|one| one["status"]["availableReplicas"] != one["spec"]["replicas"])
            .map(|one| &one["metadata"]["name"])
            .collect();
        anyhow::ensure!(
            items.len() == 12 && missing.is_empty(),
            "{} are not available: {missing:?}",
            missing.len()
        );
        anyhow::ensure!(
            plane.get(&job).await?["status"]["succeeded"] == 1,
            "the opening job has not succeeded"
        );
        Ok(())
    })
    .await;
}
