//! Consumers of exported events on a real NATS server, with the accounts as they are shipped: an organization fetches from its own, and does
//! nothing else.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use events::subject::partition_of_organization;
use events::{ConsumerName, OrganizationId, Position, Stream};
use serde_json::{Value, json};
use store::jetstream::{ConsumerSubjects, Options};
use store::log::PARTITIONS;
use store::{ExportConsumers, NewBatch, NewConsumer, Parts};
use testkit::NatsServer;
use uuid::Uuid;
use world::World;

use crate::nats::{PASSWORD, User, Wire, accounts};

const LIMIT: Duration = Duration::from_secs(60);

/// A log on NATS with two organizations, whose exports lie in the same stream.
struct Two {
    server: NatsServer,
    kasbah: Parts,
    /// The consumers as event-relay's own user sees them.
    relay: Arc<dyn ExportConsumers>,
    home: OrganizationId,
    other: OrganizationId,
    stream: String,
}

impl Two {
    async fn start() -> Self {
        let home = OrganizationId(Uuid::from_u128(1));
        let partition = partition_of_organization(home, PARTITIONS);
        let mut others = (2..).map(|id| OrganizationId(Uuid::from_u128(id)));
        let other = others.find(|other| partition_of_organization(*other, PARTITIONS) == partition).unwrap();
        let server = NatsServer::start_with_accounts(&accounts(&[home, other])).await.unwrap();
        let kasbah = open(&server, "kasbah", true).await;
        let relay = open(&server, "event-relay", false).await.consumers.unwrap();
        Self { server, kasbah, relay, home, other, stream: format!("kasbah-exports-{partition}") }
    }

    async fn make(&self, name: ConsumerName, types: &[&str]) {
        let types = types.iter().map(|text| text.parse().unwrap()).collect();
        let (behind, purpose) = (Position::start(), "a test".to_owned());
        let wanted = NewConsumer { name, types, behind, purpose, paused: false };
        self.relay.make(&wanted).await.unwrap();
    }

    async fn export(&self, organization: OrganizationId, number: u64, event_type: &str) {
        let event = json!({
            "specversion": "1.0", "id": format!("{organization}/{number}"), "source": "/organizations/1", "type": event_type,
            "subject": "source/1", "exportsequence": number, "data": {},
        });
        let (writer, data) = (event_type.to_owned(), event.to_string().into_bytes());
        let batch = NewBatch { stream: Stream::Exports, organization, writer, data };
        self.kasbah.log.append_batch(batch).await.unwrap();
    }

    /// Events that were not fetched, and those that were not acknowledged.
    async fn waiting(&self, name: ConsumerName) -> (u64, u64) {
        let consumer = self.relay.find(name).await.unwrap().unwrap();
        (consumer.pending, consumer.unacknowledged)
    }
}

async fn open(server: &NatsServer, user: &str, makes_log: bool) -> Parts {
    let options = Options {
        servers: vec![server.shipped_url(user)],
        name: user.to_owned(),
        process: user.to_owned(),
        ca_file: None,
        makes_log,
        master_key: [7; 32].into(),
        partitions: None,
        accept_weak_durability: false,
        created_by: "a test".to_owned(),
    };
    store::jetstream::open(&World::real(), options).await.unwrap().parts
}

fn first(organization: OrganizationId) -> ConsumerName {
    ConsumerName::all(organization).next().unwrap()
}

/// A program of an organization.
struct Program {
    wire: Wire,
    subjects: ConsumerSubjects,
}

/// What a program hears: subject, where to answer, whether it is a word of the server's, and the content.
struct Heard {
    subject: String,
    reply: String,
    is_status: bool,
    payload: Vec<u8>,
}

impl Program {
    fn connect(two: &Two, name: ConsumerName) -> Self {
        let options = json!({
            "verbose": false, "headers": true, "no_responders": true,
            "user": name.organization.to_string(), "pass": PASSWORD,
        });
        let wire = Wire::connect(&two.server, LIMIT, &options);
        let mut program = Self { wire, subjects: ConsumerSubjects::of(name, PARTITIONS) };
        program.wire.write("SUB _INBOX.program.> 1\r\n");
        program.synchronize();
        program
    }

