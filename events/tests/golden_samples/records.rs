//! Records as they lie in the log's streams around and beside the events: commits, observations, refusals. What was written once is
//! read for ever, so each kind stands in `tests/golden_records`, byte for byte. `KASBAH_GOLDEN=add` writes files that are missing.

use std::fmt::Debug;
use std::path::PathBuf;

use events::object::GroupKind;
use events::observation::{
    BrokenWatch, MissingRight, Observation, ObservationBatch, Observed, OwnedObject, TakenField,
    UnknownObservation, Write,
};
use events::request::RefusedCommand;
use events::value::AnyValue;
use events::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::objects::{further_object_changes, of_object_changes};
use crate::samples::{counts, failure, id, identity};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct GoldenRecord {
    /// The stored bytes, in hexadecimal.
    data: String,
    /// What today's code reads in them.
    json: serde_json::Value,
}

fn golden_of<T: Serialize>(record: &T) -> GoldenRecord {
    GoldenRecord {
        data: hex::encode(encode(record).expect("encodes")),
        json: serde_json::to_value(record).expect("json"),
    }
}

/// Today's code writes these bytes, and reads them as what they were.
fn stands<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, record: &T) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden_records/{name}.json"));
    let golden = golden_of(record);
    if !path.exists() && std::env::var("KASBAH_GOLDEN").as_deref() == Ok("add") {
        let text = serde_json::to_string_pretty(&golden).expect("json") + "\n";
        std::fs::write(&path, text).expect("write");
    }
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|_| panic!("{} is missing: add it with KASBAH_GOLDEN=add", path.display()));
    let stored: GoldenRecord = serde_json::from_str(&text).expect("golden json");
    assert_eq!(stored, golden, "{} was released and may not change", path.display());
    let read: T = decode(&hex::decode(stored.data).expect("hex")).expect("decodes");
    assert_eq!(&read, record, "{name}");
}

fn of_objects() -> Vec<Observed> {
    let (source, sync) = (SourceId(id(8)), SyncId(id(9)));
    let owned = OwnedObject {
        source,
        identity: identity(),
        uid: "5f0c7f0e-5a7e-4a51-8a3f-2b1d0c9e8f7a".to_owned(),
        digest: Some(Sha256([7; 32])),
        adopted: true,
    };
    let taken = TakenField { path: "spec.replicas".to_owned(), manager: "kubectl".to_owned() };
    let at = Timestamp(1_700_000_000_000);
    vec![
        Observed::InventoryStated {
            objects: vec![owned.clone()],
            last: true,
            unlisted: vec![GroupKind { group: "example.com".to_owned(), kind: "Thing".to_owned() }],
        },
        Observed::ObjectApplied {
            sync: Some(sync),
            object: owned,
            write: Write::Created,
            taken_over: vec![taken.clone()],
        },
        Observed::ObjectPruned {
            sync: Some(sync),
            source,
            identity: identity(),
            uid: "u".to_owned(),
            kept: Some("adopted".to_owned()),
            stays_owned: false,
        },
        Observed::ObjectFailed { sync, source, failure: failure(), retry_at: Some(at) },
        Observed::DriftSeen { source, identity: identity(), fields: vec![taken], deleted: false },
        Observed::DriftCorrected { source, identity: identity() },
        Observed::ObjectFinished {
            source,
            identity: identity(),
            uid: "u".to_owned(),
            digest: Sha256([7; 32]),
            failed: Some("the Job has reached its backoff limit".to_owned()),
        },
        Observed::HealthChanged {
            source,
            sync: None,
            identity: identity(),
            status: "degraded".to_owned(),
            message: "0 of 2 pods are available".to_owned(),
            optional: false,
        },
        Observed::CorrectionFailed { source, failure: failure(), retry_at: Some(at) },
    ]
}

fn of_sights() -> Vec<Observed> {
    let source = SourceId(id(8));
    vec![
        Observed::ExtraSeen {
            source,
            identity: identity(),
            fields: vec![TakenField { path: "data.more".to_owned(), manager: "kubectl-edit".to_owned() }],
            all: 2,
        },
        Observed::WatchesBroken {
            source,
            broken: vec![BrokenWatch {
                group: "apps".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: String::new(),
                reason: "forbidden".to_owned(),
                since: Timestamp(1_700_000_000_000),
                missing: None,
            }],
            all: 1,
        },
    ]
}

fn of_syncs_and_tunnels() -> Vec<Observed> {
    let (source, sync) = (SourceId(id(8)), SyncId(id(9)));
    let (agent, instance) = (AgentId(id(3)), InstanceId(id(4)));
    let text = str::to_owned;
    vec![
        Observed::SyncStarted { source, sync, correlation_id: CorrelationId(id(2)) },
        Observed::SyncWaiting { source, sync, reason: text("Deployment shop/web: 1 of 3 available") },
        Observed::SyncFinished {
            source,
            sync,
            outcome: delivery::SyncOutcome::Failed,
            counts: counts(),
            failures: vec![failure()],
        },
        Observed::SourceBlocked { source, reason: text("cannot impersonate"), missing: vec![] },
        Observed::Gap { dropped: 7 },
        Observed::ApiServerLost { reason: text("connection refused") },
        Observed::ApiServerReached {},
        Observed::TunnelOpened { agent, instance, version: text("0.1.0") },
        Observed::TunnelClosed { agent, instance, reason: text("token revoked") },
        Observed::TunnelRefused { agent: Some(agent), reason: text("token expired") },
    ]
}

