//! The log over HTTP.

use std::time::Duration;

use events::directory::{AgentDeleted, DirectoryEvent, GroupCreated};
use events::observation::{Gone, Observation, ObservationBatch, Observed};
use events::position::Stream;
use events::{
    AgentId, AggregateKind, AggregateRef, CommitId, CorrelationId, Event, GroupId, ObjectIdentity,
    OrganizationId, Timestamp,
};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use store::{NewBatch, NewCommit, new_events};
use testkit::eventually;

use crate::serving::{Console, HOME, STRANGER};

impl Console {
    pub async fn append(
        &self,
        organization: OrganizationId,
        aggregate: AggregateRef,
        expected: u64,
        event: impl Into<Event>,
    ) {
        let context = bus::context_for_service(&self.world, "authz", organization);
        let commit = NewCommit {
            id: CommitId(self.world.new_uuid()),
            organization,
            aggregate,
            expected,
            actor: context.actor,
            correlation_id: CorrelationId(self.world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(self.world.clock.now_millis()),
            command: None,
            grounds: None,
            events: new_events(&self.world, [event.into()]).unwrap(),
        };
        self.store.log.append(commit).await.unwrap();
    }

    /// A group as an aggregate of its own; returns its id.
    async fn group(&self, organization: OrganizationId, name: &str) -> String {
        let group = GroupId(self.world.new_uuid());
        let event = DirectoryEvent::GroupCreated(GroupCreated { group, name: name.to_owned() });
        self.append(organization, AggregateRef::new(AggregateKind::Group, group), 0, event).await;
        group.to_string()
    }

    async fn observe(&self, organization: OrganizationId, first: u64, dropped: &[u64]) {
        let writer = ObservationBatch::agent_writer(AgentId(organization.0));
        let observations = dropped
            .iter()
            .map(|dropped| Observation { at: Timestamp(1), what: Observed::Gap { dropped: *dropped } })
            .collect();
        let batch: ObservationBatch =
            ObservationBatch { organization, writer: writer.clone(), epoch: 1, first, observations };
        let data = events::encode(&batch).unwrap();
        let batch = NewBatch { stream: Stream::Observations, organization, writer, data };
        self.store.log.append_batch(batch).await.unwrap();
    }

    /// A change of an object that an agent saw.
    async fn object_gone(&self, organization: OrganizationId, sequence: u64) {
        let writer = ObservationBatch::agent_writer(AgentId(organization.0));
        let identity = ObjectIdentity {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "shop".to_owned(),
            name: format!("web-{sequence}"),
        };
        let (uid, resource_version) = ("u".to_owned(), "7".to_owned());
        let what = Observed::ObjectGone { identity, uid, resource_version, why: Gone::Deleted };
        let observations = vec![Observation { at: Timestamp(1), what }];
        let batch: ObservationBatch = ObservationBatch {
            organization,
            writer: writer.clone(),
            epoch: 1,
            first: sequence,
            observations,
        };
        let data = events::encode(&batch).unwrap();
        let batch = NewBatch { stream: Stream::Objects, organization, writer, data };
        self.store.log.append_batch(batch).await.unwrap();
    }

    async fn events(&self, token: &str, query: &str) -> Vec<Value> {
        let request = self.client.get(self.url(&format!("/api/v1/log/events{query}"))).bearer_auth(token);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let text = response.text().await.unwrap();
        text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn follow(&self, token: &str) -> Response {
        let request = self.client.get(self.url("/api/v1/log/events?follow=true")).bearer_auth(token);
        let response = request.header("accept", "text/event-stream").send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response
    }
}

/// Two organizations with decisions and observations, in turn.
async fn two_organizations(console: &Console) {
    let (home, other) = (console.home.organization, console.stranger.organization);
    for round in 0..5 {
        console.group(home, &format!("home-{round}")).await;
        console.group(other, &format!("other-{round}")).await;
        console.observe(home, round * 3 + 1, &[1, 2, 3]).await;
        console.observe(other, round + 1, &[7]).await;
    }
}

#[tokio::test]
async fn each_reads_their_own_organization_and_no_count_of_another() {
    let console = Console::start().await;
    two_organizations(&console).await;
    let (home, other) = (console.home.organization, console.stranger.organization);
    for (token, own, foreign, count) in [(HOME, home, other, 5 + 15), (STRANGER, other, home, 5 + 5)] {
        let events = console.events(token, "").await;
        assert_eq!(events.len(), count);
        for event in &events {
            assert_eq!(event["source"], format!("/organizations/{own}"));
            assert!(!event.to_string().contains(&foreign.to_string()));
            assert!(event["position"].as_str().unwrap().len() > 40, "positions leave sealed");
        }
    }
    let (status, verified) = console.call(STRANGER, Method::POST, "/api/v1/log/verify", None).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        verified,
        json!({ "ok": true, "checkpoint": false, "aggregates": 5, "commits": 5, "events": 5, "unknown": 0 })
    );
    console.stop().await;
}

#[tokio::test]
async fn changes_of_objects_are_given_to_who_asks_for_them_and_to_nobody_else() {
    let console = Console::start().await;
    two_organizations(&console).await;
    let everything = console.events(HOME, "").await.len();
    for sequence in 1..=3 {
        console.object_gone(console.home.organization, sequence).await;
        console.object_gone(console.stranger.organization, sequence).await;
    }
    assert_eq!(console.events(HOME, "").await.len(), everything);
    let objects = console.events(HOME, "?stream=objects").await;
    let names: Vec<_> = objects.iter().map(|event| event["data"]["identity"]["name"].clone()).collect();
    assert_eq!(names, ["web-1", "web-2", "web-3"]);
    assert!(objects.iter().all(|event| event["type"] == "kasbah.observed.object-gone"));
    let behind = objects[0]["position"].as_str().unwrap();
    assert_eq!(console.events(HOME, &format!("?stream=objects&from={behind}")).await.len(), 2);
    for (query, field) in [
        ("?stream=decisions", "stream"),
        ("?stream=objects&aggregate=group/a", "aggregate"),
        ("?since=2026-01-31T12:00:00Z&from=start", "since"),
        ("?since=yesterday", "since"),
    ] {
        let (status, refusal) = console.get(HOME, &format!("/api/v1/log/events{query}")).await;
        assert_eq!((status, refusal["field"].as_str()), (StatusCode::BAD_REQUEST, Some(field)), "{query}");
    }
    console.stop().await;
}

#[tokio::test]
async fn who_names_a_time_begins_with_what_was_recorded_then() {
    let console = Console::start().await;
    two_organizations(&console).await;
    let all = console.events(HOME, "").await;
    let recorded = |event: &Value| Timestamp::parse(event["recordedat"].as_str().unwrap()).unwrap();
    let since = all.iter().map(recorded).max().unwrap();
    let expected: Vec<_> =
        all.iter().filter(|event| recorded(event) >= since).map(|event| &event["id"]).collect();
    let found = console.events(HOME, &format!("?since={since}")).await;
    assert_eq!(found.iter().map(|event| &event["id"]).collect::<Vec<_>>(), expected);
    assert!(!expected.is_empty() && expected.len() <= all.len());
    console.stop().await;
}

#[tokio::test]
async fn an_aggregate_of_another_organization_is_not_found() {
    let console = Console::start().await;
    let group = console.group(console.home.organization, "shop").await;
    let path = format!("/api/v1/log/aggregates/group/{group}");
    let (status, view) = console.get(HOME, &path).await;
    assert_eq!(
        (status, &view["version"], &view["events"][0]["data"]["name"]),
        (StatusCode::OK, &json!(1), &json!("shop"))
    );
    let (status, hidden) = console.get(STRANGER, &path).await;
    let (_, missing) = console.get(STRANGER, "/api/v1/log/aggregates/group/nothing").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(
        hidden["message"].as_str().unwrap().replace(&group, "nothing"),
        missing["message"].as_str().unwrap()
    );
    assert!(console.events(STRANGER, &format!("?aggregate=group/{group}")).await.is_empty());
    assert_eq!(console.events(HOME, &format!("?aggregate=group/{group}")).await.len(), 1);
    let (status, refusal) = console.get(HOME, "/api/v1/log/aggregates/nonsense/1").await;
    assert_eq!((status, refusal["field"].as_str()), (StatusCode::BAD_REQUEST, Some("kind")));
    console.stop().await;
}

#[tokio::test]
async fn a_reader_resumes_anywhere_without_gap_and_double() {
    let console = Console::start().await;
    two_organizations(&console).await;
    let all = console.events(HOME, "?from=start").await;
    let ids = |events: &[Value]| {
        events.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (index, event) in all.iter().enumerate() {
        let rest = console.events(HOME, &format!("?from={}", event["position"].as_str().unwrap())).await;
        let mut expected = ids(&all[index + 1..]);
        let mut found = ids(&rest);
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "behind event {index}, {}", event["type"]);
    }
    let stolen = all[0]["position"].as_str().unwrap();
    let (status, refusal) = console.get(STRANGER, &format!("/api/v1/log/events?from={stolen}")).await;
    assert_eq!((status, refusal["field"].as_str()), (StatusCode::BAD_REQUEST, Some("from")));
    let (status, _) = console.get(HOME, "/api/v1/log/events?from=d0-1").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "a bare position is none that was given out");
    console.stop().await;
}

