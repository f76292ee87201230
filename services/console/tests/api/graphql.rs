//! GraphQL: who may ask, limits, errors, pages.

use events::requests::index::{HealthState, ObjectChange};
use events::{AgentId, ObjectIdentity, Timestamp};
use reqwest::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::behind::AGENT;
use crate::serving::{Console, HOME, STRANGER, answer};

impl Console {
    /// Asks a query with variables.
    pub async fn graphql(&self, token: &str, query: &str, variables: Value) -> (StatusCode, Value) {
        let body = json!({ "query": query, "variables": variables });
        self.call(token, Method::POST, "/api/graphql", Some(&body)).await
    }
}

/// A change of the object of this name, recorded then.
pub fn change(name: &str, at: i64) -> ObjectChange {
    change_of(AGENT, name, at)
}

pub fn change_of(agent: AgentId, name: &str, at: i64) -> ObjectChange {
    let text = str::to_owned;
    ObjectChange {
        agent,
        agent_name: text("shop/front:cluster"),
        identity: ObjectIdentity {
            group: String::new(),
            version: text("v1"),
            kind: text("ConfigMap"),
            namespace: text("shop"),
            name: text(name),
        },
        uid: format!("uid-{name}"),
        number: 1,
        sequence: 0,
        recorded_at: Timestamp(at),
        seen_at: Timestamp(at),
        not_before: None,
        what: text("changed"),
        writer: None,
        fields: Vec::new(),
        field_count: 0,
        health: HealthState::Healthy,
        health_before: None,
        owned: false,
    }
}

fn extension<'a>(answered: &'a Value, name: &str) -> &'a Value {
    &answered["errors"][0]["extensions"][name]
}

#[tokio::test]
async fn without_a_live_token_it_says_what_every_route_says() {
    let console = Console::start().await;
    let url = console.url("/api/graphql");
    let body = json!({ "query": "{ __typename }" });
    for request in [
        console.client.post(&url).json(&body),
        console.client.post(&url).json(&body).bearer_auth("kasbah_p_unknown"),
        console.client.get(format!("{url}?query=%7B__typename%7D")),
        console.client.get(format!("{url}?query=%7B__typename%7D")).header(ACCEPT, "text/event-stream"),
        // Who is not signed in is not told what is wrong with a request.
        console.client.post(&url).body("{"),
    ] {
        let response = request.send().await.unwrap();
        assert!(response.headers().contains_key("www-authenticate"));
        let (status, refusal) = answer(response).await;
        assert_eq!((status, &refusal["kind"]), (StatusCode::UNAUTHORIZED, &json!("unauthenticated")));
    }
    assert!(console.behind.take().iter().all(|seen| seen.name == "authz.authenticate"));
    console.stop().await;
}