#[test]
fn observations_stay_as_they_are() {
    let samples: Vec<Observed> =
        [of_objects(), of_sights(), of_syncs_and_tunnels(), of_object_changes()].concat();
    let names: std::collections::BTreeSet<(&str, u16)> =
        samples.iter().map(|what| (what.kind(), what.version())).collect();
    assert_eq!(names, Observed::KINDS.iter().copied().collect(), "each kind has a sample");
    let at = Timestamp(1_700_000_000_123);
    for what in samples {
        let version = if what.version() == 1 { String::new() } else { format!(".v{}", what.version()) };
        stands(&format!("observed.{}{version}", what.kind()), &Observation { at, what });
    }
    for (name, what) in further_object_changes() {
        stands(&format!("observed.{name}"), &Observation { at, what });
    }
    let of_a_newer_writer = UnknownObservation {
        kind: "door-seen".to_owned(),
        version: 3,
        content: AnyValue::Map(vec![(AnyValue::Text("doors".to_owned()), AnyValue::Unsigned(2))]),
    };
    stands(
        "observed.unknown",
        &Observation::<String> { at, what: Observed::Unknown(Box::new(of_a_newer_writer)) },
    );
    let (source, sync) = (SourceId(id(8)), Some(SyncId(id(9))));
    let (status, message) = ("healthy".to_owned(), String::new());
    let health: Observed =
        Observed::HealthChanged { source, sync, identity: identity(), status, message, optional: false };
    stands("observed.health-changed-in-a-sync", &Observation { at, what: health });
    let (source, kept) = (SourceId(id(8)), Some("it is not empty".to_owned()));
    let (of, uid) = (identity(), "u".to_owned());
    let pruned: Observed =
        Observed::ObjectPruned { sync, source, identity: of, uid, kept, stays_owned: true };
    stands("observed.object-pruned-kept", &Observation { at, what: pruned });
    let (status, message) = ("degraded".to_owned(), "the last run did not succeed".to_owned());
    let health: Observed =
        Observed::HealthChanged { source, sync, identity: identity(), status, message, optional: true };
    stands("observed.health-changed-that-holds-nothing", &Observation { at, what: health });
    rights_stay_as_they_are(at);
    let batch: ObservationBatch = ObservationBatch {
        organization: OrganizationId(id(1)),
        writer: ObservationBatch::agent_writer(AgentId(id(3))),
        epoch: 2,
        first: 41,
        observations: vec![Observation { at, what: Observed::Gap { dropped: 1 } }],
    };
    stands("observations", &batch);
}

fn rights_stay_as_they_are(at: Timestamp) {
    let source = SourceId(id(8));
    let missing = MissingRight {
        user: "system:serviceaccount:shop:deployer".to_owned(),
        verb: "list".to_owned(),
        group: "apps".to_owned(),
        resource: "deployments".to_owned(),
        namespace: "shop".to_owned(),
    };
    let blocked =
        Observed::SourceBlocked { source, reason: "forbidden".to_owned(), missing: vec![missing.clone()] };
    stands("observed.source-blocked-for-want-of-a-right", &Observation { at, what: blocked });
    let broken = vec![BrokenWatch {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "shop".to_owned(),
        reason: "forbidden".to_owned(),
        since: at,
        missing: Some(missing),
    }];
    let broken = Observed::WatchesBroken { source, broken, all: 1 };
    stands("observed.watches-broken-for-want-of-a-right", &Observation { at, what: broken });
}

#[test]
fn refusals_stay_as_they_are() {
    let refused = RefusedCommand {
        actor: Actor::User(UserId(id(6))),
        organization: OrganizationId(id(1)),
        request: "authz.create-project".to_owned(),
        refusal: Refusal::invalid("path", "is taken"),
        correlation_id: CorrelationId(id(2)),
        at: Timestamp(1_700_000_000_456),
    };
    stands("refused-command", &refused);
}

#[test]
fn commits_stay_as_they_are() {
    let (_, event) = crate::samples::all().remove(0);
    let commit = Commit {
        id: CommitId(id(20)),
        organization: OrganizationId(id(1)),
        aggregate: AggregateRef::new(AggregateKind::Source, id(8)),
        version: 3,
        previous: ChainHash::of(b"the commit before"),
        actor: Actor::service("delivery"),
        correlation_id: CorrelationId(id(2)),
        causation_id: Some(EventId(id(21))),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        occurred_at: Timestamp(1_700_000_000_789),
        command: Some(CommandRecord {
            name: "delivery.sync-source".to_owned(),
            data: vec![0x81, 0xa1, 0x61, 0x01],
            ids: vec![id(22)],
        }),
        grounds: None,
        events: vec![NewEvent { id: EventId(id(23)), body: event.encode().expect("encodes") }],
    };
    stands("commit", &commit);
    let grounds = Grounds {
        given: vec![0x81, 0xa1, 0x62, 0x02],
        commits: [(OrganizationId(id(1)), Some((CommitId(id(24)), 17))), (OrganizationId::SYSTEM, None)]
            .into(),
        observed: [("agent-7".to_owned(), (2, 41))].into(),
    };
    stands("commit-with-grounds", &Commit { grounds: Some(grounds), ..commit });
}
