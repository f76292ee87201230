//! Two replicas share the repositories.

use std::sync::Arc;

use async_trait::async_trait;
use bus::{Bus as _, LocalBus};
use bytes::Bytes;
use events::configuration::GitReference;
use events::repository::RepositoryEvent;
use events::requests::repository::{ReadFile, RepositoryPushed};
use events::subject::Subject;
use events::{BlobDigest, CorrelationId, Notice as _, OrganizationId, ProjectId};
use store::{Addresses, BlobError, Blobs};
use testkit::eventually;
use tokio::sync::watch;

use crate::harness::{DEADLINE, Harness, source};

const REPOSITORIES: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_repository_is_watched_by_one_replica_and_moves_when_that_goes() {
    let harness = Harness::new().await;
    let mut watched = Vec::new();
    for number in 0..REPOSITORIES {
        let (url, tree, _) = harness.repository(&format!("shop-{number}"), &[("one.yaml", "first")]);
        let project = harness.project(&url).await;
        watched.push((project, harness.agent(project).await, tree));
    }
    let one = harness.start().await;
    let _two = harness.start_in("repositories of another replica").await;
    let read_all = async |content: &'static str| {
        for (project, agent, _) in &watched {
            let (agent, project, path) = (*agent, *project, "one.yaml".to_owned());
            let read = ReadFile {
                agent,
                project,
                reference: GitReference::Default,
                path,
                limit: 100,
                fresh: false,
                watch_seconds: None,
            };
            // Whoever is asked, and while it moves it may be nobody's for a moment.
            eventually(DEADLINE, || async {
                let file = harness.ask(&read).await?;
                let now = String::from_utf8_lossy(&file.content.unwrap_or_default()).into_owned();
                anyhow::ensure!(now == content, "{now:?}, not {content:?}");
                Ok(())
            })
            .await;
        }
    };
    for _ in 0..5 {
        read_all("first").await;
    }
    let push_all = async |content: &'static str| {
        let mut commits = Vec::new();
        for (project, _, tree) in &watched {
            tree.write("one.yaml", content).unwrap();
            commits.push((*project, tree.commit_and_push(content).unwrap()));
            harness.push(*project).await;
        }
        // Repositories with the same content have the same commits.
        let noticed = |(project, commit): &(ProjectId, String)| {
            let notices = harness.notices();
            notices.iter().filter(|notice| notice.project == *project && notice.commit == *commit).count()
        };
        eventually(DEADLINE, || async {
            anyhow::ensure!(commits.iter().all(|commit| noticed(commit) > 0), "not all are noticed");
            Ok(())
        })
        .await;
        commits.iter().map(noticed).collect::<Vec<_>>()
    };
    assert_eq!(push_all("second").await, vec![1; REPOSITORIES], "more than one replica looked");
    read_all("second").await;
    one.stop().await;
    assert_eq!(push_all("third").await, vec![1; REPOSITORIES]);
    read_all("third").await;
}

/// Blobs that take nothing for a while.
struct Slow {
    inner: Arc<dyn Blobs>,
    stalled: watch::Receiver<bool>,
    waiting: watch::Sender<bool>,
}

#[async_trait]
impl Blobs for Slow {
    async fn put(
        &self,
        organization: OrganizationId,
        contents: Vec<Bytes>,
    ) -> Result<Vec<BlobDigest>, BlobError> {
        self.waiting.send_replace(*self.stalled.borrow());
        self.stalled.clone().wait_for(|stalled| !stalled).await.unwrap();
        self.inner.put(organization, contents).await
    }

    async fn get(&self, organization: OrganizationId, digest: BlobDigest) -> Result<Bytes, BlobError> {
        self.inner.get(organization, digest).await
    }

    async fn addresses(&self, organization: OrganizationId) -> Result<Addresses, BlobError> {
        self.inner.addresses(organization).await
    }

    async fn contains(&self, organization: OrganizationId, digest: BlobDigest) -> Result<bool, BlobError> {
        self.inner.contains(organization, digest).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_held_up_does_not_bring_an_older_commit_back() {
    let harness = Harness::new().await;
    let manifest = |value: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: one, namespace: a}}\ndata: {{value: {value}}}\n"
        )
    };
    let (url, tree, first) = harness.repository("shop", &[("one.yaml", &manifest("first"))]);
    let project = harness.project(&url).await;
    let agent = harness.agent(project).await;
    harness.configure(agent, vec![source(agent, "shop", project, &["**"])]).await;
    let _seen = harness.start().await;
    harness.wait_advanced(&first).await;
    let (stall, stalled) = watch::channel(false);
    let (waiting, mut waits) = watch::channel(false);
    let blobs = Arc::new(Slow { inner: Arc::clone(&harness.store.blobs), stalled, waiting });
    let apart = Arc::new(LocalBus::new(harness.world.clone()));
    let (_unseen, _serving) = harness.start_unseen(&apart, blobs).await;
    let tell_unseen = async || {
        let correlation_id = CorrelationId(harness.world.new_uuid());
        let pushed = RepositoryPushed { project, reference: None, correlation_id, traceparent: None };
        let body = events::encode(&pushed).unwrap();
        apart.publish(&Subject::notice(RepositoryPushed::NAME), body.into()).await.unwrap();
    };
    let push = |value: &str| {
        tree.write("one.yaml", manifest(value)).unwrap();
        tree.commit_and_push(value).unwrap()
    };
    stall.send_replace(true);
    let second = push("second");
    tell_unseen().await;
    waits.wait_for(|waits| *waits).await.unwrap();
    let third = push("third");
    harness.push(project).await;
    harness.wait_advanced(&third).await;
    stall.send_replace(false);
    // The next commit can only be said by the one that was held up, after it looked again.
    let fourth = push("fourth");
    tell_unseen().await;
    harness.wait_advanced(&fourth).await;
    let said = harness.said().await.into_iter().filter_map(|(_, event)| match event {
        RepositoryEvent::SourceAdvanced(advanced) => Some(advanced.commit),
        _ => None,
    });
    let said: Vec<String> = said.collect();
    assert_eq!(said, [first, third, fourth], "the second commit is {second}");
}