#[tokio::test]
async fn a_query_asks_as_the_caller_by_post_and_by_get() {
    let console = Console::start().await;
    let query = "query One($path: String!) { project(fullPath: $path) { fullPath defaultBranch } }";
    let (status, posted) = console.graphql(STRANGER, query, json!({ "path": "shop/front" })).await;
    let expected = json!({ "data": { "project": { "fullPath": "shop/front", "defaultBranch": "main" } } });
    assert_eq!((status, &posted), (StatusCode::OK, &expected));
    let asked = console.behind.take().into_iter().find(|seen| seen.name == "authz.show-project").unwrap();
    let asker = (asked.context.actor, asked.context.organization);
    assert_eq!(asker, (console.stranger.actor.clone(), console.stranger.organization));
    let parameters = [("query", query), ("variables", r#"{"path":"shop/front"}"#), ("operationName", "One")];
    let url = reqwest::Url::parse_with_params(&console.url("/api/graphql"), &parameters).unwrap();
    let get = console.client.get(url).bearer_auth(STRANGER);
    let get = get.header(ACCEPT, "application/graphql-response+json").send().await.unwrap();
    assert_eq!(get.headers()[CONTENT_TYPE], "application/graphql-response+json");
    assert_eq!(answer(get).await, (StatusCode::OK, expected));
    console.stop().await;
}

#[tokio::test]
async fn a_refusal_has_its_kind_and_the_rest_is_answered() {
    let console = Console::start().await;
    let query = r#"{ project(fullPath: "shop/front") { fullPath } resource(filter: { name: "web" }) { resource { name } } }"#;
    let (status, answered) = console.graphql(HOME, query, json!({})).await;
    assert_eq!((status, extension(&answered, "kind")), (StatusCode::OK, &json!("not-found")), "{answered}");
    assert_eq!(answered["errors"][0]["path"], json!(["resource"]));
    for (query, field) in [
        (r#"{ changes(from: "yesterday") { nodes { name } } }"#, "from"),
        (r#"{ changes(from: "-1h", to: "-2h") { nodes { name } } }"#, "to"),
        (r#"{ changes(from: "-1h", first: 501) { nodes { name } } }"#, "first"),
        (r#"{ changes(from: "-1h", after: "c00") { nodes { name } } }"#, "after"),
        (r#"{ changes(from: "-1h", after: "c00.x") { nodes { name } } }"#, "after"),
        (r#"{ resources(at: "yesterday") { nodes { name } } }"#, "at"),
        (r#"{ resources(atLeast: "d0-1") { nodes { name } } }"#, "atLeast"),
        (r#"{ source(id: "one") { name } }"#, "id"),
    ] {
        let (_, answered) = console.graphql(HOME, query, json!({})).await;
        let said = (extension(&answered, "kind"), extension(&answered, "field"));
        assert_eq!(said, (&json!("invalid"), &json!(field)), "{query}: {answered}");
    }
    console.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_query_is_said_before_anything_is_asked() {
    let console = Console::start().await;
    let wide = (0..2_001).map(|number| format!("a{number}:a ")).collect::<String>();
    let costly = (0..20).map(|number| {
        format!("t{number}: resourceTree(filter: {{}}) {{ nodes {{ resource {{ name kind uid }} }} }} ")
    });
    for (query, limit) in [
        (format!("{{ {} }}", "a { ".repeat(40) + "a " + &"}".repeat(40)), json!("depth")),
        (format!("{{ {wide} }}"), json!("fields")),
        (format!("{{ {} }}", costly.collect::<String>()), json!("cost")),
        (format!("{{ __typename }} # {}", "x".repeat(33_000)), json!("queryBytes")),
        ("{ agents { nodes { nmae } } }".to_owned(), Value::Null),
        ("{".to_owned(), Value::Null),
        ("query A { __typename } query B { __typename }".to_owned(), Value::Null),
        ("mutation { __typename }".to_owned(), Value::Null),
    ] {
        console.behind.take();
        let (status, answered) = console.graphql(HOME, &query, json!({})).await;
        let said = (status, extension(&answered, "kind"), extension(&answered, "limit"));
        assert_eq!(said, (StatusCode::BAD_REQUEST, &json!("invalid"), &limit), "{answered}");
        let message = answered["errors"][0]["message"].as_str().unwrap();
        assert!(limit.is_null() || message.contains(&format!("`{}`", limit.as_str().unwrap())), "{message}");
        assert!(console.behind.take().iter().all(|seen| seen.name == "authz.authenticate"), "{answered}");
    }
    let (_, unknown) = console.graphql(HOME, "{ agents { nodes { nmae } } }", json!({})).await;
    let message = unknown["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("nmae") && message.contains("Agent"), "{message}");
    let many = (0..70).map(|number| format!("p{number}: project(fullPath: \"{number}\") {{ id }} "));
    let (_, answered) =
        console.graphql(HOME, &format!("{{ {} }}", many.collect::<String>()), json!({})).await;
    assert_eq!(extension(&answered, "limit"), "requests", "{answered}");
    let body = json!([{ "query": "{ __typename }" }]);
    let (status, refusal) = console.call(HOME, Method::POST, "/api/graphql", Some(&body)).await;
    assert_eq!((status, &refusal["field"]), (StatusCode::BAD_REQUEST, &json!("body")));
    console.stop().await;
}

#[tokio::test]
async fn changes_come_in_pages_which_leave_nothing_out() {
    let console = Console::start().await;
    for number in 0..9 {
        console.behind.changed(change(&format!("map-{number}"), 1_000 * i64::from(number)));
    }
    let names = |answered: &Value| -> Vec<String> {
        let edges = answered["data"]["changes"]["edges"].as_array().unwrap_or_else(|| panic!("{answered}"));
        edges.iter().map(|edge| edge["node"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let query = r#"query Page($after: String, $first: Int) {
        changes(from: "1970-01-01T00:00:01Z", to: "1970-01-01T00:00:07Z", first: $first, after: $after) {
            edges { cursor node { name recordedAt } } pageInfo { hasNextPage endCursor } } }"#;
    let wanted: Vec<String> = (1..=7).rev().map(|number| format!("map-{number}")).collect();
    for first in 1..=8 {
        let (mut seen, mut after) = (Vec::new(), Value::Null);
        loop {
            let (_, page) = console.graphql(HOME, query, json!({ "after": after, "first": first })).await;
            let found = names(&page);
            assert!(found.len() <= first, "{page}");
            seen.extend(found);
            let info = &page["data"]["changes"]["pageInfo"];
            if info["hasNextPage"] == false {
                break;
            }
            after = info["endCursor"].clone();
        }
        assert_eq!(seen, wanted, "in pages of {first}");
    }
    // Also from the middle of a page on.
    let (_, page) = console.graphql(HOME, query, json!({ "first": 5 })).await;
    for (place, edge) in page["data"]["changes"]["edges"].as_array().unwrap().iter().enumerate() {
        let variables = json!({ "after": edge["cursor"], "first": 2 });
        let (_, rest) = console.graphql(HOME, query, variables).await;
        let rest = names(&rest);
        assert_eq!(rest, wanted[place + 1..(place + 3).min(wanted.len())], "behind {place}");
    }
    console.stop().await;
}

#[tokio::test]
async fn an_answer_says_of_which_state_it_is_and_covers_what_it_must() {
    let console = Console::start().await;
    let query = r#"{ resourceTree(filter: { kind: "deploy" }) { leftOut asOf { position rules horizon } } }"#;
    let (_, tree) = console.graphql(HOME, query, json!({})).await;
    let position = tree["data"]["resourceTree"]["asOf"]["position"].as_str().unwrap().to_owned();
    assert!(position.starts_with("p_") && !tree.to_string().contains("123456"), "{tree}");
    let query = "query At($at: Position) { resources(atLeast: $at) { nodes { name } asOf { position } }
        resourceTree(filter: {}, atLeast: $at) { leftOut } }";
    let (_, covered) = console.graphql(HOME, query, json!({ "at": position })).await;
    assert_eq!(covered["data"]["resources"]["nodes"], json!([]), "{covered}");
    assert_eq!(console.behind.covered(), Some(crate::behind::as_of().position));
    let (_, refused) = console.graphql(STRANGER, query, json!({ "at": position })).await;
    assert_eq!(extension(&refused, "field"), "atLeast", "a position of another's log: {refused}");
    console.stop().await;
}

#[tokio::test]
async fn introspection_is_allowed_and_the_explorer_needs_nothing_from_elsewhere() {
    let console = Console::start().await;
    let query =
        "{ __schema { queryType { name } types { name fields { name args { name type { name } } } } } }";
    let (status, schema) = console.graphql(STRANGER, query, json!({})).await;
    assert_eq!((status, &schema["data"]["__schema"]["queryType"]["name"]), (StatusCode::OK, &json!("Query")));
    let get = |path: &str| console.client.get(console.url(path)).header(ACCEPT, "text/html,*/*;q=0.8").send();
    let page = get("/api/graphql").await.unwrap();
    let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let html = page.text().await.unwrap();
    assert!(!html.contains("://") && !html.contains(" style=") && !html.contains(" onclick="), "{html}");
    assert!(html.split("<script").skip(1).all(|script| script.contains("></script>")), "no inline script");
    for (path, media) in
        [("/api/graphql/explorer.js", "text/javascript"), ("/api/graphql/explorer.css", "text/css")]
    {
        let file = get(path).await.unwrap();
        assert!(html.contains(path) && file.headers()[CONTENT_TYPE].to_str().unwrap().starts_with(media));
        assert!(!file.text().await.unwrap().contains("http"), "{path} needs nothing from elsewhere");
    }
    console.stop().await;
}

/// The documentation's queries are good ones: each is executed, or refused only because the test has no such thing.
#[tokio::test]
async fn the_examples_of_the_documentation_are_understood() {
    let console = Console::start().await;
    let page = include_str!("../../../../docs/graphql.md");
    let examples: Vec<&str> =
        page.split("```graphql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() > 6, "{examples:?}");
    for example in examples {
        if example.starts_with("subscription") {
            let request = console.client.post(console.url("/api/graphql")).bearer_auth(HOME);
            let request = request.header(ACCEPT, "text/event-stream").json(&json!({ "query": example }));
            console.behind.take();
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{example}");
            let limit = std::time::Duration::from_secs(20);
            testkit::eventually(limit, || async {
                let seen = console.behind.take();
                let followed = seen.iter().any(|seen| seen.name == "resource-indexer.list-changes");
                if followed { Ok(()) } else { Err("it is not followed") }
            })
            .await;
            continue;
        }
        let (status, answered) = console.graphql(HOME, example, json!({})).await;
        assert_eq!(status, StatusCode::OK, "{example}: {answered}");
        for error in answered["errors"].as_array().into_iter().flatten() {
            assert_eq!(error["extensions"]["kind"], "not-found", "{example}: {answered}");
        }
    }
    for limit in ["queryBytes", "depth", "fields", "cost", "introspectionLists", "requests", "subscriptions"]
    {
        assert!(page.contains(&format!("| `{limit}` |")), "{limit} is not documented");
    }
    console.stop().await;
}
