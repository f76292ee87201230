//! The accounts of NATS servers, as they are shipped: what each user may say and hear on a real server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use events::subject::{Subject, partition_of_organization};
use events::{AggregateKind, OrganizationId};
use kasbah::server::AccountsArgs;
use serde_json::{Value, json};
use testkit::NatsServer;

const SERVICES: [&str; 8] = [
    "authz",
    "config-fetcher",
    "repo-poller",
    "delivery",
    "resource-indexer",
    "event-relay",
    "tunnel-gateway",
    "console",
];
const ACCOUNTS: &str = "deploy/nats/accounts.conf";
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// What every user of a server as shipped has.
pub const PASSWORD: &str = "shipped";

/// A connection that speaks the protocol by hand, so that every refusal is seen.
pub struct Wire(BufReader<TcpStream>);

impl Wire {
    /// Dials a server, and asks to be let in; the answer is not read yet. A line is waited for as long as `limit`.
    pub fn connect(server: &NatsServer, limit: Duration, options: &Value) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(limit)).unwrap();
        let mut wire = Self(BufReader::new(stream));
        assert!(wire.line().starts_with("INFO "));
        wire.write(&format!("CONNECT {options}\r\n"));
        wire
    }

    pub fn write(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the server closed the connection");
        line.trim_end().to_owned()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }
}

/// A user of the server, who learns of each line whether it is allowed.
pub struct User {
    name: String,
    wire: Wire,
}

impl User {
    pub fn connect(server: &NatsServer, name: &str) -> Self {
        let options = json!({ "verbose": true, "headers": true, "user": name, "pass": PASSWORD });
        let wire = Wire::connect(server, ANSWER_TIME, &options);
        let mut user = Self { name: name.to_owned(), wire };
        assert_eq!(user.answer(), "+OK", "{name} may connect");
        user
    }

    /// The server's answer to what was said last.
    fn answer(&mut self) -> String {
        loop {
            match self.wire.line().as_str() {
                "PING" => self.wire.write("PONG\r\n"),
                answer => return answer.to_owned(),
            }
        }
    }

    fn allowed(&mut self, said: &str) -> bool {
        self.wire.write(&format!("{said}\r\n"));
        let answer = self.answer();
        assert!(
            answer == "+OK" || answer.starts_with("-ERR 'Permissions Violation"),
            "{}: {said:?} is answered {answer:?}",
            self.name
        );
        answer == "+OK"
    }

    pub fn may_say(&mut self, subject: &str) -> bool {
        self.allowed(&format!("PUB {subject} 0\r\n"))
    }

    pub fn may_hear(&mut self, subject: &str) -> bool {
        self.allowed(&format!("SUB {subject} 1"))
    }
}

/// Which services may say this.
fn speakers(users: &mut [User], subject: &str) -> Vec<String> {
    users.iter_mut().filter_map(|user| user.may_say(subject).then(|| user.name.clone())).collect()
}

/// Which services may hear this.
fn listeners(users: &mut [User], subject: &str) -> Vec<String> {
    users.iter_mut().filter_map(|user| user.may_hear(subject).then(|| user.name.clone())).collect()
}

pub fn accounts(organizations: &[OrganizationId]) -> String {
    AccountsArgs { organizations: organizations.to_vec(), partitions: store::log::PARTITIONS }.text()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_shipped_accounts_are_those_of_the_code() {
    let shipped = root().join(ACCOUNTS);
    if std::env::var_os("KASBAH_WRITE_REFERENCE").is_some() {
        std::fs::write(&shipped, accounts(&[])).unwrap();
    }
    let advice = "deploy/nats/accounts.conf is stale: run KASBAH_WRITE_REFERENCE=1 cargo test -p kasbah --test strangers nats";
    assert!(std::fs::read_to_string(shipped).unwrap_or_default() == accounts(&[]), "{advice}");
}

/// Requests and notices of other services that Rust text imports.
fn imported(text: &str, service: &str, names: &BTreeMap<String, String>) -> BTreeSet<String> {
    let imports = text.split("use events::requests::").skip(1).filter_map(|rest| rest.split(';').next());
    let words = imports.flat_map(|import| import.split(|symbol: char| !symbol.is_alphanumeric()));
    let found = words.filter_map(|word| names.get(word));
    found.filter(|name| !name.starts_with(&format!("{service}."))).cloned().collect()
}

/// The types of all requests and notices, with their names.
fn names() -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for (_, text) in sources(&root().join("events/src/requests")) {
        let requests = text.split("request!(").skip(1).filter_map(|rest| rest.split_once(" =>"));
        let notices = text.split("Notice for ").skip(1).filter_map(|rest| rest.split_once(" {"));
        for (kind, rest) in requests.chain(notices) {
            names.insert(kind.to_owned(), rest.split('"').nth(1).unwrap().to_owned());
        }
    }
    names
}

