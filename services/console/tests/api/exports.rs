//! Exported events over HTTP, and the consumers of `docs/events` against them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bus::{Received, Subscription};
use events::export::BEGAN;
use events::requests::subscriptions::{EventReader, EventReaders};
use events::subject::Subject;
use events::{CloudEvent, EnvironmentId, Notice as _, OrganizationId, ProjectId, Stream};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use store::NewBatch;
use testkit::eventually;
use uuid::Uuid;

use crate::serving::{Console, HOME, STRANGER};

const RUN: Uuid = Uuid::from_u128(7);

impl Console {
    /// An event as event-relay exports it.
    async fn export(&self, organization: OrganizationId, sequence: u64, event_type: &str, project: u128) {
        self.export_with(organization, sequence, (event_type, project), &json!({})).await;
    }

    async fn export_with(
        &self,
        organization: OrganizationId,
        sequence: u64,
        (event_type, project): (&str, u128),
        data: &Value,
    ) {
        let project = ProjectId(Uuid::from_u128(project));
        let event = json!({
            "specversion": "1.0", "id": format!("e{sequence}"), "source": format!("/organizations/{organization}"),
            "type": event_type, "subject": "source/1", "time": "2026-01-01T00:00:00Z",
            "datacontenttype": "application/json", "recordedat": events::Timestamp(self.world.clock.now_millis()),
            "project": project, "environment": EnvironmentId::derive(project, "production"),
            "exportlog": self.store.log.id(), "exportsequence": sequence, "exportrun": RUN, "data": data,
        });
        let data = CloudEvent::from_json(event.to_string().as_bytes()).unwrap().to_json();
        let batch = NewBatch { stream: Stream::Exports, organization, writer: event_type.to_owned(), data };
        self.store.log.append_batch(batch).await.unwrap();
    }

