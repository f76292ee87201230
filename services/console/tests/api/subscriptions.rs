//! GraphQL subscriptions over server-sent events: live, resumed, limited, ended.

use std::time::Duration;

use console::graphql::limits::MAXIMUM_SUBSCRIPTIONS;
use events::directory::{AgentDeleted, DirectoryEvent};
use events::observation::{Gone, Observation, ObservationBatch, Observed};
use events::position::Stream;
use events::requests::index::ObjectChange;
use events::{AgentId, AggregateKind, AggregateRef, OrganizationId, Position, Timestamp};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use store::{NewBatch, ReadFilter};
use testkit::eventually;

use crate::graphql::change_of;
use crate::serving::{Console, HOME, STRANGER, answer};

const LIMIT: Duration = Duration::from_secs(30);
pub const QUERY: &str = "subscription { resourceChanges { position change { name what agentName } } }";

impl Console {
    /// An agent's change is recorded, and a while later the index lists it.
    pub async fn object_changes(&self, organization: OrganizationId, name: &str) {
        self.object_changes_of(organization, name, "shop/front:cluster").await;
    }

    async fn object_changes_of(&self, organization: OrganizationId, name: &str, agent_name: &str) {
        self.objects_change(organization, &[name], agent_name).await;
    }

    /// Changes of several objects in one record.
    async fn objects_change(&self, organization: OrganizationId, names: &[&str], agent_name: &str) {
        let agent = AgentId(organization.0);
        let gone = |name: &&str| {
            let identity = change_of(agent, name, 0).identity;
            let (uid, resource_version) = (format!("uid-{name}"), "7".to_owned());
            let what = Observed::ObjectGone { identity, uid, resource_version, why: Gone::Deleted };
            Observation { at: Timestamp(1), what }
        };
        let writer = ObservationBatch::agent_writer(agent);
        let observations = names.iter().map(gone).collect();
        let batch: ObservationBatch =
            ObservationBatch { organization, writer: writer.clone(), epoch: 1, first: 1, observations };
        let data = events::encode(&batch).unwrap();
        self.behind.falls_behind(true);
        let batch = NewBatch { stream: Stream::Objects, organization, writer, data };
        self.store.log.append_batch(batch).await.unwrap();
        let filter = ReadFilter::streams(&[Stream::Objects]);
        let mut records = self.store.log.read(&Position::start(), &filter).await.unwrap();
        let mut last = None;
        while let Some(record) = records.recv().await {
            let record = record.unwrap();
            if record.organization == organization {
                last = last.max(Some((record.recorded_at, record.sequence)));
            }
        }
        let (recorded_at, sequence) = last.unwrap();
        for name in names {
            let agent_name = agent_name.to_owned();
            let change = change_of(agent, name, recorded_at.0);
            self.behind.changed(ObjectChange { agent_name, sequence, ..change });
        }
        self.behind.falls_behind(false);
    }

    /// Subscribes; what is recorded from now on comes.
    pub async fn subscribe(&self, token: &str, last: Option<&str>) -> Response {
        let mut request = self.client.post(self.url("/api/graphql")).bearer_auth(token);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        request.header(ACCEPT, "text/event-stream").json(&json!({ "query": QUERY })).send().await.unwrap()
    }
}

/// The events of an answer, as they come.
struct Events {
    response: Response,
    text: String,
}

