//! Webhooks.

use bus::Received;
use events::Notice as _;
use events::ProjectId;
use events::requests::environments::ReportedDeployment;
use events::requests::repository::RepositoryPushed;
use events::subject::Subject;
use reqwest::StatusCode;
use ring::hmac;
use serde_json::Value;

use crate::behind::DEPLOYMENT;
use crate::serving::{Console, HOME, answer};

const PUSH: &str = r#"{"ref":"refs/heads/main","commits":[]}"#;

impl Console {
    async fn hook(
        &self,
        project: &str,
        header: Option<(&str, &str)>,
        body: &'static str,
    ) -> (StatusCode, Value) {
        let mut request = self.client.post(self.url(&format!("/hooks/v1/{project}"))).body(body);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        answer(request.send().await.unwrap()).await
    }
}

fn signature(secret: &str, body: &str) -> String {
    hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body.as_bytes()))
}

#[tokio::test]
async fn a_push_is_announced_at_once_with_a_chain_of_its_own() {
    let console = Console::start().await;
    let project = ProjectId(console.world.new_uuid());
    console.behind.has(project, console.home.organization);
    let mut pushes = console.bus.subscribe(&Subject::notice(RepositoryPushed::NAME)).await.unwrap();
    let (status, view) = console.get(HOME, &format!("/api/v1/projects/{project}/webhook")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(view["url"], console.url(&format!("/hooks/v1/{project}")));
    let secret = view["secret"].as_str().unwrap();
    let signed = signature(secret, PUSH);
    let prefixed = format!("sha256={signed}");
    let mut chains = std::collections::BTreeSet::new();
    for (header, value) in [
        ("Kasbah-Signature", prefixed.as_str()),
        ("X-Hub-Signature-256", prefixed.as_str()),
        ("X-Gitea-Signature", signed.as_str()),
        ("X-Gitlab-Token", secret),
    ] {
        let (status, accepted) = console.hook(&project.to_string(), Some((header, value)), PUSH).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{header}");
        let Some(Received::Message(body)) = pushes.receiver.recv().await else {
            panic!("no notice for {header}")
        };
        let pushed: RepositoryPushed = events::decode(&body).unwrap();
        assert_eq!((pushed.project, pushed.reference.as_deref()), (project, Some("refs/heads/main")));
        assert_eq!(accepted["correlation_id"], pushed.correlation_id.to_string());
        chains.insert(pushed.correlation_id);
    }
    assert_eq!(chains.len(), 4);
    let empty = format!("sha256={}", signature(secret, ""));
    let (status, _) = console.hook(&project.to_string(), Some(("Kasbah-Signature", &empty)), "").await;
    assert_eq!(status, StatusCode::ACCEPTED, "a post-receive hook need not say which ref");
    console.stop().await;
}

#[tokio::test]
async fn a_wrong_signature_and_an_unknown_project_read_the_same() {
    let console = Console::start().await;
    let (project, unknown) = (ProjectId(console.world.new_uuid()), ProjectId(console.world.new_uuid()));
    console.behind.has(project, console.home.organization);
    let mut pushes = console.bus.subscribe(&Subject::notice(RepositoryPushed::NAME)).await.unwrap();
    let (_, view) = console.get(HOME, &format!("/api/v1/projects/{project}/webhook")).await;
    let signed = format!("sha256={}", signature(view["secret"].as_str().unwrap(), PUSH));
    let mut answers = std::collections::BTreeSet::new();
    for (target, header) in [
        (project.to_string(), None),
        (project.to_string(), Some(("Kasbah-Signature", "sha256=00"))),
        (project.to_string(), Some(("X-Gitlab-Token", "guess"))),
        (unknown.to_string(), Some(("Kasbah-Signature", signed.as_str()))),
        (unknown.to_string(), None),
        ("no-id".to_owned(), Some(("X-Gitlab-Token", "guess"))),
    ] {
        let (status, refusal) = console.hook(&target, header, PUSH).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{target} {header:?}");
        answers.insert(refusal.to_string());
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(pushes.receiver.try_recv().is_err(), "nothing was announced");
    console.stop().await;
}

#[tokio::test]
async fn a_jobs_end_is_passed_on_for_the_project_that_signed_it_and_is_no_push() {
    const JOB: &str = r#"{"object_kind":"build","build_id":7,"build_status":"failed","repository":{"homepage":"https://git.example/g/p"}}"#;
    const RUNS: &str = r#"{"object_kind":"deployment","status":"running","deployable_url":"https://git.example/g/p/-/jobs/7"}"#;
    const OWN: &str = r#"{"job_url":"https://ci.example/1","status":"success"}"#;
    let console = Console::start().await;
    let project = ProjectId(console.world.new_uuid());
    console.behind.has(project, console.home.organization);
    let mut pushes = console.bus.subscribe(&Subject::notice(RepositoryPushed::NAME)).await.unwrap();
    let (_, view) = console.get(HOME, &format!("/api/v1/projects/{project}/webhook")).await;
    let secret = view["secret"].as_str().unwrap();
    let (status, accepted) = console.hook(&project.to_string(), Some(("X-Gitlab-Token", secret)), JOB).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{accepted}");
    assert_eq!(accepted["ended"], serde_json::json!([DEPLOYMENT]));
    let job = |url: &str| ReportedDeployment::JobUrl(url.to_owned());
    let [told] = &console.behind.reported()[..] else { panic!("one report") };
    assert_eq!((told.project, &told.which), (project, &job("https://git.example/g/p/-/jobs/7")));
    assert_eq!((told.succeeded, told.reason.as_str()), (false, "the job failed"));

    let (status, accepted) = console.hook(&project.to_string(), Some(("X-Gitlab-Token", secret)), RUNS).await;
    assert_eq!((status, &accepted["ended"]), (StatusCode::ACCEPTED, &serde_json::json!([])));
    assert_eq!(console.behind.reported(), [], "it runs");

    let signed = format!("sha256={}", signature(secret, OWN));
    let header = ("Kasbah-Signature", signed.as_str());
    let (status, _) = console.hook(&project.to_string(), Some(header), OWN).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert!(console.behind.reported()[0].succeeded);
    let (status, _) = console.hook(&project.to_string(), Some(header), JOB).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "the signature of another body");
    let wrong = r#"{"job_url":"https://ci.example/1","status":"perhaps"}"#;
    let (status, refusal) = console.hook(&project.to_string(), Some(("X-Gitlab-Token", secret)), wrong).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refusal}");
    assert_eq!(console.behind.reported(), []);
    assert!(pushes.receiver.try_recv().is_err(), "nobody pushed");
    console.stop().await;
}