    fn say(&mut self, subject: &str, payload: &str) {
        self.wire.write(&format!("PUB {subject} _INBOX.program.one {}\r\n{payload}\r\n", payload.len()));
    }

    /// Waits until the server has dealt with all that was said. What it said before is passed over.
    fn synchronize(&mut self) {
        self.wire.write("PING\r\n");
        while self.wire.line() != "PONG" {}
    }

    fn hear(&mut self) -> Heard {
        loop {
            let line = self.wire.line();
            let words: Vec<&str> = line.split(' ').collect();
            let head = match words[0] {
                "PING" => {
                    self.wire.write("PONG\r\n");
                    continue;
                }
                "MSG" => 0,
                "HMSG" => words[words.len() - 2].parse::<usize>().unwrap(),
                _ => panic!("the server says {line:?}"),
            };
            let has_head = head > 0;
            let total: usize = words[words.len() - 1].parse().unwrap();
            let body = self.wire.bytes(total + 2);
            let has_reply = words.len() > if has_head { 5 } else { 4 };
            let reply = if has_reply { words[3].to_owned() } else { String::new() };
            // An event has headers, too; a status stands behind the version.
            let is_status = body[..head].starts_with(b"NATS/1.0 ");
            return Heard {
                subject: words[1].to_owned(),
                reply,
                is_status,
                payload: body[head..total].to_vec(),
            };
        }
    }

    /// Fetches what there is, up to so many, and acknowledges it: subjects and ids.
    fn fetch(&mut self, most: usize) -> Vec<(String, String)> {
        self.fetch_as(most, &json!({ "batch": most, "no_wait": true }))
    }

    /// Waits for the next one, and acknowledges it.
    fn fetch_next(&mut self) -> (String, String) {
        let wait = u64::try_from(LIMIT.as_nanos()).unwrap();
        self.fetch_as(1, &json!({ "batch": 1, "expires": wait })).remove(0)
    }

    fn fetch_as(&mut self, most: usize, request: &Value) -> Vec<(String, String)> {
        self.say(&self.subjects.fetch.clone(), &request.to_string());
        let mut heard = Vec::new();
        while heard.len() < most {
            let next = self.hear();
            if next.is_status {
                break;
            }
            heard.push(next);
        }
        let taken = |one: Heard| {
            self.say(&one.reply, "+ACK");
            // An acknowledgement that asks for an answer gets one.
            assert!(self.hear().payload.is_empty());
            let event: Value = serde_json::from_slice(&one.payload).unwrap();
            (one.subject, event["id"].as_str().unwrap().to_owned())
        };
        heard.into_iter().map(taken).collect()
    }
}

#[tokio::test]
async fn a_program_fetches_the_events_of_its_organization_and_types_each_until_it_is_acknowledged() {
    let two = Two::start().await;
    two.make(first(two.home), &["kasbah.sync.*"]).await;
    two.make(first(two.other), &[]).await;
    for number in 1..=4 {
        two.export(two.home, number, "kasbah.sync.finished").await;
        two.export(two.home, number + 10, "kasbah.token.issued").await;
        two.export(two.other, number, "kasbah.sync.finished").await;
    }
    let mut program = Program::connect(&two, first(two.home));
    assert_eq!(two.waiting(first(two.home)).await, (4, 0));
    let got = program.fetch(3);
    let ids: Vec<&str> = got.iter().map(|(_, id)| id.as_str()).collect();
    let expected: Vec<String> = (1..=3).map(|number| format!("{}/{number}", two.home)).collect();
    assert_eq!(ids, expected);
    assert!(got.iter().all(|(subject, _)| subject.ends_with(".kasbah.sync.finished")), "{got:?}");
    assert_eq!(two.waiting(first(two.home)).await, (1, 0));
    // Another program of the organization goes on where this one was.
    drop(program);
    let mut again = Program::connect(&two, first(two.home));
    assert_eq!(again.fetch(10), [(got[0].0.clone(), format!("{}/4", two.home))]);
    assert_eq!(two.waiting(first(two.home)).await, (0, 0));
    assert_eq!(two.waiting(first(two.other)).await, (4, 0), "nobody else's were touched");
}

