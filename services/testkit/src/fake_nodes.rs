//! Nodes without containers: kwok plays kubelet, so that pods get scheduled, ready, finished and deleted.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::json;

use crate::{Authority, ControlPlane, Process, Tools, free_port};

/// Fake nodes of one control plane; they stop reacting when this is dropped.
#[derive(Debug)]
pub struct FakeNodes {
    process: Process,
}

impl FakeNodes {
    /// Creates `count` nodes and starts the program that plays them. `stages` are files with Stage objects that say how
    /// kinds move through states; without any, nodes and pods become ready at once. Objects that say what pods write may stand there, too.
    pub async fn start(plane: &ControlPlane, count: usize, stages: &[&Path]) -> Result<Self> {
        let port = free_port()?.to_string();
        let folder = plane.folder();
        let authority = Authority::new("fake-nodes")?;
        let (certificate, key) =
            authority.server(&["fake-node"], &[[127, 0, 0, 1].into()])?.write(folder, "kwok")?;
        let mut command = Command::new(Tools::find()?.path("kwok")?);
        command.arg("--kubeconfig").arg(plane.kubeconfig());
        command.arg("--tls-cert-file").arg(certificate).arg("--tls-private-key-file").arg(key);
        command.args(["--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--cidr=10.96.0.0/12"]);
        command.args(["--node-ip=127.0.0.1", "--node-port", &port, "--server-address"]);
        command.arg(format!("127.0.0.1:{port}"));
        for stage in stages {
            command.arg("--config").arg(stage);
        }
        let process = Process::spawn("kwok", command, &folder.join("kwok.log"))?;
        for number in 1..=count {
            create_node(plane, &format!("fake-{number}")).await?;
        }
        Ok(Self { process })
    }

    /// Stops playing, as when all nodes lost power at once.
    pub fn stop(&mut self) {
        self.process.kill();
    }
}

async fn create_node(plane: &ControlPlane, name: &str) -> Result<()> {
    if plane.exists(&format!("/api/v1/nodes/{name}")).await? {
        return Ok(());
    }
    let labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    });
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
    });
    plane.create_object("/api/v1/nodes", &node).await?;
    Ok(())
}