#[tokio::test]
async fn a_follower_hears_its_own_and_is_cut_off_with_its_token() {
    let console = Console::start().await;
    two_organizations(&console).await;
    let mut followed = console.follow(HOME).await;
    console.group(console.stranger.organization, "quiet").await;
    console.group(console.home.organization, "loud").await;
    let mut heard = String::new();
    while !heard.contains("\n\n") {
        heard += std::str::from_utf8(&followed.chunk().await.unwrap().unwrap()).unwrap();
    }
    assert!(heard.starts_with("id: ") && heard.contains("\nevent: kasbah.group.created\n"), "{heard}");
    assert!(heard.contains("loud") && !heard.contains("quiet"), "{heard}");
    console.behind.revokes(HOME);
    let event = DirectoryEvent::AgentDeleted(AgentDeleted { agent: AgentId(console.world.new_uuid()) });
    console.append(console.home.organization, AggregateRef::new(AggregateKind::Agent, "a"), 0, event).await;
    eventually(Duration::from_secs(20), || async {
        let status = console.get(HOME, "/api/v1/me").await.0;
        (status == StatusCode::UNAUTHORIZED).then_some(()).ok_or("the token still opens something")
    })
    .await;
    let end = tokio::time::timeout(Duration::from_secs(30), async {
        while followed.chunk().await.unwrap().is_some() {}
    });
    end.await.expect("the stream of a revoked token ends");
    console.stop().await;
}