#[tokio::test]
async fn a_program_gets_nothing_while_its_consumer_is_paused_and_goes_on_where_it_was() {
    let two = Two::start().await;
    let mine = first(two.home);
    two.make(mine, &[]).await;
    two.export(two.home, 1, "kasbah.sync.finished").await;
    let mut program = Program::connect(&two, mine);
    assert_eq!(program.fetch_next().1, format!("{}/1", two.home));
    two.relay.pause(mine, true).await.unwrap();
    assert!(two.relay.find(mine).await.unwrap().unwrap().paused);
    two.export(two.home, 2, "kasbah.sync.finished").await;
    // A request that waits for a moment ends without an event.
    assert_eq!(program.fetch_as(1, &json!({ "batch": 1, "expires": 500_000_000 })), []);
    assert_eq!(two.waiting(mine).await, (1, 0));
    assert!(two.relay.oldest(mine).await.unwrap().is_some());
    two.relay.pause(mine, false).await.unwrap();
    assert_eq!(program.fetch_next().1, format!("{}/2", two.home));
    assert_eq!(two.relay.oldest(mine).await.unwrap(), None);
}

#[tokio::test]
async fn a_subscriber_does_nothing_but_fetch_from_and_acknowledge_its_own_consumers() {
    let two = Two::start().await;
    let (mine, theirs, stream) = (first(two.home), first(two.other), two.stream.clone());
    two.make(mine, &[]).await;
    two.make(theirs, &[]).await;
    let mut user = User::connect(&two.server, &two.home.to_string());
    let ConsumerSubjects { fetch, acknowledge } = ConsumerSubjects::of(theirs, PARTITIONS);
    let position = "1.1.1.1700000000000000000.0";
    let acknowledgement = acknowledge.replace('>', position);
    let exported =
        format!("kasbah.exported.{}.{}.kasbah.sync.finished", &stream["kasbah-exports-".len()..], two.home);
    let mut refused =
        vec![fetch, acknowledgement, exported, "$JS.API.INFO".to_owned(), "$JS.API.STREAM.NAMES".to_owned()];
    for verb in
        ["INFO", "CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE"]
    {
        refused.push(format!("$JS.API.STREAM.{verb}.{stream}"));
    }
    refused.push("$JS.API.STREAM.CREATE.stolen".to_owned());
    refused.push(format!("$JS.API.DIRECT.GET.{stream}"));
    refused.push(format!("$JS.API.CONSUMER.NAMES.{stream}"));
    refused.push(format!("$JS.API.CONSUMER.LIST.{stream}"));
    refused.push(format!("$JS.API.CONSUMER.CREATE.{stream}"));
    for name in [mine.to_string(), theirs.to_string(), "spy".to_owned()] {
        for verb in
            ["INFO", "CREATE", "DURABLE.CREATE", "DELETE", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN"]
        {
            refused.push(format!("$JS.API.CONSUMER.{verb}.{stream}.{name}"));
        }
    }
    refused.push(format!("$JS.API.CONSUMER.CREATE.{stream}.spy.kasbah.exported.x"));
    // Acknowledgements of another consumer in the form that names a domain, by way of one's own name.
    refused.push(format!("$JS.ACK._.hash.{stream}.{mine}.{position}"));
    refused.push(format!("$JS.ACK.{stream}.{theirs}.{stream}.{mine}.1.1.1"));
    refused.push("_INBOX.event-relay.one".to_owned());
    for subject in refused {
        assert!(!user.may_say(&subject), "{subject}");
    }
    for subject in [">", "$JS.>", "$JS.ACK.>", "_R_.>", "kasbah.exported.>", "kasbah.stored.>", "*.>"] {
        assert!(!user.may_hear(subject), "{subject}");
    }
    // An account is no way into another one's inboxes.
    let mut listener = User::connect(&two.server, &two.other.to_string());
    assert!(listener.may_hear("_INBOX.>") && user.may_hear("_INBOX.>"));
    two.export(two.other, 1, "kasbah.sync.finished").await;
    Program::connect(&two, theirs).fetch_next();
    assert_eq!(two.waiting(theirs).await, (0, 0));
    assert_eq!(two.waiting(mine).await, (0, 0));
    let names: Vec<ConsumerName> = two.relay.list().await.unwrap().into_keys().collect();
    assert_eq!(names, [mine, theirs], "nobody made or deleted one");
}

#[tokio::test]
async fn one_that_floods_its_consumer_disturbs_no_other_organization() {
    let two = Two::start().await;
    let (mine, theirs) = (first(two.home), first(two.other));
    two.make(mine, &[]).await;
    two.make(theirs, &[]).await;
    for number in 1..=600 {
        two.export(two.home, number, "kasbah.sync.finished").await;
    }
    // Requests without end, answers to nothing, and acknowledgements of what was never given out.
    let mut flooding = Program::connect(&two, mine);
    let ConsumerSubjects { fetch, acknowledge } = flooding.subjects.clone();
    let greedy = "{\"batch\":256,\"expires\":300000000000}";
    let requests = [greedy, "{\"batch\":-1}", "nonsense", "{\"batch\":99999999,\"expires\":1}"];
    let answers = ["+ACK", "-NAK", "+TERM", "+NXT {\"batch\":1000}"];
    for (number, (request, answer)) in (0..2_000).zip(requests.into_iter().zip(answers).cycle()) {
        flooding.say(&fetch, request);
        let invented = acknowledge.replace('>', &format!("1.{number}.{number}.1700000000000000000.0"));
        flooding.say(&invented, answer);
    }
    flooding.synchronize();
    let mut other = Program::connect(&two, theirs);
    for number in 1..=20 {
        two.export(two.other, number, "kasbah.sync.finished").await;
        assert_eq!(other.fetch_next().1, format!("{}/{number}", two.other));
    }
    assert_eq!(two.waiting(theirs).await, (0, 0));
    let consumer = two.relay.find(mine).await.unwrap().unwrap();
    assert!(consumer.unacknowledged <= 256, "{consumer:?}");
}

/// The consumer of the documentation while it runs.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[tokio::test]
async fn the_example_of_the_documentation_fetches_and_goes_on_where_it_was() {
    let two = Two::start().await;
    let mine = first(two.home);
    two.make(mine, &["kasbah.sync.*"]).await;
    for (begin, end) in [(1, 150), (151, 155)] {
        for number in begin..=end {
            two.export(two.home, number, "kasbah.sync.finished").await;
        }
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/events/fetch.py");
        let address = two.server.address().to_string();
        let mut python = Command::new("python3");
        python.arg(file).args([&address, &two.home.to_string(), &two.stream, &mine.to_string()]);
        python.env("NATS_PASSWORD", PASSWORD).stdout(Stdio::piped());
        let mut example = Example(python.spawn().unwrap());
        let output = example.0.stdout.take().unwrap();
        let (printed, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _gone = printed.send(line);
            }
        });
        for number in begin..=end {
            let line = lines.recv_timeout(LIMIT).unwrap();
            assert_eq!(line, format!("{number} kasbah.sync.finished source/1"));
        }
        // The last one is acknowledged when the next one is asked for.
        testkit::eventually(LIMIT, || async {
            let waiting = two.waiting(mine).await;
            if waiting == (0, 0) { Ok(()) } else { Err(format!("{waiting:?}")) }
        })
        .await;
    }
}
