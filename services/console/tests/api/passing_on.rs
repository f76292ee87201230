//! Every route passes the request on as the caller, in the caller's organization, whatever the caller says.

use console::routes;
use events::{Actor, OrganizationId};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::behind::AGENT;
use crate::serving::{Console, STRANGER, answer};

const ID: &str = "0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55";

/// What is sent to each operation. A route that is not listed here fails the test: think of the stranger first.
#[expect(clippy::too_many_lines, reason = "a table, an operation a row")]
fn bodies() -> Vec<(&'static str, Option<Value>)> {
    vec![
        ("me", None),
        ("listOrganizations", None),
        ("createOrganization", Some(json!({ "name": "third", "owner": "ada" }))),
        ("listGroups", None),
        ("createGroup", Some(json!({ "name": "shop" }))),
        ("listProjects", None),
        ("createProject", Some(json!({ "path": "shop/front", "repository": "https://git.example/a.git" }))),
        ("showProject", None),
        ("setProject", Some(json!({ "default_branch": "main" }))),
        ("showWebhook", None),
        ("deleteProject", None),
        ("deleteGroup", None),
        ("setTokenLifetimes", Some(json!({ "default_seconds": 3600 }))),
        ("disableUser", Some(json!({ "keep_agents_tokens": true }))),
        ("enableUser", None),
        ("listUsers", None),
        ("showUser", None),
        ("createUser", Some(json!({ "name": "ada", "role": "viewer" }))),
        ("assignRole", Some(json!({ "role": "viewer", "withdraw": false }))),
        ("listCredentials", None),
        ("createCredential", Some(json!({ "name": "git", "host": "git.example", "secret": "s" }))),
        ("grantCredential", Some(json!({ "project": "shop/front" }))),
        ("revokeCredential", None),
        ("listTokens", None),
        ("issueToken", Some(json!({ "name": "laptop" }))),
        ("issueJobToken", Some(json!({ "name": "deploy" }))),
        ("listJobAgents", None),
        ("revokeToken", None),
        ("listSignIns", None),
        ("signIn", Some(json!({ "id_token": "e30.e30." }))),
        ("listIdentityProviders", None),
        ("trustIdentityProvider", Some(json!({ "owners": ["shop"] }))),
        ("distrustIdentityProvider", None),
        ("unlinkUser", None),
        ("showRoot", None),
        ("rotateRoot", Some(json!({}))),
        ("listAgents", None),
        ("registerAgent", Some(json!({ "name": "cluster", "project": "shop/front" }))),
        ("showAgent", None),
        ("deleteAgent", None),
        ("reviewAccess", Some(json!({ "attributes": { "verb": "get", "target": { "path": "/version" } } }))),
        ("showConfiguration", None),
        ("listAgentTunnels", None),
        ("listAgentStatuses", None),
        ("listTunnels", None),
        ("listSources", None),
        ("showSource", None),
        ("listSyncs", None),
        ("listSourceObjects", None),
        ("syncSource", None),
        ("suspendSource", Some(json!({ "reason": "maintenance" }))),
        ("resumeSource", None),
        ("pinSource", Some(json!({ "commit": "abc" }))),
        ("unpinSource", None),
        ("confirmSource", None),
        ("diffSource", None),
        ("findObjects", None),
        ("showObjectTree", None),
        ("explainHealth", None),
        ("showObject", None),
        ("listObjectChanges", None),
        ("showCoverage", None),
        ("listEnvironmentHealth", None),
        ("showEnvironmentTree", None),
        ("diffEnvironment", None),
        ("showTiers", None),
        ("listSubscriptions", None),
        ("createSubscription", Some(json!({ "name": "alerts", "url": "https://hooks.example/a" }))),
        ("showSubscription", None),
        ("deleteSubscription", None),
        ("replaySubscription", Some(json!({}))),
        ("pauseSubscription", None),
        ("resumeSubscription", None),
        ("rotateSubscriptionSecret", Some(json!({}))),
        ("listDeadLetters", None),
        ("resendDeadLetters", Some(json!({}))),
        ("listEnvironments", None),
        ("createEnvironment", Some(json!({ "project": "shop/front", "name": "production" }))),
        ("showEnvironment", None),
        ("setEnvironment", Some(json!({ "tier": "other" }))),
        ("stopEnvironment", Some(json!({}))),
        ("previewStop", None),
        ("deleteEnvironment", None),
        ("listEnvironmentChanges", None),
        ("listDeployments", None),
        ("startDeployment", Some(json!({ "project": "shop/front", "env": "production" }))),
        ("showDeployment", None),
        ("finishDeployment", Some(json!({}))),
        ("failDeployment", Some(json!({}))),
        ("reviewDeployment", Some(json!({ "project": "shop/front", "env": "production" }))),
        ("readEvents", None),
        ("followEvents", None),
        ("readAudit", None),
        ("readRecording", None),
        ("showAggregate", None),
        ("listAggregates", None),
        ("readTrace", None),
        ("verifyLog", None),
    ]
}