#[tokio::test]
async fn observations_read_like_events() {
    let console = Console::start().await;
    console.observe(console.home.organization, 4, &[9]).await;
    let events = console.events(HOME, "").await;
    let writer = ObservationBatch::agent_writer(AgentId(console.home.organization.0));
    assert_eq!(events[0]["type"], "kasbah.observed.gap");
    assert_eq!(events[0]["id"], format!("{writer}/1/4"));
    assert_eq!(events[0]["data"], json!({ "dropped": 9 }));
    assert_eq!((&events[0]["specversion"], &events[0]["subject"]), (&json!("1.0"), &json!(writer)));
    console.stop().await;
}

#[tokio::test]
async fn an_observation_that_two_gateways_stored_is_said_once() {
    let console = Console::start().await;
    let home = console.home.organization;
    for (first, dropped) in [(1, &[1, 2][..]), (4, &[4]), (2, &[2, 3]), (1, &[1, 2, 3, 4, 5])] {
        console.observe(home, first, dropped).await;
    }
    let events = console.events(HOME, "").await;
    let said: Vec<&Value> = events.iter().map(|event| &event["data"]["dropped"]).collect();
    assert_eq!(said, [1, 2, 4, 3, 5]);
    console.stop().await;
}

#[tokio::test]
async fn aggregates_are_listed_by_kind_beginning_and_time_and_only_ones_own() {
    let console = Console::start().await;
    two_organizations(&console).await;
    let agent = AggregateRef::new(AggregateKind::Agent, "edge");
    let event = DirectoryEvent::AgentDeleted(AgentDeleted { agent: AgentId(console.world.new_uuid()) });
    console.append(console.home.organization, agent.clone(), 0, event.clone()).await;
    console.append(console.home.organization, agent, 1, event).await;
    let list = async |token: &str, query: &str| {
        let (status, listed) = console.get(token, &format!("/api/v1/log/aggregates{query}")).await;
        assert_eq!(status, StatusCode::OK, "{listed}");
        listed["aggregates"].as_array().unwrap().clone()
    };
    assert_eq!(list(HOME, "").await.len(), 6);
    assert_eq!(list(STRANGER, "").await.len(), 5);
    assert_eq!(list(HOME, "?kind=group").await.len(), 5);
    let found = list(HOME, "?prefix=ed").await;
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["aggregate"], &found[0]["version"]), (&json!("agent/edge"), &json!(2)));
    assert_eq!(found[0]["event"], "kasbah.agent.deleted");
    assert!(list(HOME, "?until=2001-01-01T00:00:00Z").await.is_empty());
    assert!(list(HOME, "?since=2999-01-01T00:00:00Z").await.is_empty());
    for (query, field) in [("?kind=nonsense", "kind"), ("?since=yesterday", "since")] {
        let (status, refusal) = console.get(HOME, &format!("/api/v1/log/aggregates{query}")).await;
        assert_eq!((status, refusal["field"].as_str()), (StatusCode::BAD_REQUEST, Some(field)));
    }
    console.stop().await;
}

#[tokio::test]
async fn a_chain_of_another_organization_is_not_found() {
    let console = Console::start().await;
    let group = console.group(console.home.organization, "shop").await;
    console.group(console.home.organization, "of another chain").await;
    let (_, view) = console.get(HOME, &format!("/api/v1/log/aggregates/group/{group}")).await;
    let chain = view["events"][0]["correlationid"].as_str().unwrap();
    let path = format!("/api/v1/log/traces/{chain}");
    let (status, traced) = console.get(HOME, &path).await;
    assert_eq!(status, StatusCode::OK, "{traced}");
    assert_eq!(traced["events"], json!([view["events"][0]]), "all of the chain and nothing else");
    assert!(traced["begun"].is_string(), "{traced}");
    assert_eq!(console.get(STRANGER, &path).await.0, StatusCode::NOT_FOUND);
    let (status, refusal) = console.get(HOME, "/api/v1/log/traces/nonsense").await;
    assert_eq!((status, refusal["field"].as_str()), (StatusCode::BAD_REQUEST, Some("correlation")));
    console.stop().await;
}
