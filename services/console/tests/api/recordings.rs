//! Recordings of sessions over HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::position::Stream;
use events::recording::{RecordingBatch, SessionChannel, SessionPiece};
use events::{AgentId, InstanceId, OrganizationId};
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::{NewBatch, Sealing};
use uuid::Uuid;

use crate::serving::{Console, HOME, STRANGER};

impl Console {
    /// A batch of a session's recording, as a gateway writes it.
    async fn record(&self, organization: OrganizationId, session: Uuid, number: u32, said: &[&str]) {
        let pieces: Vec<SessionPiece> = said
            .iter()
            .map(|text| SessionPiece {
                at_millis: u64::from(number) * 1000,
                channel: SessionChannel::Output,
                bytes: text.as_bytes().to_vec(),
            })
            .collect();
        let is_last = said.is_empty();
        let sealing = Sealing::of(&*self.store.keys, organization, RecordingBatch::PURPOSE).await.unwrap();
        let bound_to = RecordingBatch::bound_to(session, number, is_last);
        let content = events::encode(&pieces).unwrap();
        let sealed = sealing.seal(&*self.world.random, &bound_to, &content).unwrap();
        let (agent, gateway) = (AgentId(Uuid::nil()), InstanceId(Uuid::nil()));
        let batch = RecordingBatch { session, agent, gateway, number, is_last, sealed };
        assert!(!events::encode(&batch).unwrap().windows(4).any(|window| window == b"said"));
        self.append_recorded(organization, &batch).await;
    }

    async fn append_recorded(&self, organization: OrganizationId, batch: &RecordingBatch) {
        let (stream, writer) = (Stream::Recordings, batch.session.to_string());
        let data = events::encode(batch).unwrap();
        self.store.log.append_batch(NewBatch { stream, organization, writer, data }).await.unwrap();
    }

    async fn recording(&self, token: &str, session: Uuid) -> (StatusCode, Vec<Value>) {
        let url = self.url(&format!("/api/v1/log/recordings/{session}"));
        let answered = self.client.get(url).bearer_auth(token).send().await.unwrap();
        let status = answered.status();
        let text = answered.text().await.unwrap();
        (status, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }
}

fn piece(number: u32, text: &str) -> Value {
    let bytes = STANDARD.encode(text);
    json!({"line": "piece", "at_millis": number * 1000, "channel": "output", "bytes": bytes})
}

#[tokio::test]
async fn a_recording_is_read_once_and_in_order_whatever_lies_between() {
    let console = Console::start().await;
    let home = console.home.organization;
    let (session, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    for number in [0, 1, 1, 0, 2] {
        console.record(home, session, number, &["said ", "again"]).await;
        console.record(home, other, number, &["said by another"]).await;
    }
    let pieces = (0..3).flat_map(|number| [piece(number, "said "), piece(number, "again")]);
    let mut expected: Vec<Value> = pieces.collect();
    expected.push(json!({"line": "end", "is_over": false}));
    assert_eq!(console.recording(HOME, session).await, (StatusCode::OK, expected.clone()));

    console.record(home, session, 4, &["said later"]).await;
    console.record(home, session, 5, &[]).await;
    expected.pop();
    let end = json!({"line": "end", "is_over": true});
    expected.extend([json!({"line": "gap"}), piece(4, "said later"), end]);
    assert_eq!(console.recording(HOME, session).await, (StatusCode::OK, expected));
    console.stop().await;
}

#[tokio::test]
async fn a_recording_is_the_organizations_own_and_cannot_be_put_together_anew() {
    let console = Console::start().await;
    let (home, stranger) = (console.home.organization, console.stranger.organization);
    let session = Uuid::from_u128(1);
    console.record(home, session, 0, &["said"]).await;
    let (status, told) = console.recording(STRANGER, session).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{told:?}");
    let (status, told) = console.recording(HOME, Uuid::from_u128(2)).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{told:?}");

    // Sealed by another organization, or moved to another place.
    let (agent, gateway) = (AgentId(Uuid::nil()), InstanceId(Uuid::nil()));
    for (organization, number) in [(stranger, 1), (home, 7)] {
        let sealing = Sealing::of(&*console.store.keys, organization, RecordingBatch::PURPOSE).await.unwrap();
        let bound_to = RecordingBatch::bound_to(session, 1, true);
        let sealed = sealing.seal(&*console.world.random, &bound_to, b"\x90").unwrap();
        let batch = RecordingBatch { session, agent, gateway, number, is_last: true, sealed };
        console.append_recorded(home, &batch).await;
    }
    let (gap, end) = (json!({"line": "gap"}), json!({"line": "end", "is_over": false}));
    let expected = vec![piece(0, "said"), gap.clone(), gap, end];
    assert_eq!(console.recording(HOME, session).await, (StatusCode::OK, expected));
    console.stop().await;
}
