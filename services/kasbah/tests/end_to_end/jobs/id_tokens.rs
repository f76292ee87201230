//! Jobs that show by an ID token of their CI system who they are.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::{InstallationOptions, TokenIssuer, eventually};

use super::{Job, KUBECTL};
use crate::scene::{LIMIT, Scene};

const AUDIENCE: &str = "https://kasbah.example";

/// An installation whose operator allows the issuer for jobs of GitLab and GitHub, and `shop/app` over the issuer's repository.
async fn scene(issuer: &TokenIssuer) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("providers.yaml");
    let entry = |name: &str, audience: &str| {
        format!(
            "  - name: {name}\n    kind: {name}-jobs\n    issuer: {url}\n    audience: {audience}\n    ca_file: {ca}\n    repositories: {url}\n",
            url = issuer.url(),
            ca = issuer.ca_file().display(),
        )
    };
    let both = entry("gitlab", AUDIENCE) + &entry("github", "github-jobs");
    std::fs::write(&file, format!("identity_providers:\n{both}")).unwrap();
    let server = vec!["--identity-providers".to_owned(), file.display().to_string()];
    let options = InstallationOptions { server, ..InstallationOptions::default() };
    let cluster = testkit::shared_control_plane().await.unwrap();
    let scene = Scene::start_as(options, cluster, "").await;
    let repository = format!("{}/shop/app.git", issuer.url());
    scene.kasbah.cli(["project", "create", "shop/app", "--repository", &repository]).unwrap();
    super::let_jobs_in(&scene, "groups", "shop").await;
    scene
}

fn of_gitlab(issuer: &TokenIssuer, more: Value) -> String {
    let mut claims = json!({
        "aud": AUDIENCE, "sub": "project_path:shop/app:ref_type:branch:ref:main",
        "namespace_id": "72", "namespace_path": "shop", "project_id": "20", "project_path": "shop/app",
        "job_id": "31", "pipeline_id": "30", "ref": "main", "ref_type": "branch", "ref_protected": "true",
        "environment": "staging", "deployment_tier": "staging",
    });
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    issuer.sign(claims).unwrap()
}

/// What it says is of another job than what was signed.
fn forged(issuer: &TokenIssuer) -> String {
    let [honest, other] = ["31", "32"].map(|job| of_gitlab(issuer, json!({ "job_id": job })));
    let (_, signature) = honest.rsplit_once('.').unwrap();
    let (said, _) = other.rsplit_once('.').unwrap();
    format!("{said}.{signature}")
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_gitlab_is_let_in_by_what_gitlab_signs_about_it_once() {
    let issuer = TokenIssuer::start().unwrap();
    let mut scene = scene(&issuer).await;
    let token = of_gitlab(&issuer, json!({}));
    let refused = Job::with(&scene, vec![("KASBAH_ID_TOKEN", token.clone())]).kasbah(&["ci", "kubeconfig"]);
    assert!(
        !refused.status.success() && said(&refused).contains("kasbah provider trust gitlab"),
        "{refused:?}"
    );
    scene.kasbah.cli(["provider", "trust", "gitlab", "--owner", "Shop"]).unwrap();

    let user: Value = eventually(LIMIT, || async {
        let token = of_gitlab(&issuer, json!({}));
        let job = Job::with(&scene, vec![("KASBAH_ID_TOKEN", token)]);
        let whoami: Value = serde_json::from_str(&job.script(&format!("{KUBECTL} auth whoami -o json"))?)?;
        Ok::<_, anyhow::Error>(whoami["status"]["userInfo"].clone())
    })
    .await;
    assert!(user["username"].as_str().unwrap().starts_with("kasbah:ci_job:"), "{user}");
    assert_eq!(user["extra"]["kasbah.dev/ci-pipeline"][0], "30");
    assert_eq!(user["extra"]["kasbah.dev/environment"][0], "staging");

    let job = Job::with(&scene, vec![("KASBAH_ID_TOKEN", token.clone())]);
    let first = job.kasbah(&["ci", "kubeconfig", "--format", "dotenv"]);
    assert!(first.status.success(), "{first:?}");
    let variables = String::from_utf8_lossy(&first.stdout).into_owned();
    let again = job.kasbah(&["ci", "kubeconfig"]);
    assert!(!again.status.success() && said(&again).contains("already used"), "{again:?}");
    let kept = variables.lines().find_map(|line| line.strip_prefix("KASBAH_TOKEN_FILE=")).unwrap().to_owned();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&kept).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let next = Job::with(&scene, vec![("KASBAH_ID_TOKEN", token.clone()), ("KASBAH_TOKEN_FILE", kept)]);
    let next = next.kasbah(&["ci", "kubeconfig"]);
    assert!(next.status.success(), "the job goes on with what it was given: {next:?}");

    for (wrong, reason) in [
        (
            of_gitlab(&issuer, json!({ "namespace_path": "bank", "namespace_id": "73" })),
            "kasbah provider trust",
        ),
        (of_gitlab(&issuer, json!({ "project_path": "shop/other" })), "no project has the repository"),
        (of_gitlab(&issuer, json!({ "aud": "https://vault.example" })), "is for another audience"),
        (of_gitlab(&issuer, json!({ "iat": 1_700_000_000, "exp": 1_700_000_300 })), "expired"),
        (forged(&issuer), "signature"),
    ] {
        let output = Job::with(&scene, vec![("KASBAH_ID_TOKEN", wrong)]).kasbah(&["ci", "kubeconfig"]);
        assert!(!output.status.success() && said(&output).contains(reason), "{reason}: {}", said(&output));
    }
    let log = std::fs::read_to_string(scene.kasbah.server().unwrap().log()).unwrap();
    assert!(!log.contains(&token), "an ID token stands in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_github_asks_for_its_id_token_by_itself() {
    let issuer = TokenIssuer::start().unwrap();
    let scene = scene(&issuer).await;
    scene.kasbah.cli(["provider", "trust", "github", "--owner", "shop"]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/token?api-version=2.0", listener.local_addr().unwrap());
    let claims = json!({
        "aud": "github-jobs", "sub": "repo:shop/app:environment:staging", "repository": "shop/app",
        "repository_id": "74", "repository_owner": "shop", "repository_owner_id": "65", "workflow": "Deploy",
        "run_id": "30", "ref": "refs/heads/main", "ref_protected": "true", "environment": "staging",
    });
    let answer = json!({ "value": issuer.sign(claims).unwrap() }).to_string();
    let runner = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = vec![0_u8; 8192];
        let length = stream.read(&mut request).unwrap();
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
        write!(stream, "{head} {}\r\n\r\n{answer}", answer.len()).unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    eventually(LIMIT, || async {
        let listed = Job::of(&scene, "shop/app", &["--environment", "staging"]).kasbah(&["ci", "kubeconfig"]);
        anyhow::ensure!(listed.status.success(), "{}", said(&listed));
        Ok(())
    })
    .await;
    let variables = vec![
        ("ACTIONS_ID_TOKEN_REQUEST_URL", url),
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "runner-secret".to_owned()),
    ];
    let job = Job::with(&scene, variables);
    let output = job.kasbah(&["ci", "kubeconfig"]);
    let asked = runner.join().unwrap();
    assert!(asked.starts_with("GET /token?api-version=2.0&audience=github-jobs "), "{asked}");
    assert!(asked.to_lowercase().contains("authorization: bearer runner-secret"), "{asked}");
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("KUBE_CONTEXT='shop/deploy:production'"));
}
