use testkit::IssuerFault;

use super::*;

const ROUND: usize = 2;

async fn unavailable(scene: &Scene) -> String {
    let refusal = scene.verified(gitlab_job()).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal}");
    refusal.message
}

#[tokio::test]
async fn keys_are_fetched_once_for_all_who_wait() {
    let scene = Scene::new();
    let token = scene.issuer.sign(gitlab_job()).unwrap();
    let all = futures::future::join_all((0..20).map(|_| scene.providers.verify(&token))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(scene.issuer.requests(), ["/.well-known/openid-configuration", "/keys"]);
}

#[tokio::test]
async fn a_new_key_is_fetched_and_an_old_one_forgotten() {
    let scene = Scene::new();
    let old = scene.issuer.sign(gitlab_job()).unwrap();
    assert!(scene.providers.verify(&old).await.is_ok());
    scene.issuer.rotate().unwrap();
    assert!(scene.refused(gitlab_job()).await.contains("does not publish"));
    assert_eq!(scene.issuer.requests().len(), ROUND, "asked again within ten seconds");
    scene.clock.advance(10);
    let new = scene.issuer.sign(gitlab_job()).unwrap();
    let all = futures::future::join_all((0..20).map(|_| scene.providers.verify(&new))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(scene.issuer.requests().len(), 2 * ROUND);
    assert!(scene.providers.verify(&old).await.unwrap_err().message.contains("does not publish"));
    assert_eq!(scene.issuer.requests().len(), 2 * ROUND);
}

#[tokio::test]
async fn a_key_that_was_taken_back_is_forgotten_within_the_hour() {
    let scene = Scene::new();
    let lasting = || {
        let now = scene.now();
        with(with(gitlab_job(), "iat", json!(now)), "exp", json!(now + 12 * 3600))
    };
    let old = scene.issuer.sign(lasting()).unwrap();
    assert!(scene.providers.verify(&old).await.is_ok());
    scene.issuer.rotate().unwrap();
    scene.clock.advance(3500);
    assert!(scene.providers.verify(&old).await.is_ok());
    scene.clock.advance(200);
    assert!(scene.providers.verify(&old).await.is_err());
}

#[tokio::test]
async fn keys_outlive_their_issuer_by_a_day() {
    let scene = Scene::new();
    let now = scene.now();
    let on_day = |day: i64| {
        let issued = now + day * 24 * 3600;
        with(with(gitlab_job(), "iat", json!(issued)), "exp", json!(issued + 3600))
    };
    assert!(scene.verified(on_day(0)).await.is_ok());
    scene.issuer.set_fault(Some(IssuerFault::Status(503)));
    scene.clock.advance(23 * 3600 + 1800);
    let almost = with(with(gitlab_job(), "iat", json!(scene.now())), "exp", json!(scene.now() + 600));
    assert!(scene.verified(almost).await.is_ok());
    scene.clock.advance(1800);
    let refusal = scene.verified(on_day(1)).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unavailable);
    assert!(refusal.message.contains("HTTP status 503"), "{refusal}");
    scene.issuer.set_fault(None);
    scene.clock.advance(10);
    assert!(scene.verified(on_day(1)).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_is_away_is_not_the_tokens_fault() {
    let scene = Scene::new();
    scene.issuer.set_fault(Some(IssuerFault::Status(500)));
    assert!(unavailable(&scene).await.contains("HTTP status 500"));
    assert!(unavailable(&scene).await.contains("try again in 10 s"));
    assert_eq!(scene.issuer.requests().len(), 1, "asked again within ten seconds");
    let token = scene.issuer.sign(gitlab_job()).unwrap();
    let Scene { issuer, clock, providers } = scene;
    drop(issuer);
    clock.advance(10);
    let refusal = providers.verify(&token).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unavailable);
    assert!(!refusal.message.contains(token.split('.').next().unwrap()), "{refusal}");
}

#[tokio::test]
async fn an_answer_that_leads_astray_is_refused() {
    let other = TokenIssuer::start().unwrap();
    let faults = [
        (IssuerFault::OtherIssuer(other.url().to_owned()), "names the issuer"),
        (IssuerFault::Redirect(format!("{}/keys", other.url())), "redirects"),
        (IssuerFault::OtherKeys("http://keys.example/".to_owned()), "jwks_uri"),
        (IssuerFault::OtherKeys("file:///etc/passwd".to_owned()), "jwks_uri"),
        (IssuerFault::Padding(512 * 1024), "more than 512 KiB"),
    ];
    for (fault, wanted) in faults {
        let scene = Scene::new();
        scene.issuer.set_fault(Some(fault));
        let message = unavailable(&scene).await;
        assert!(message.contains(wanted), "{message}");
        assert_eq!(scene.issuer.requests().len(), 1);
    }
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let scene = Scene::new();
    let other = TokenIssuer::start().unwrap();
    scene.issuer.set_fault(Some(IssuerFault::OtherKeys(format!("{}/keys?x=1", other.url()))));
    let message = unavailable(&scene).await;
    assert!(message.contains("not trusted"), "{message}");
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn keys_for_other_uses_and_unknown_ones_are_passed_over() {
    let scene = Scene::new();
    let public = scene.issuer.key();
    scene.issuer.publish(json!({ "kty": "EC", "crv": "secp256k1", "kid": "key-1", "x": "AA", "y": "AA" }));
    scene.issuer.publish(json!("no key"));
    scene.issuer.publish(with(with(public.clone(), "use", json!("enc")), "kid", json!("enc")));
    scene.issuer.publish(with(with(public, "key_ops", json!(["deriveKey"])), "kid", json!("derive")));
    assert!(scene.verified(gitlab_job()).await.is_ok());
    for id in ["enc", "derive"] {
        let header = json!({ "alg": "ES256", "kid": id });
        let token = scene.issuer.sign_by(&header, gitlab_job(), |_| vec![1; 64]).unwrap();
        let refusal = scene.providers.verify(&token).await.unwrap_err();
        assert!(refusal.message.contains("does not publish"), "{refusal}");
    }
}