/// Rust files below a folder, without tests.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false if path.ends_with("tests.rs") => Vec::new(),
        false => vec![(path.clone(), std::fs::read_to_string(path).unwrap())],
    };
    entries.flat_map(of).collect()
}

#[test]
fn a_service_claims_what_its_code_asks_and_no_more() {
    let names = names();
    assert!(names.len() > 40, "{names:?}");
    for service in SERVICES {
        let sources = sources(&root().join(format!("services/{service}/src")));
        let (claims, code): (Vec<_>, Vec<_>) =
            sources.into_iter().partition(|(path, _)| path.ends_with("src/access.rs"));
        let all = |files: Vec<(PathBuf, String)>| -> BTreeSet<String> {
            files.iter().flat_map(|(_, text)| imported(text, service, &names)).collect()
        };
        assert_eq!(all(claims), all(code), "{service}: what it claims, and what it imports");
    }
}

#[tokio::test]
async fn each_kind_of_fact_is_said_by_one_service_alone() {
    let server = NatsServer::start_as_shipped().await.unwrap();
    let mut users = SERVICES.map(|service| User::connect(&server, service));
    for kind in AggregateKind::ALL {
        let decides = match kind {
            AggregateKind::Configuration => "config-fetcher",
            AggregateKind::Ref => "repo-poller",
            AggregateKind::Source | AggregateKind::Applier => "delivery",
            AggregateKind::Environment | AggregateKind::Deployment => "delivery",
            AggregateKind::Subscription => "event-relay",
            _ => "authz",
        };
        assert_eq!(speakers(&mut users, &format!("kasbah.log.3.acme.{kind}.one")), [decides], "{kind}");
    }
    assert_eq!(speakers(&mut users, "kasbah.observed.3.acme.writer"), ["tunnel-gateway"]);
    assert_eq!(speakers(&mut users, "kasbah.objects.3.acme.writer"), ["tunnel-gateway"]);
    assert_eq!(speakers(&mut users, "kasbah.refused.3.acme"), ["authz"]);
    assert_eq!(speakers(&mut users, "kasbah.audit.3.acme"), ["tunnel-gateway"]);
    let blobs = speakers(&mut users, "kasbah.blob.acme.one");
    assert_eq!(blobs, ["repo-poller", "delivery", "tunnel-gateway"]);
    assert_eq!(speakers(&mut users, "kasbah.keys.person.one"), ["authz"]);
    assert_eq!(speakers(&mut users, "kasbah.keys.credential.one"), ["authz"]);
    assert_eq!(speakers(&mut users, "kasbah.keys.certificate-authority"), ["tunnel-gateway", "console"]);
    assert_eq!(speakers(&mut users, "kasbah.snapshot.head.delivery"), ["delivery"]);
    assert_eq!(speakers(&mut users, "kasbah.notice.desired.changed"), ["delivery"]);
    assert_eq!(speakers(&mut users, "kasbah.notice.exports.followed"), ["console"]);
    assert_eq!(
        speakers(&mut users, "kasbah.stored.log.3.acme.user.one"),
        [""; 0],
        "copies come from the server"
    );
    assert_eq!(speakers(&mut users, "kasbah.exported.3.acme.kasbah.sync.finished"), ["event-relay"]);
    assert_eq!(speakers(&mut users, "kasbah.export.acme.one"), [""; 0]);
}

