//! People who are disabled, tokens that end, and projects that go.

use events::RefusalKind;
use events::directory::{Role, TokenLifetimes};
use events::requests::authz::{
    AgentWithToken, AssignRole, DeleteAgent, DeleteGroup, DeleteProject, DisableUser, EnableUser,
    IssueJobToken, IssueToken, ListProjects, RegisterAgent, SetTokenLifetimes,
};

use crate::running::{Running, project};

fn personal(lifetime_seconds: Option<u64>, clusters_only: bool) -> IssueToken {
    IssueToken { agent: None, user: None, name: "t".to_owned(), lifetime_seconds, clusters_only }
}

#[tokio::test]
async fn everything_of_a_user_who_is_disabled_ends_at_once() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let ann = running.user(&owner, "ann", Role::Owner).await;
    running.ask(&owner, &project("shop/front", "https://git.example/shop.git")).await.unwrap();
    let register = RegisterAgent { name: "edge".to_owned(), project: "shop/front".to_owned(), group: None };
    let AgentWithToken { agent, token, .. } = running.ask(&ann, &register).await.unwrap();
    let second = running.ask(&ann, &personal(None, false)).await.unwrap();
    let job = IssueJobToken {
        project: "shop/front".to_owned(),
        name: "deploy".to_owned(),
        environment: None,
        protected: false,
        lifetime_seconds: None,
    };
    let job = running.ask(&ann, &job).await.unwrap();
    let secrets = [&ann.secret, &second.secret, &token.secret, &job.secret];
    let keep = DisableUser { user: "ann".to_owned(), keep_agents_tokens: true };
    let kept = running.ask(&owner, &keep).await.unwrap();
    assert!(kept.user.disabled);
    let holders =
        |views: &[events::requests::authz::TokenView]| views.iter().map(|view| view.id).collect::<Vec<_>>();
    assert_eq!((holders(&kept.ended), holders(&kept.kept)), (vec![job.view.id], vec![token.view.id]));
    assert!(running.principal(&token.secret).await.is_ok());
    let all = DisableUser { user: "ann".to_owned(), keep_agents_tokens: false };
    let ended = running.ask(&owner, &all).await.unwrap();
    assert_eq!((holders(&ended.ended), ended.kept.len()), (vec![token.view.id], 0));
    assert!(ended.ended[0].revoked_at.is_some(), "so that what is open by it ends");
    for secret in secrets {
        assert_eq!(running.principal(secret).await.unwrap_err().kind, RefusalKind::Unauthenticated);
    }
    assert!(running.ask(&ann, &ListProjects::default()).await.unwrap().items.is_empty());
    let enabled = running.ask(&owner, &EnableUser { user: "ann".to_owned() }).await.unwrap();
    assert!(!enabled.disabled);
    for secret in secrets {
        assert!(running.principal(secret).await.is_err(), "no token of before comes back");
    }
    let delete = DeleteProject { project: "shop/front".to_owned() };
    let refusal = running.ask(&owner, &delete).await.unwrap_err();
    assert!(refusal.message.contains("agent edge"), "{refusal}");
    running.ask(&owner, &DeleteAgent { agent: agent.id.to_string() }).await.unwrap();
    running.ask(&owner, &delete).await.unwrap();
    running.ask(&owner, &DeleteGroup { group: "shop".to_owned() }).await.unwrap();
    running.ask(&owner, &project("shop/front", "https://git.example/shop.git")).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn personal_tokens_end_agents_tokens_do_not_and_kubectls_are_for_clusters() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let issued = running.ask(&owner, &personal(None, false)).await.unwrap().view;
    let lives = |view: &events::requests::authz::TokenView| {
        u64::try_from(view.expires_at.unwrap().millis_since(view.issued_at)).unwrap() / 1000
    };
    assert_eq!(lives(&issued), TokenLifetimes::default().default_seconds);
    let set = SetTokenLifetimes { default_seconds: Some(60), longest_seconds: Some(3600) };
    let view = running.ask(&owner, &set).await.unwrap();
    assert_eq!((view.token_lifetimes.default_seconds, view.token_lifetimes.longest_seconds), (60, 3600));
    assert_eq!(lives(&running.ask(&owner, &personal(None, false)).await.unwrap().view), 60);
    let refusal = running.ask(&owner, &personal(Some(3601), false)).await.unwrap_err();
    assert_eq!(refusal.field.as_deref(), Some("lifetime_seconds"));

    running.ask(&owner, &project("shop/front", "https://git.example/shop.git")).await.unwrap();
    let register = RegisterAgent { name: "edge".to_owned(), project: "shop/front".to_owned(), group: None };
    running.ask(&owner, &register).await.unwrap();
    let of_agent = |lifetime| IssueToken { agent: Some("edge".to_owned()), ..personal(lifetime, false) };
    assert_eq!(running.ask(&owner, &of_agent(None)).await.unwrap().view.expires_at, None);
    let refusal = running.ask(&owner, &of_agent(Some(60))).await.unwrap_err();
    assert!(refusal.message.contains("agents' tokens do not expire"), "{refusal}");

    let kubectls = running.ask(&owner, &personal(Some(900), true)).await.unwrap();
    assert!(kubectls.view.clusters_only);
    let refusal = running.principal(&kubectls.secret).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Denied, "it reaches no API of Kasbah's");
    let another = IssueToken { user: Some("owner".to_owned()), agent: None, ..personal(None, true) };
    running.ask(&owner, &another).await.unwrap();
    let shared = running.ensure_shared_owner().await;
    assert!(shared.token.is_none(), "the first one lives");
    running.stop().await;
}

#[tokio::test]
async fn two_owners_who_withdraw_each_other_at_once_leave_one() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let withdraw =
        |user: &str, withdraw| AssignRole { user: user.to_owned(), role: Role::Owner, scope: None, withdraw };
    for round in 0..4 {
        let [ann, bob] = [format!("ann{round}"), format!("bob{round}")];
        let people =
            [running.user(&owner, &ann, Role::Owner).await, running.user(&owner, &bob, Role::Owner).await];
        // Only these two are left.
        running.ask(&people[0], &withdraw("owner", true)).await.unwrap();
        let (of_bob, of_ann) = (withdraw(&bob, true), withdraw(&ann, true));
        let answers = futures::join!(running.ask(&people[0], &of_bob), running.ask(&people[1], &of_ann));
        let done = [answers.0.is_ok(), answers.1.is_ok()];
        assert!(done[0] != done[1], "{done:?}");
        let (left, name) = if done[0] { (&people[0], &ann) } else { (&people[1], &bob) };
        running.ask(left, &withdraw("owner", false)).await.unwrap();
        running.ask(&owner, &withdraw(name, true)).await.unwrap();
    }
    running.stop().await;
}
