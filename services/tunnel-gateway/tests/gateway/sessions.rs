//! Sessions whose contents are recorded, with an agent that says what it is told.

use std::sync::Arc;

use bytes::Bytes;
use events::audit::AuditBatch;
use events::recording::SessionChannel::{Input, Output, Request, Resize};
use events::recording::{RecordSessions, RecordingBatch, SessionChannel, SessionPiece};
use events::{Position, Stream};
use http::{HeaderMap, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::service::service_fn;
use parking_lot::Mutex;
use reqwest::Upgraded;
use store::{EventLog, ReadFilter, Sealing};
use testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tunnel::agent::{LinkEnd, dial};
use tunnel::body::{BodyFault, EventSender, GuardedBody, event_body};
use tunnel::handshake::{Hello, Token};
use tunnel::wire::cluster;
use uuid::Uuid;

use super::clients::{Clients, Second};
use super::harness::{Gateway, LIMIT, args, instance, organization, secret, spawn};
use super::recording::HeldLog;

const EXEC: &str = "/api/v1/namespaces/a/pods/b/exec?command=sh&stdin=true&stdout=true";
const CHANNELS: &str = "v5.channel.k8s.io";

type AgentsBody = UnsyncBoxBody<Bytes, BodyFault>;

struct Stage {
    first: Gateway,
    gateway: Second,
    log: Arc<HeldLog>,
    clients: Clients,
    _agent: JoinHandle<LinkEnd>,
}

impl Stage {
    async fn start(kept: RecordSessions) -> Self {
        let first = Gateway::start().await;
        first.register(1).await;
        let clients = Clients::of(&first).await;
        clients.let_in(1);
        clients.record_sessions(kept);
        let log = HeldLog::of(&first, Stream::Recordings);
        let gateway = Second::with(&first, args(), Arc::clone(&log) as Arc<dyn EventLog>).await;
        let agent = echoing_agent(&first, &gateway).await;
        Self { first, gateway, log, clients, _agent: agent }
    }

    fn wish(&self, subprotocol: &str) -> reqwest::RequestBuilder {
        let request = self.clients.request(1, self.gateway.clusters, 1, EXEC);
        request
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", subprotocol)
    }

    async fn session(&self) -> Upgraded {
        self.wish(CHANNELS).send().await.unwrap().upgrade().await.unwrap()
    }

    /// The ids of sessions that audit records call recorded.
    async fn recorded(&self) -> Vec<Uuid> {
        let filter = ReadFilter::streams(&[Stream::Audit]);
        let mut records = self.first.store.log.read(&Position::start(), &filter).await.unwrap();
        let mut found = Vec::new();
        while let Some(record) = records.recv().await {
            let batch: AuditBatch = events::decode(&record.unwrap().bytes).unwrap();
            found.extend(batch.records.iter().filter(|record| record.is_recorded).map(|record| record.id));
        }
        found.dedup();
        found
    }

    /// What was recorded of all sessions, each channel's together, and of how many the end.
    async fn recordings(&self) -> (Vec<(SessionChannel, Vec<u8>)>, usize) {
        let filter = ReadFilter::streams(&[Stream::Recordings]);
        let mut records = self.first.store.log.read(&Position::start(), &filter).await.unwrap();
        let sealing =
            Sealing::of(&*self.first.store.keys, organization(), RecordingBatch::PURPOSE).await.unwrap();
        let (mut said, mut ended): (Vec<(SessionChannel, Vec<u8>)>, usize) = (Vec::new(), 0);
        while let Some(record) = records.recv().await {
            let batch: RecordingBatch = events::decode(&record.unwrap().bytes).unwrap();
            let bound_to = RecordingBatch::bound_to(batch.session, batch.number, batch.is_last);
            let opened = sealing.open(&bound_to, &batch.sealed).unwrap();
            ended += usize::from(batch.is_last);
            for SessionPiece { channel, bytes, .. } in events::decode::<Vec<SessionPiece>>(&opened).unwrap() {
                if channel == Request {
                    assert_eq!(bytes, EXEC.as_bytes());
                    continue;
                }
                match said.iter_mut().find(|(known, _)| *known == channel) {
                    Some((_, text)) => text.extend(bytes),
                    None => said.push((channel, bytes)),
                }
            }
        }
        (said, ended)
    }

    async fn are_recorded(&self, wanted: &[(SessionChannel, &[u8])], wanted_ends: usize) {
        eventually(LIMIT, || async {
            let (said, ended) = self.recordings().await;
            let are = said.len() == wanted.len()
                && wanted
                    .iter()
                    .all(|(channel, text)| said.iter().any(|(known, said)| known == channel && said == text));
            if are && ended == wanted_ends { Ok(()) } else { Err(format!("{ended} ended: {said:?}")) }
        })
        .await;
    }
}

/// Connects an agent that answers each upgrade with what it is told.
async fn echoing_agent(first: &Gateway, gateway: &Second) -> JoinHandle<LinkEnd> {
    let hello = Hello::control(instance(1), 0, "0.1.0");
    let link = dial(&first.world, gateway.target(), &Token::new(&secret(1)), &hello).await.unwrap();
    let events: Arc<Mutex<Option<EventSender>>> = Arc::default();
    let of_service = Arc::clone(&events);
    let service = service_fn(move |request: http::Request<GuardedBody>| {
        let answer = echo(request, &mut of_service.lock());
        async move { Ok::<_, BodyFault>(answer) }
    });
    let link = spawn(link.serve(service, std::future::pending()));
    eventually(LIMIT, || async { events.lock().as_ref().map(drop).ok_or("it is not in yet") }).await;
    link
}

fn echo(request: http::Request<GuardedBody>, events: &mut Option<EventSender>) -> Response<AgentsBody> {
    if request.uri().path() == "/v1/events" {
        let (sender, body) = event_body(64);
        *events = Some(sender);
        return Response::new(body.map_err(|never| match never {}).boxed_unsync());
    }
    let Some(protocol) = request.headers().get(cluster::UPGRADE).cloned() else {
        return Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    };
    let chosen: HeaderMap = request
        .headers()
        .get("sec-websocket-protocol")
        .map(|chosen| ("sec-websocket-protocol".parse().unwrap(), chosen.clone()))
        .into_iter()
        .collect();
    let mut answer = Response::new(request.into_body().boxed_unsync());
    answer.headers_mut().extend(chosen);
    answer.headers_mut().insert(cluster::UPGRADE, protocol);
    answer
}

/// A message on a channel, which the agent says as well. Masked with nothing, so that it reads the same.
fn message(channel: u8, text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len() + 1).unwrap().to_be_bytes();
    [&[0x82, 0x80 | 126], &length[..], &[0; 4], &[channel], text].concat()
}

