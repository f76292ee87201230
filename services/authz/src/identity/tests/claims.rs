use events::directory::JobEnvironment;

use super::*;

fn job(verified: Verified) -> (JobClaims, JobFacts) {
    match verified.said {
        TokenSubject::Job { claims, facts } => (claims, facts),
        TokenSubject::Person { .. } => panic!("a person"),
    }
}

#[tokio::test]
async fn a_job_of_gitlab_is_what_gitlab_says() {
    let scene = Scene::new();
    let verified = scene.verified(gitlab_job()).await.unwrap();
    assert_eq!((verified.provider.as_str(), verified.kind), ("gitlab", ProviderKind::GitlabJobs));
    assert_eq!(verified.subject, "project_path:shop/web/deployment:ref_type:branch:ref:main");
    assert_eq!(verified.token_lifetime, Duration::from_secs(3600));
    let (claims, facts) = job(verified);
    assert_eq!(claims.owners, ["shop/web", "id:72"]);
    assert_eq!(claims.repository, "https://gitlab.example.org/shop/web/deployment");
    assert_eq!((claims.provider.as_str(), claims.external_id), ("gitlab", Some(20)));
    let environment = JobEnvironment { name: "shop/production".to_owned(), tier: "production".to_owned() };
    let wanted = JobFacts {
        name: "job 302".to_owned(),
        pipeline: "574".to_owned(),
        reference: "refs/heads/main".to_owned(),
        is_protected: true,
        environment: Some(environment),
    };
    assert_eq!(facts, wanted);
}

#[tokio::test]
async fn a_job_of_gitlab_may_say_less() {
    let scene = Scene::new();
    let mut claims = gitlab_job();
    for name in ["environment", "deployment_tier", "namespace_id"] {
        claims[name] = Value::Null;
    }
    claims["project_id"] = json!(20);
    claims["ref_type"] = json!("tag");
    claims["ref_protected"] = json!("false");
    let (claims, facts) = job(scene.verified(claims).await.unwrap());
    assert_eq!((claims.owners, claims.external_id), (vec!["shop/web".to_owned()], Some(20)));
    assert_eq!(
        (facts.reference.as_str(), facts.is_protected, facts.environment),
        ("refs/tags/main", false, None)
    );
}

#[tokio::test]
async fn a_job_of_github_is_what_github_says() {
    let scene = Scene::new();
    let (claims, facts) = job(scene.verified(github_job()).await.unwrap());
    assert_eq!(claims.owners, ["shop", "id:65"]);
    assert_eq!(claims.repository, "https://github.example.org/shop/deployment");
    assert_eq!((claims.provider.as_str(), claims.external_id), ("github", Some(74)));
    let environment = JobEnvironment { name: "prod".to_owned(), tier: String::new() };
    let wanted = JobFacts {
        name: "Deploy".to_owned(),
        pipeline: "30".to_owned(),
        reference: "refs/heads/main".to_owned(),
        is_protected: true,
        environment: Some(environment),
    };
    assert_eq!(facts, wanted);
}

#[tokio::test]
async fn the_number_of_an_owner_says_that_it_is_one() {
    let scene = Scene::new();
    let (claims, _) = job(scene.verified(with(gitlab_job(), "namespace_path", json!("71/x"))).await.unwrap());
    assert_eq!(claims.owners, ["71/x", "id:72"]);
}

#[tokio::test]
async fn a_person_is_known_by_a_verified_address() {
    let scene = Scene::new();
    let verified = scene.verified(person()).await.unwrap();
    assert_eq!((verified.subject.as_str(), verified.kind), ("248289761001", ProviderKind::People));
    assert_eq!(verified.token_lifetime, Duration::from_secs(7 * 24 * 3600));
    assert_eq!(verified.said, TokenSubject::Person { login: "ada@example.org".to_owned() });
    assert!(scene.verified(with(person(), "email_verified", json!("true"))).await.is_ok());
    for value in [Value::Null, json!(false), json!("false"), json!(1)] {
        let message = scene.refused(with(person(), "email_verified", value)).await;
        assert!(message.contains("email_verified") && message.contains("login_claim"), "{message}");
    }
    assert!(scene.refused(with(person(), "email", Value::Null)).await.contains("has no email"));
    assert!(scene.refused(with(person(), "email", json!(""))).await.contains("has no email"));
    let odd = scene.refused(with(person(), "email", json!("ada lovelace"))).await;
    assert!(odd.contains("not a login name") && !odd.contains("lovelace"), "{odd}");
    assert!(scene.refused(with(person(), "sub", Value::Null)).await.contains("has no sub"));
}

#[tokio::test]
async fn a_token_for_another_client_is_refused() {
    let scene = Scene::new();
    assert!(scene.verified(with(person(), "azp", json!("kasbah"))).await.is_ok());
    assert!(scene.refused(with(person(), "azp", json!("other"))).await.contains("another client"));
    let listed = with(person(), "aud", json!(["kasbah", "other"]));
    assert!(scene.refused(listed.clone()).await.contains("another client"));
    assert!(scene.verified(with(listed, "azp", json!("kasbah"))).await.is_ok());
}

#[tokio::test]
async fn a_job_does_not_pass_for_a_person() {
    let scene = Scene::new();
    let mut claims = gitlab_job();
    for (name, value) in person().as_object().unwrap() {
        claims[name] = value.clone();
    }
    assert!(scene.refused(claims).await.contains("is a job's"));
    assert!(scene.refused(with(person(), "aud", json!(AUDIENCE))).await.contains("has no"));
}

#[tokio::test]
async fn odd_texts_are_refused() {
    let scene = Scene::new();
    let texts = [
        "sub",
        "namespace_path",
        "project_path",
        "project_id",
        "job_id",
        "pipeline_id",
        "ref",
        "environment",
    ];
    for claim in texts {
        let message = scene.refused(with(gitlab_job(), claim, json!("a\u{7}b"))).await;
        assert!(message.starts_with(claim), "{message}");
    }
    for claim in ["namespace_path", "ref", "environment"] {
        assert!(scene.verified(with(gitlab_job(), claim, json!("é".repeat(256)))).await.is_ok());
        let message = scene.refused(with(gitlab_job(), claim, json!("é".repeat(257)))).await;
        assert!(message.contains("256"), "{message}");
        assert!(scene.refused(with(gitlab_job(), claim, json!(["a"]))).await.contains("not text"));
    }
    for path in ["../other", "a//b", "/a", "a/"] {
        assert!(scene.refused(with(gitlab_job(), "project_path", json!(path))).await.contains("not a path"));
    }
    for number in [json!("-1"), json!("1.5"), json!(-1)] {
        assert!(scene.refused(with(gitlab_job(), "project_id", number)).await.contains("project_id"));
    }
}
