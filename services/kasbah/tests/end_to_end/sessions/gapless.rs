//! Watches that are open all the time, through the tunnel and beside it.

use std::process::Stdio;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::Tools;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::Ground;
use crate::scene::LIMIT;

const CHURNED: &str = "churned";
const LAST: &str = "last";
/// Between two changes.
const PAUSE: Duration = Duration::from_millis(100);

/// One watch at the API server itself and one at each gateway, while something changes all the time.
pub(super) struct Watches<'a> {
    ground: &'a Ground,
    direct: Watch,
    through: Vec<Watch>,
    churning: JoinHandle<()>,
}

struct Watch {
    _kubectl: Child,
    events: JoinHandle<Vec<Value>>,
}

impl Watch {
    fn begin(mut command: Command) -> Self {
        let mut kubectl = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(kubectl.stdout.take().unwrap()).lines();
        let events = tokio::spawn(async move {
            let mut events: Vec<Value> = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                let event: Value = serde_json::from_str(&line).unwrap();
                let is_last = event["object"]["metadata"]["name"] == LAST;
                events.push(event);
                if is_last {
                    return events;
                }
            }
            panic!("the watch ended after {} events: {:?}", events.len(), events.last());
        });
        Self { _kubectl: kubectl, events }
    }

    async fn end(self) -> Vec<Value> {
        tokio::time::timeout(LIMIT, self.events).await.expect("it sees the last event in time").unwrap()
    }
}

impl<'a> Watches<'a> {
    pub(super) async fn begin(ground: &'a Ground) -> Self {
        let collection = format!("/api/v1/namespaces/{}/configmaps", ground.scene.namespace);
        let cluster = &ground.scene.cluster;
        let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let made = cluster.create_object(&collection, &map(CHURNED)).await.unwrap();
        let version = made["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{collection}?watch=1&resourceVersion={version}&timeoutSeconds=3600");
        let arguments = ["get", "--raw", &path];
        let mut direct = Command::new(Tools::find().unwrap().path("kubectl").unwrap());
        direct.arg("--kubeconfig").arg(cluster.kubeconfig()).args(arguments).kill_on_drop(true);
        let through = ground.people.iter().map(|person| Watch::begin(person.kubectl_command(&arguments)));
        let (direct, through) = (Watch::begin(direct), through.collect());
        let churning = tokio::spawn({
            let (cluster, path) = (cluster.clone(), format!("{collection}/{CHURNED}"));
            async move {
                let mut changes = tokio::time::interval(PAUSE);
                for number in 0_u64.. {
                    changes.tick().await;
                    let patch = json!({"data": {"number": number.to_string()}});
                    let body = Some(("application/merge-patch+json", &patch));
                    cluster.send(Method::PATCH, &path, body).await.unwrap();
                }
            }
        });
        Self { ground, direct, through, churning }
    }

    /// Event by event.
    pub(super) async fn saw_the_same(self) {
        self.churning.abort();
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LAST}});
        let collection = format!("/api/v1/namespaces/{}/configmaps", self.ground.scene.namespace);
        self.ground.scene.cluster.create_object(&collection, &last).await.unwrap();
        let expected = self.direct.end().await;
        assert!(expected.len() > 100, "only {} events", expected.len());
        for watch in self.through {
            let seen = watch.end().await;
            assert_eq!(seen.len(), expected.len());
            assert!(seen == expected, "another event than at the API server");
        }
    }
}
