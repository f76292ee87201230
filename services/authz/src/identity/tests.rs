mod claims;
mod code;
mod files;
mod keys;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use events::{Refusal, RefusalKind};
use serde_json::{Value, json};
use testkit::TokenIssuer;
use world::clock::SystemClock;
use world::{Clock, World};

use super::*;

pub(super) const AUDIENCE: &str = "https://kasbah.example:8440";

/// The machine's clock, put forward by some seconds.
pub(super) struct AheadClock(SystemClock, AtomicU64);

impl AheadClock {
    pub(super) fn advance(&self, seconds: u64) {
        self.1.fetch_add(seconds, Ordering::Relaxed);
    }

    fn ahead(&self) -> Duration {
        Duration::from_secs(self.1.load(Ordering::Relaxed))
    }
}

#[async_trait]
impl Clock for AheadClock {
    fn now_millis(&self) -> i64 {
        self.0.now_millis() + i64::try_from(self.ahead().as_millis()).unwrap()
    }
    fn monotonic(&self) -> Duration {
        self.0.monotonic() + self.ahead()
    }
    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }
}

pub(super) struct Scene {
    pub(super) issuer: TokenIssuer,
    pub(super) clock: Arc<AheadClock>,
    pub(super) providers: IdentityProviders,
}

impl Scene {
    pub(super) fn new() -> Self {
        let issuer = TokenIssuer::start().unwrap();
        let clock = Arc::new(AheadClock(SystemClock::new(), AtomicU64::new(0)));
        let world = World { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..World::real() };
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(issuer.ca_file(), folder.path().join("ca.pem")).unwrap();
        let of = |name: &str, kind: &str, audience: &str, more: &str| {
            let url = issuer.url();
            format!(
                "  - {{name: {name}, kind: {kind}, issuer: '{url}', audience: '{audience}', ca_file: ca.pem{more}}}\n"
            )
        };
        let text = [
            "identity_providers:\n".to_owned(),
            of("gitlab", "gitlab-jobs", AUDIENCE, ", repositories: https://gitlab.example.org"),
            of("github", "github-jobs", "github-audience", ", repositories: https://github.example.org/"),
            of("company", "people", "kasbah", ", token_lifetime: 7d"),
        ]
        .concat();
        let file = folder.path().join("identity.yaml");
        std::fs::write(&file, text).unwrap();
        let providers = IdentityProviders::load(&file, &world).unwrap();
        Self { issuer, clock, providers }
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now_millis() / 1000
    }

    pub(super) async fn verified(&self, claims: Value) -> Result<Verified, Refusal> {
        self.providers.verify(&self.issuer.sign(claims).unwrap()).await
    }

    /// Why a token is refused that is wrong in itself.
    pub(super) async fn refused(&self, claims: Value) -> String {
        let refusal = self.verified(claims).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Unauthenticated, "{refusal}");
        refusal.message
    }
}

pub(super) fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

/// As of GitLab 18.
pub(super) fn gitlab_job() -> Value {
    json!({
        "aud": AUDIENCE,
        "sub": "project_path:shop/web/deployment:ref_type:branch:ref:main",
        "namespace_id": "72", "namespace_path": "shop/web",
        "project_id": "20", "project_path": "shop/web/deployment",
        "user_id": "1", "user_login": "ada", "user_email": "ada@example.org",
        "pipeline_id": "574", "pipeline_source": "push", "job_id": "302",
        "ref": "main", "ref_type": "branch", "ref_protected": "true",
        "environment": "shop/production", "deployment_tier": "production",
    })
}

pub(super) fn github_job() -> Value {
    json!({
        "aud": "github-audience", "sub": "repo:shop/deployment:ref:refs/heads/main",
        "repository": "shop/deployment", "repository_id": "74",
        "repository_owner": "shop", "repository_owner_id": "65",
        "workflow": "Deploy", "run_id": "30", "run_number": "10",
        "ref": "refs/heads/main", "ref_type": "branch", "ref_protected": "true",
        "environment": "prod",
    })
}

pub(super) fn person() -> Value {
    json!({ "aud": "kasbah", "sub": "248289761001", "email": "Ada@Example.org", "email_verified": true })
}