#[tokio::test]
async fn nobody_takes_decisions_away_and_one_makes_the_log_and_lets_the_rest_go() {
    let server = NatsServer::start_as_shipped().await.unwrap();
    let mut users = [&SERVICES[..], &["kasbah"]]
        .concat()
        .iter()
        .map(|name| User::connect(&server, name))
        .collect::<Vec<_>>();
    for stream in [
        "kasbah-decisions-0",
        "kasbah-observations-0",
        "kasbah-objects-0",
        "kasbah-keys",
        "kasbah-meta",
        "kasbah-blobs",
        "kasbah-checkpoints",
    ] {
        for verb in ["DELETE", "PURGE", "MSG.DELETE", "RESTORE", "SNAPSHOT", "LEADER.STEPDOWN"] {
            let may: &[&str] = match (verb, stream) {
                ("PURGE", "kasbah-observations-0" | "kasbah-objects-0") => &["authz", "kasbah"],
                _ => &[],
            };
            assert_eq!(
                speakers(&mut users, &format!("$JS.API.STREAM.{verb}.{stream}")),
                may,
                "{verb} {stream}"
            );
        }
        for verb in ["CREATE", "UPDATE"] {
            assert_eq!(speakers(&mut users, &format!("$JS.API.STREAM.{verb}.{stream}")), ["authz", "kasbah"]);
        }
    }
    assert_eq!(speakers(&mut users, "kasbah.meta"), ["authz", "kasbah"]);
    assert_eq!(speakers(&mut users, "kasbah.checkpoint.log.3"), ["authz", "kasbah"]);
    let everybody = speakers(&mut users, "$JS.API.DIRECT.GET.kasbah-checkpoints");
    assert_eq!(everybody.len(), SERVICES.len() + 1, "{everybody:?}");
    let auditors = speakers(&mut users, "kasbah.audit.3.acme");
    assert_eq!(auditors, ["tunnel-gateway", "kasbah"], "and whoever copies a log");
    let readers = speakers(&mut users, "$JS.API.DIRECT.GET.kasbah-observations-15");
    assert_eq!(
        readers,
        ["authz", "delivery", "resource-indexer", "event-relay", "tunnel-gateway", "console", "kasbah"]
    );
    assert_eq!(listeners(&mut users, "kasbah.stored.observed.>"), readers);
    let readers = speakers(&mut users, "$JS.API.DIRECT.GET.kasbah-objects-15");
    let expected = ["authz", "resource-indexer", "tunnel-gateway", "console", "kasbah"];
    assert_eq!(readers, expected, "delivery does not read objects");
    assert_eq!(listeners(&mut users, "kasbah.stored.objects.>"), readers);
    assert_eq!(speakers(&mut users, "$JS.API.DIRECT.GET.kasbah-refusals-15"), ["authz", "console", "kasbah"]);
    assert_eq!(
        speakers(&mut users, "$JS.API.DIRECT.GET.kasbah-blobs"),
        ["repo-poller", "delivery", "resource-indexer", "tunnel-gateway", "kasbah"]
    );
}

#[tokio::test]
async fn nobody_answers_for_another_or_hears_their_answers() {
    let server = NatsServer::start_as_shipped().await.unwrap();
    let mut users = SERVICES.map(|service| User::connect(&server, service));
    for service in SERVICES {
        assert_eq!(listeners(&mut users, &format!("kasbah.request.{service}.some")), [service]);
        assert_eq!(listeners(&mut users, &format!("_INBOX.{service}.one.>")), [service]);
    }
    for everything in [">", "kasbah.>", "kasbah.request.>", "_INBOX.>", "_INBOX.*.one", "$JS.>", "$SYS.>"] {
        assert_eq!(listeners(&mut users, everything), [""; 0], "{everything}");
    }
    assert_eq!(speakers(&mut users, "kasbah.request.authz.ensure-owner"), ["authz"]);
    assert_eq!(speakers(&mut users, "kasbah.request.authz.issue-token"), ["console"]);
    assert_eq!(speakers(&mut users, "kasbah.request.delivery.name-applier"), ["tunnel-gateway"]);
    assert_eq!(
        speakers(&mut users, "kasbah.request.repo-poller.read-file.one"),
        ["config-fetcher", "repo-poller"]
    );
}

#[tokio::test]
async fn a_subscriber_from_outside_hears_what_is_exported_for_its_organization_and_nothing_else() {
    let [home, other] = [1, 2].map(|id| OrganizationId(uuid::Uuid::from_u128(id)));
    let accounts = accounts(&[home, other]);
    // One that exports.
    let relay = "{ user: relay, password: shipped, permissions: { publish: [\"kasbah.>\"] } }";
    let begin = "{ user: kasbah,";
    assert!(accounts.contains(begin));
    let accounts = accounts.replace(begin, &format!("{relay}\n{begin}"));
    let server = NatsServer::start_with_accounts(&accounts).await.unwrap();
    let mut relay = User::connect(&server, "relay");
    let mut subscriber = User::connect(&server, &home.to_string());
    for subject in [">", "kasbah.>", "kasbah.log.>", "kasbah.export.>", &format!("kasbah.export.{other}.>")] {
        assert!(!subscriber.may_hear(subject), "{subject}");
    }
    for subject in [
        format!("kasbah.export.{home}.one"),
        "kasbah.request.authz.decide".to_owned(),
        "$JS.API.INFO".to_owned(),
    ] {
        assert!(!subscriber.may_say(&subject), "{subject}");
    }
    assert!(subscriber.may_hear(&format!("kasbah.export.{home}.>")));
    let exported = |organization, event_type| {
        let partition = partition_of_organization(organization, store::log::PARTITIONS);
        Subject::exported(partition, organization, event_type).to_string()
    };
    for subject in [
        exported(other, "kasbah.sync.finished"),
        format!("kasbah.log.0.{home}.user.one"),
        format!("kasbah.export.{home}.one"),
        exported(home, "kasbah.sync.finished"),
    ] {
        assert!(relay.may_say(&subject));
    }
    assert_eq!(subscriber.wire.line(), format!("MSG kasbah.export.{home}.kasbah.sync.finished 1 0"));
}
