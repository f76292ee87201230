//! Webhooks.

use bus::Received;
use events::Notice as _;
use events::ProjectId;
use events::requests::repository::RepositoryPushed;
use events::subject::Subject;
use reqwest::StatusCode;
use ring::hmac;
use serde_json::Value;

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