fn path(template: &str) -> String {
    let kind = template.replace("{kind}", "source");
    let parts = kind.split('/').map(|part| if part.starts_with('{') { ID } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_route_asks_as_the_caller_in_their_own_organization() {
    let console = Console::start().await;
    let home = console.home.organization.to_string();
    let bodies = bodies();
    for route in routes::all() {
        let (_, body) = bodies
            .iter()
            .find(|(operation, _)| *operation == route.operation)
            .unwrap_or_else(|| panic!("{} is not tried as a stranger", route.operation));
        console.behind.take();
        let query = match route.operation {
            "diffEnvironment" => "?from=-1m",
            "followEvents" => "?project=shop%2Ffront",
            _ => "",
        };
        let request = console
            .client
            .request(route.method.clone(), console.url(&format!("{}{query}", path(route.path))))
            .bearer_auth(STRANGER)
            .header("kasbah-organization", &home)
            .header("x-actor", console.home.actor.to_string());
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let (status, answered) = answer(request.send().await.unwrap()).await;
        let expected = [StatusCode::OK, StatusCode::NOT_FOUND];
        assert!(expected.contains(&status), "{}: {status} {answered}", route.operation);
        let seen = console.behind.take();
        let from_caller: Vec<_> = seen.iter().filter(|seen| seen.name != "authz.authenticate").collect();
        assert!(route.operation == "me" || !from_caller.is_empty(), "{} asks nobody", route.operation);
        for seen in &from_caller {
            let asked = (seen.context.actor.clone(), seen.context.organization);
            let expected = match route.is_open {
                true => (Actor::service("console"), OrganizationId::SYSTEM),
                false => (console.stranger.actor.clone(), console.stranger.organization),
            };
            assert_eq!(asked, expected, "{}", seen.name);
        }
        for seen in seen.iter().filter(|seen| seen.name == "authz.authenticate") {
            assert_eq!(seen.context.actor, Actor::service("console"));
        }
        assert!(
            !answered.to_string().contains(&home),
            "{} tells a stranger of home: {answered}",
            route.operation
        );
    }
    assert_eq!(bodies.len(), routes::all().len(), "a body for a route that is not there");
    console.stop().await;
}

#[tokio::test]
async fn a_caller_cannot_say_who_they_are_or_where() {
    let console = Console::start().await;
    for field in ["organization", "actor", "context"] {
        let body = json!({ "name": "shop", field: console.home.organization });
        let (status, refusal) = console.call(STRANGER, Method::POST, "/api/v1/groups", Some(&body)).await;
        assert_eq!((status, refusal["field"].as_str()), (StatusCode::BAD_REQUEST, Some(field)));
        let (status, _) =
            console.get(STRANGER, &format!("/api/v1/groups?{field}={}", console.home.organization)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    console.stop().await;
}

#[tokio::test]
async fn without_a_live_token_every_route_says_the_same() {
    let console = Console::start().await;
    let (open, closed): (Vec<_>, Vec<_>) = routes::all().into_iter().partition(|route| route.is_open);
    let open: Vec<_> = open.iter().map(|route| route.operation).collect();
    assert_eq!(open, ["listSignIns", "signIn"], "think of everybody on the internet first");
    for route in closed {
        for token in [None, Some("kasbah_p_unknown")] {
            let mut request = console.client.request(route.method.clone(), console.url(&path(route.path)));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let response = request.send().await.unwrap();
            assert!(response.headers().contains_key("www-authenticate"), "{}", route.operation);
            let (status, refusal) = answer(response).await;
            assert_eq!(
                (status, refusal["kind"].as_str()),
                (StatusCode::UNAUTHORIZED, Some("unauthenticated"))
            );
        }
        let seen = console.behind.take();
        assert!(
            seen.iter().all(|seen| seen.name == "authz.authenticate"),
            "{} asks before it knows who",
            route.operation
        );
    }
    console.stop().await;
}

#[tokio::test]
async fn an_agent_may_be_called_by_its_name() {
    let console = Console::start().await;
    console.get(STRANGER, "/api/v1/sources?agent=shop%2Ffront%3Acluster").await;
    let names: Vec<_> = console.behind.take().into_iter().map(|seen| seen.name).collect();
    assert_eq!(names, ["authz.authenticate", "authz.show-agent", "delivery.list-sources"]);
    let (status, diff) =
        console.call(STRANGER, Method::POST, &format!("/api/v1/sources/{ID}/diff"), Some(&json!({}))).await;
    assert_eq!((status, &diff["unchanged"]), (StatusCode::OK, &json!(0)), "the diff went to agent {AGENT}");
    console.stop().await;
}

#[tokio::test]
async fn a_service_that_is_away_is_said_to_be() {
    let console = Console::start().await;
    let mut served = console;
    served.lose_services();
    let response =
        served.client.get(served.url("/api/v1/groups")).bearer_auth(STRANGER).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    served.stop().await;
}
