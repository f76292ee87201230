//! The whole GraphQL schema, walked by a stranger with queries that are made from its introspection.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::graphql::{Arguments, INTROSPECTION, Walk};

use crate::api::{Home, Person};

/// Asks a query; gives the answer.
async fn ask(person: &Person, query: &str) -> String {
    let body = json!({ "query": query });
    let (status, text) = person.call(&Method::POST, "/api/graphql", Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{query}: {text}");
    text
}

/// Every query, about everything that the first organization has: the stranger sees none of its marks, and its owner does.
pub async fn walk(stranger: &Person, owner: &Person, home: &Home) {
    let introspected = ask(stranger, INTROSPECTION).await;
    let schema = Walk::of(&serde_json::from_str(&introspected).unwrap());
    let things = |name: &str| home.things[name].iter().map(|thing| json!(thing)).collect::<Vec<Value>>();
    let agents = things("agent").into_iter().map(|agent| json!({ "agent": agent }));
    let environments = things("environment").into_iter().map(|environment| json!({ "env": environment }));
    let projects = things("project").into_iter().map(|project| json!({ "project": project }));
    let tier = std::iter::once(json!({ "tier": "PRODUCTION" }));
    let filters = agents.chain(environments).chain(projects).chain(tier);
    let values = Arguments::from([
        ("name", [things("agent"), things("environment")].concat()),
        ("project", things("project")),
        ("agent", things("agent")),
        ("fullPath", things("project")),
        ("id", [things("source"), things("environment")].concat()),
        ("filter", std::iter::once(json!({})).chain(filters).collect()),
        ("from", vec![json!("-1h")]),
        ("at", vec![json!("-1m")]),
        ("first", vec![json!(5)]),
    ]);
    let mut seen_by_owner = 0;
    for query in schema.queries(&values) {
        let answered = ask(stranger, &query).await;
        for mark in home.marks.iter().filter(|mark| !query.contains(mark.as_str())) {
            assert!(!answered.contains(mark.as_str()), "{query} tells a stranger {mark}: {answered}");
        }
        // What they named is not said to be there.
        let parsed: Value = serde_json::from_str(&answered).unwrap();
        let kinds =
            parsed["errors"].as_array().into_iter().flatten().map(|error| &error["extensions"]["kind"]);
        for kind in kinds {
            assert!(
                ["not-found", "invalid"].contains(&kind.as_str().unwrap_or_default()),
                "{query}: {answered}"
            );
        }
        let owned = ask(owner, &query).await;
        seen_by_owner += usize::from(home.marks.iter().any(|mark| owned.contains(mark.as_str())));
    }
    assert!(seen_by_owner > 5, "an empty answer says something only where the owner's is not");
}