impl Events {
    fn of(response: Response) -> Self {
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event: its id, its name and its data. Comments are left out.
    async fn next(&mut self) -> (Option<String>, String, Value) {
        tokio::time::timeout(LIMIT, async {
            loop {
                if let Some((event, rest)) = self.text.split_once("\n\n") {
                    let event = event.to_owned();
                    self.text = rest.to_owned();
                    let field = |name: &str| {
                        event.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
                    };
                    if let Some(name) = field("event:") {
                        let data = serde_json::from_str(&field("data:").unwrap()).unwrap_or(Value::Null);
                        return (field("id:"), name, data);
                    }
                    continue;
                }
                let chunk = self.response.chunk().await.unwrap().expect("the answer goes on");
                self.text.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        })
        .await
        .expect("an event in time")
    }

    async fn name(&mut self) -> (String, String) {
        let (id, event, data) = self.next().await;
        assert_eq!(event, "next", "{data}");
        let change = &data["data"]["resourceChanges"];
        assert_eq!(change["position"].as_str(), id.as_deref(), "{data}");
        (id.unwrap(), change["change"]["name"].as_str().unwrap_or_else(|| panic!("{data}")).to_owned())
    }
}

#[tokio::test]
async fn changes_come_live_and_a_reader_goes_on_where_it_was() {
    let console = Console::start().await;
    let home = console.home.organization;
    let mut live = Events::of(console.subscribe(HOME, None).await);
    console.object_changes(console.stranger.organization, "elsewhere").await;
    console.object_changes(home, "first").await;
    let (first, name) = live.name().await;
    assert_eq!(name, "first");
    console.object_changes(home, "second").await;
    console.object_changes(home, "third").await;
    assert_eq!((live.name().await.1, live.name().await.1), ("second".to_owned(), "third".to_owned()));
    drop(live);
    let mut again = Events::of(console.subscribe(HOME, Some(&first)).await);
    assert_eq!((again.name().await.1, again.name().await.1), ("second".to_owned(), "third".to_owned()));
    for wrong in [(HOME, "p_AAAA"), (STRANGER, first.as_str())] {
        let mut refused = Events::of(console.subscribe(wrong.0, Some(wrong.1)).await);
        let (_, event, data) = refused.next().await;
        let field = &data["errors"][0]["extensions"]["field"];
        assert_eq!((event.as_str(), field), ("next", &json!("after")), "{data}");
        assert_eq!(refused.next().await.1, "complete");
    }
    console.stop().await;
}

#[tokio::test]
async fn a_reader_goes_on_within_a_record_without_a_double_and_without_a_gap() {
    let console = Console::start().await;
    let home = console.home.organization;
    let mut live = Events::of(console.subscribe(HOME, None).await);
    let all = ["one", "two", "three", "four"];
    console.objects_change(home, &all, "shop/front:cluster").await;
    console.object_changes(home, "last").await;
    let mut given = Vec::new();
    for _ in 0..=all.len() {
        given.push(live.name().await);
    }
    drop(live);
    let names: std::collections::BTreeSet<&str> = given.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names.len(), all.len() + 1, "each once: {given:?}");
    for (place, (id, _)) in given.iter().enumerate() {
        let mut again = Events::of(console.subscribe(HOME, Some(id)).await);
        for (_, name) in &given[place + 1..] {
            assert_eq!(again.name().await.1, *name, "behind event {place}");
        }
        // Nothing else comes before what comes now.
        let next = format!("next-{place}");
        console.object_changes(home, &next).await;
        for expected in (0..place).map(|number| format!("next-{number}")).chain([next]) {
            assert_eq!(again.name().await.1, expected, "behind event {place}");
        }
    }
    console.stop().await;
}

#[tokio::test]
async fn a_subscription_ends_with_its_token_and_says_so() {
    let console = Console::start().await;
    let mut live = Events::of(console.subscribe(HOME, None).await);
    console.object_changes(console.home.organization, "first").await;
    assert_eq!(live.name().await.1, "first");
    console.behind.revokes(HOME);
    let agent = AgentId(console.world.new_uuid());
    let deleted = DirectoryEvent::AgentDeleted(AgentDeleted { agent });
    let aggregate = AggregateRef::new(AggregateKind::Agent, "a");
    console.append(console.home.organization, aggregate, 0, deleted).await;
    let (_, event, data) = live.next().await;
    let kind = &data["errors"][0]["extensions"]["kind"];
    assert_eq!((event.as_str(), kind), ("next", &json!("unauthenticated")), "{data}");
    assert_eq!(live.next().await.1, "complete");
    console.stop().await;
}

#[tokio::test]
async fn a_user_has_so_many_subscriptions() {
    let console = Console::start().await;
    let mut held = Vec::new();
    for _ in 0..MAXIMUM_SUBSCRIPTIONS {
        held.push(Events::of(console.subscribe(HOME, None).await));
    }
    let (status, full) = answer(console.subscribe(HOME, None).await).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(full["errors"][0]["extensions"]["limit"], "subscriptions", "{full}");
    assert_eq!(console.subscribe(STRANGER, None).await.status(), StatusCode::OK, "others have their own");
    held.pop();
    eventually(LIMIT, || async {
        let status = console.subscribe(HOME, None).await.status();
        if status == StatusCode::OK { Ok(()) } else { Err(status) }
    })
    .await;
    console.stop().await;
}

#[tokio::test]
async fn a_query_is_one_event_and_the_end() {
    let console = Console::start().await;
    let request = console.client.post(console.url("/api/graphql")).bearer_auth(HOME);
    let request = request.header(ACCEPT, "text/event-stream").json(&json!({ "query": "{ __typename }" }));
    let mut events = Events::of(request.send().await.unwrap());
    assert_eq!(events.next().await, (None, "next".to_owned(), json!({ "data": { "__typename": "Query" } })));
    assert_eq!(events.next().await.1, "complete");
    let (status, refused) = console.graphql(HOME, QUERY, json!({})).await;
    let message = refused["errors"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert!(message.contains("event-stream"), "{message}");
    console.stop().await;
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_cut_off_and_told() {
    let console = Console::start().await;
    let mut slow = Events::of(console.subscribe(HOME, None).await);
    let mut others = tokio::task::JoinSet::new();
    for _ in 1..MAXIMUM_SUBSCRIPTIONS {
        let mut other = console.subscribe(HOME, Some("start")).await;
        others.spawn(async move { while let Ok(Some(_)) = other.chunk().await {} });
    }
    assert_eq!(console.subscribe(HOME, None).await.status(), StatusCode::TOO_MANY_REQUESTS);
    // More than the windows and the queue between them hold.
    let large = "x".repeat(300 * 1024);
    for number in 0..40 {
        console.object_changes_of(console.home.organization, &format!("map-{number}"), &large).await;
    }
    // A place is free once it is cut off: the others take what comes.
    eventually(2 * LIMIT, || async {
        let status = console.subscribe(HOME, None).await.status();
        if status == StatusCode::OK { Ok(()) } else { Err(status) }
    })
    .await;
    drop(others);
    let (mut count, mut told) = (0, false);
    loop {
        let (_, event, data) = slow.next().await;
        if event == "complete" {
            break;
        }
        count += 1;
        if let Some(error) = data["errors"].get(0) {
            told = error["message"].as_str().unwrap().contains("takes no events");
            assert_eq!(error["extensions"]["kind"], "unavailable");
        }
    }
    assert!(told && (2..40).contains(&count), "{count} events were kept for it");
    console.stop().await;
}
