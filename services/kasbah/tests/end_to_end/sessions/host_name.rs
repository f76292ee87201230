//! An agent's own host name, for clients that take no path: kubectl before 1.34 leaves it out with `--raw`.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::{InstallationOptions, eventually};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::older_kubectl::possible;
use super::{Ground, There};
use crate::cluster_api::Person;
use crate::scene::{AGENT, LIMIT};

const DOMAIN: &str = "clusters.example";

/// A proxy by which every name leads to one address, as nothing on this machine knows the domain.
async fn proxy_to(gateway: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(connect(client, gateway));
        }
    });
    address
}

async fn connect(client: TcpStream, gateway: SocketAddr) -> std::io::Result<()> {
    let (mut client, mut line) = (BufReader::new(client), String::new());
    while line != "\r\n" {
        line.clear();
        client.read_line(&mut line).await?;
    }
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut TcpStream::connect(gateway).await?).await.map(|_| ())
}

/// Writes into somebody's kubeconfig that the cluster is behind this proxy.
fn leads(person: &Person, proxy: SocketAddr) {
    let text = std::fs::read_to_string(person.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster["proxy-url"] = format!("http://{proxy}").into();
    std::fs::write(person.kubeconfig(), kubeconfig.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_kubectls_with_a_real_node_need_no_path_at_an_agents_own_host_name() {
    let releases = match possible() {
        Ok(releases) => releases,
        Err(skipped) => {
            println!("{skipped}");
            return;
        }
    };
    let server = vec![format!("--clusters-domain={DOMAIN}")];
    let mut ground = Ground::start(InstallationOptions { server, ..InstallationOptions::default() }).await;
    ground.is_ready().await;
    let gateway = ground.scene.kasbah.clusters();
    let (_, gateway) = gateway.split_once("//").unwrap();
    let gateway: SocketAddr = gateway.parse().unwrap();
    let own = format!("https://{{agent}}.{DOMAIN}:{}", gateway.port());
    ground.people[0] = Person::at(&ground.scene.kasbah, AGENT, &own);
    leads(&ground.people[0], proxy_to(gateway).await);
    let maps = format!("/api/v1/namespaces/{}/configmaps", ground.scene.namespace);
    for (kubectl, upgrade) in releases {
        ground.people[0].takes_kubectl(&kubectl);
        let there = There { person: &ground.people[0], namespace: &ground.scene.namespace };
        let raw = there.person.kubectl(&["get", "--raw", "/version"]).await.unwrap();
        assert!(raw.contains("gitVersion"), "{raw}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "raw"}});
        let file = there.person.home().join("raw.json");
        std::fs::write(&file, map.to_string()).unwrap();
        there.person.kubectl(&["create", "--raw", &maps, "-f", file.to_str().unwrap()]).await.unwrap();
        let path = format!("{maps}/raw");
        there.person.kubectl(&["delete", "--raw", &path]).await.unwrap();
        eventually(LIMIT, || async {
            anyhow::ensure!(!ground.scene.cluster.exists(&path).await?, "it is still there");
            Ok(())
        })
        .await;
        there.begins_sessions_with(upgrade).await;
        there.runs_commands().await;
    }
}