/// Says something, and hears it said.
async fn say(session: &mut Upgraded, message: &[u8]) {
    session.write_all(message).await.unwrap();
    let mut heard = vec![0; message.len()];
    timeout(LIMIT, session.read_exact(&mut heard)).await.expect("it is said in time").unwrap();
    assert_eq!(heard, message);
}

async fn ends(mut session: Upgraded) {
    let ended = timeout(LIMIT, session.read_to_end(&mut Vec::new())).await.expect("it ends in time");
    // With or without a word: nothing comes any more.
    drop(ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_session_is_kept_what_the_configuration_wants() {
    let said: [(SessionChannel, &[u8]); 3] = [(Input, b"ls\n"), (Output, b"a b\n"), (Resize, b"{}")];
    for (kept, wanted) in [
        (RecordSessions::None, &said[..0]),
        (RecordSessions::Output, &said[1..]),
        (RecordSessions::All, &said[..]),
    ] {
        let stage = Stage::start(kept).await;
        let mut session = stage.session().await;
        for (channel, text) in [(0, "ls\n"), (1, "a b\n"), (4, "{}")] {
            say(&mut session, &message(channel, text.as_bytes())).await;
        }
        drop(session);
        let sessions = usize::from(kept != RecordSessions::None);
        stage.are_recorded(wanted, sessions).await;
        eventually(LIMIT, || async {
            let recorded = stage.recorded().await;
            if recorded.len() == sessions { Ok(()) } else { Err(format!("{recorded:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_waits_while_the_log_does_not_take_it() {
    let stage = Stage::start(RecordSessions::All).await;
    let mut session = stage.session().await;
    stage.log.held.send_replace(true);
    let text = [b'x'; 1000];
    let (mut reader, mut writer) = tokio::io::split(session);
    let writing = spawn(async move {
        for _ in 0..2000 {
            writer.write_all(&message(0, &text)).await.unwrap();
        }
        writer
    });
    let reading = spawn(async move {
        let mut heard = vec![0; 2000 * message(0, &text).len()];
        reader.read_exact(&mut heard).await.unwrap();
        reader
    });
    stage.log.came.subscribe().wait_for(|came| *came > 0).await.unwrap();
    assert_eq!(stage.recordings().await.0, []);
    assert!(!reading.is_finished(), "it went on");
    stage.log.held.send_replace(false);
    let writer = timeout(LIMIT, writing).await.unwrap().unwrap();
    let reader = timeout(LIMIT, reading).await.unwrap().unwrap();
    session = reader.unsplit(writer);
    say(&mut session, &message(1, b"done")).await;
    drop(session);
    stage.are_recorded(&[(Input, &[b'x'; 2_000_000]), (Output, b"done")], 1).await;
}

/// Each of them costs more than what it says.
#[tokio::test(flavor = "multi_thread")]
async fn very_many_very_short_words_are_recorded_all_the_same() {
    let stage = Stage::start(RecordSessions::All).await;
    let mut session = stage.session().await;
    let words = message(0, b"x").repeat(40_000);
    let (mut reader, mut writer) = tokio::io::split(&mut session);
    let mut heard = vec![0; words.len()];
    let both = async { tokio::try_join!(writer.write_all(&words), reader.read_exact(&mut heard)).unwrap() };
    timeout(LIMIT, both).await.expect("it goes on");
    drop(session);
    stage.are_recorded(&[(Input, &[b'x'; 40_000])], 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_does_not_go_on() {
    let stage = Stage::start(RecordSessions::Output).await;
    let refused = stage.wish(&format!("{CHANNELS}, portforward.k8s.io")).send().await.unwrap();
    assert_eq!(refused.status(), 403);
    let told = refused.text().await.unwrap();
    assert!(told.contains("must be recorded") && told.contains("use kubectl"), "{told}");
    let mut hiding = stage.session().await;
    // A message in two frames, which the API server would take for two messages.
    hiding.write_all(&[0x02, 0x80, 0, 0, 0, 0]).await.unwrap();
    ends(hiding).await;

    let unwritten = stage.session().await;
    stage.log.refuses.send_replace(true);
    let (mut reader, mut writer) = tokio::io::split(unwritten);
    let reading = spawn(async move { reader.read_to_end(&mut Vec::new()).await });
    let mut said = 0;
    while writer.write_all(&message(1, b"x")).await.is_ok() {
        said += 1;
        tokio::task::yield_now().await;
    }
    assert!(said > 0);
    drop(timeout(LIMIT, reading).await.expect("it ends in time").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_session_ends_when_it_is_to_be_recorded_and_is_not() {
    let stage = Stage::start(RecordSessions::Output).await;
    let mut session = stage.session().await;
    say(&mut session, &message(1, b"a")).await;
    stage.clients.record_sessions(RecordSessions::None);
    stage.first.revoke_of_user(2).await;
    say(&mut session, &message(1, b"b")).await;
    stage.clients.record_sessions(RecordSessions::All);
    stage.first.revoke_of_user(3).await;
    ends(session).await;
    stage.are_recorded(&[(Output, b"ab")], 1).await;
}