    async fn exported(&self, token: &str, query: &str) -> Vec<Value> {
        let request = self.client.get(self.url(&format!("/api/events{query}"))).bearer_auth(token);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{query}");
        let text = response.text().await.unwrap();
        text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A connection of its own: over HTTP/2, streams of one connection share its window.
    async fn stream(&self, token: &str, last: Option<&str>) -> Lines {
        let client =
            reqwest::Client::builder().tls_backend_preconfigured((*self.tls).clone()).build().unwrap();
        let mut request = client.get(self.url("/api/events")).bearer_auth(token);
        request = request.header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Lines { response, rest: String::new() }
    }
}

/// Server-sent events.
struct Lines {
    response: Response,
    rest: String,
}

impl Lines {
    /// The next event, with its id.
    async fn next(&mut self) -> (String, Value) {
        let mut id = String::new();
        loop {
            while let Some((line, rest)) = self.rest.split_once('\n') {
                let (line, rest) = (line.to_owned(), rest.to_owned());
                self.rest = rest;
                if let Some(text) = line.strip_prefix("id: ") {
                    text.clone_into(&mut id);
                }
                if let Some(data) = line.strip_prefix("data: ") {
                    return (id, serde_json::from_str(data).unwrap());
                }
            }
            let piece = tokio::time::timeout(Duration::from_secs(30), self.response.chunk()).await;
            self.rest += std::str::from_utf8(&piece.expect("in time").unwrap().expect("no end")).unwrap();
        }
    }
}

fn ids(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn exported_events_are_filtered_and_gone_on_with() {
    let console = Console::start().await;
    let (home, other) = (console.home.organization, console.stranger.organization);
    console.export(home, 0, BEGAN, 1).await;
    console.export(home, 1, "kasbah.sync.started", 1).await;
    console.export(other, 1, "kasbah.sync.started", 1).await;
    console.export(home, 2, "kasbah.sync.finished", 1).await;
    console.export(home, 3, "kasbah.bundle.desired", 2).await;
    let all = console.exported(HOME, "?from=start").await;
    assert_eq!(ids(&all), ["e1", "e2", "e3"]);
    assert!(all.iter().all(|event| event["source"] == format!("/organizations/{home}")));
    assert!(all.iter().all(|event| event.get("exportrun").is_none()));
    assert_eq!(ids(&console.exported(STRANGER, "?from=start").await), ["e1"]);
    assert_eq!(ids(&console.exported(HOME, "?from=start&types=kasbah.sync.*").await), ["e1", "e2"]);
    let project = Uuid::from_u128(2);
    assert_eq!(ids(&console.exported(HOME, &format!("?from=start&project={project}")).await), ["e3"]);
    let environment = format!("?from=start&project={project}&environment=production");
    assert_eq!(ids(&console.exported(HOME, &environment).await), ["e3"]);
    let behind = all[0]["position"].as_str().unwrap();
    assert_eq!(ids(&console.exported(HOME, &format!("?from={behind}")).await), ["e2", "e3"]);
    for (query, field) in [
        ("?types=kasbah.nothing.*", "types"),
        ("?types=*.sync", "types"),
        ("?from=p_nonsense", "from"),
        ("?environment=production", "environment"),
        ("?follow=maybe", "follow"),
    ] {
        let (status, refusal) = console.get(HOME, &format!("/api/events{query}")).await;
        assert_eq!((status, refusal["field"].as_str()), (StatusCode::BAD_REQUEST, Some(field)), "{query}");
    }
    console.stop().await;
}

/// The next notice about one reader who fits, as event-relay hears it.
async fn told(notices: &mut Subscription, fits: impl Fn(&EventReader) -> bool) -> EventReader {
    let hearing = async {
        loop {
            let Some(Received::Message(body)) = notices.receiver.recv().await else { panic!("no notice") };
            match events::decode::<EventReaders>(&body).unwrap().readers.as_slice() {
                [only] if fits(only) => return only.clone(),
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), hearing).await.expect("a notice in time")
}

#[tokio::test]
async fn who_follows_is_told_with_how_far_they_are_until_they_leave() {
    let console = Console::start().await;
    let home = console.home.organization;
    let mut notices = console.bus.subscribe(&Subject::notice(EventReaders::NAME)).await.unwrap();
    console.export(home, 0, BEGAN, 1).await;
    let mut live = console.stream(HOME, None).await;
    console.export(home, 1, "kasbah.sync.finished", 1).await;
    let first = live.next().await;
    let is_there = |reader: &EventReader| reader.position.is_some() && reader.oldest.is_none();
    let reader = told(&mut notices, is_there).await;
    assert_eq!((reader.organization, &reader.actor), (home, &console.home.actor));
    assert_eq!(reader.position.unwrap().to_string(), first.0);
    // More than all buffers hold: the rest waits for the reader.
    for sequence in 2..=200 {
        let much = json!({ "much": "x".repeat(100_000) });
        console.export_with(home, sequence, ("kasbah.sync.finished", 1), &much).await;
    }
    let waiting = told(&mut notices, |reader| reader.oldest.is_some()).await;
    assert!(waiting.position.unwrap().sequence < 200, "{waiting:?}");
    for sequence in 2..=200 {
        assert_eq!(live.next().await.1["id"], format!("e{sequence}"));
    }
    told(&mut notices, |reader| is_there(reader) && reader.position.unwrap().sequence == 200).await;
    drop(live);
    let _other = console.stream(STRANGER, None).await;
    // The first one is gone once the other one is told of alone.
    told(&mut notices, |reader| reader.organization == console.stranger.organization).await;
    console.stop().await;
}

#[tokio::test]
async fn a_stream_goes_on_exactly_and_says_what_is_gone() {
    let console = Console::start().await;
    let home = console.home.organization;
    console.export(home, 0, BEGAN, 1).await;
    let mut live = console.stream(HOME, None).await;
    for sequence in 1..=3 {
        console.export(home, sequence, "kasbah.sync.finished", 1).await;
    }
    let first = live.next().await;
    let second = live.next().await;
    assert_eq!((&first.1["id"], &second.1["id"]), (&json!("e1"), &json!("e2")));
    drop(live);
    // Exactly behind the second one, and then on.
    let mut again = console.stream(HOME, Some(&second.0)).await;
    assert_eq!(again.next().await.1["id"], "e3");
    console.export(home, 4, "kasbah.sync.finished", 1).await;
    let last = again.next().await;
    assert_eq!(last.1["id"], "e4");
    // What left meanwhile.
    console.export(home, 8, "kasbah.sync.finished", 1).await;
    let mut late = console.stream(HOME, Some(&last.0)).await;
    let gap = late.next().await.1;
    assert_eq!(
        (&gap["type"], &gap["data"]),
        (&json!("kasbah.export.gap"), &json!({ "first": 5, "last": 7, "events": 3 }))
    );
    assert_eq!(late.next().await.1["id"], "e8");
    console.stop().await;
}

#[tokio::test]
async fn who_may_see_one_project_gets_the_events_about_it_and_nothing_of_the_directory() {
    let console = Console::start().await;
    let home = console.home.organization;
    console.export(home, 0, BEGAN, 1).await;
    console.export(home, 1, "kasbah.sync.finished", 1).await;
    console.export(home, 2, "kasbah.sync.finished", 2).await;
    console.export(home, 3, "kasbah.token.issued", 2).await;
    console.behind.narrow(ProjectId(Uuid::from_u128(2)));
    assert_eq!(ids(&console.exported(HOME, "?from=start").await), ["e2"]);
    console.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_holds_up_nobody() {
    let console = Console::start().await;
    let home = console.home.organization;
    console.export(home, 0, BEGAN, 1).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(console.stream(HOME, None).await);
    }
    let mut live = console.stream(HOME, None).await;
    for sequence in 1..=2_000 {
        console.export(home, sequence, "kasbah.sync.finished", 1).await;
    }
    for sequence in 1..=2_000_u64 {
        assert_eq!(live.next().await.1["exportsequence"], sequence);
    }
    drop((silent, live));
    console.stop().await;
}

#[tokio::test]
async fn the_description_of_events_is_served() {
    let console = Console::start().await;
    let (status, document) = console.call(HOME, Method::GET, "/docs/events/asyncapi.json", None).await;
    assert_eq!((status, &document["asyncapi"]), (StatusCode::OK, &json!("3.0.0")));
    // A stranger may read it, too: it says nothing of this installation.
    let page = console.client.get(console.url("/docs/events")).send().await.unwrap();
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'self'; base-uri 'none'"), "{policy}");
    let text = page.text().await.unwrap();
    assert!(!text.contains("<script") && !text.contains("style="), "nothing that the policy forbids");
    for (name, about) in events::export::exported_types() {
        assert!(text.contains(&format!("id=\"{name}\"")), "{name}: {about}");
        let path = format!("/docs/events/schemas/{name}.json");
        let (status, schema) = console.call(HOME, Method::GET, &path, None).await;
        assert_eq!((status, &schema["title"]), (StatusCode::OK, &json!(name)));
    }
    for missing in ["kasbah.name.claimed.json", "kasbah.sync.finished", "nothing.json"] {
        let (status, _) =
            console.call(HOME, Method::GET, &format!("/docs/events/schemas/{missing}"), None).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{missing}");
    }
    let style = console.client.get(console.url("/docs/events/style.css")).send().await.unwrap();
    assert_eq!(
        (style.status(), &style.headers()["content-type"]),
        (StatusCode::OK, &"text/css; charset=utf-8".parse().unwrap())
    );
    console.stop().await;
}

/// A consumer of the documentation that runs.
struct Consumer(Child);

impl Drop for Consumer {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// Runs a consumer while events come, and gives the numbers of those that it prints, once there are so many.
async fn consumed(console: &Console, program: &Path, file: &str, count: usize) -> Vec<u64> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/events").join(file);
    let child = Command::new(program)
        .arg(file)
        .arg("kasbah.sync.*")
        .env("KASBAH_SERVER", format!("http://{}", console.address))
        .env("KASBAH_TOKEN", HOME)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut consumer = Consumer(child);
    let printed = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (output, sink) = (consumer.0.stdout.take().unwrap(), std::sync::Arc::clone(&printed));
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            sink.lock().push(line.split(' ').next().unwrap().parse::<u64>().unwrap());
        }
    });
    let home = console.home.organization;
    let mut sequence = 0;
    console.export(home, 0, BEGAN, 1).await;
    let numbers = eventually(Duration::from_secs(60), || {
        sequence += 1;
        let (printed, at) = (std::sync::Arc::clone(&printed), sequence);
        async move {
            console.export(home, at, "kasbah.sync.finished", 1).await;
            let printed = printed.lock().clone();
            if printed.len() >= count { Ok(printed) } else { Err(format!("{printed:?}")) }
        }
    })
    .await;
    drop(consumer);
    numbers
}

#[tokio::test]
async fn the_consumers_of_the_documentation_get_each_event_once() {
    for (program, file) in
        [(PathBuf::from("python3"), "follow.py"), (testkit::node_js().unwrap(), "follow.ts")]
    {
        let console = Console::start().await;
        let numbers = consumed(&console, &program, file, 10).await;
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{file}: {numbers:?}");
        console.stop().await;
    }
}
