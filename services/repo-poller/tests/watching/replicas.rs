//! Two replicas share the repositories.

use events::ProjectId;
use events::configuration::GitReference;
use events::requests::repository::ReadFile;
use testkit::eventually;

use crate::harness::{DEADLINE, Harness};

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
            let read = ReadFile { agent, project, reference: GitReference::Default, path, limit: 100 };
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
