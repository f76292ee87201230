use events::observation::{Observed, OwnedObject, Write};
use events::{ObjectIdentity, Sha256, SourceId, SyncId, Timestamp};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn applied(number: u64) -> Observation {
    Observation {
        at: Timestamp(1_700_000_000_000 + i64::try_from(number).unwrap()),
        what: Observed::ObjectApplied {
            sync: Some(SyncId(Uuid::from_u128(2))),
            object: OwnedObject {
                source: SourceId(Uuid::from_u128(3)),
                identity: ObjectIdentity {
                    group: String::new(),
                    version: "v1".to_owned(),
                    kind: "ConfigMap".to_owned(),
                    namespace: "shop".to_owned(),
                    name: format!("settings-{number}"),
                },
                uid: Uuid::from_bytes(Sha256::of(&number.to_be_bytes()).0[..16].try_into().unwrap())
                    .to_string(),
                digest: Some(Sha256::of(&number.to_le_bytes())),
                adopted: false,
            },
            write: Write::Changed,
            taken_over: Vec::new(),
        },
    }
}

fn batch(first: u64, count: u64) -> EventFrame {
    EventFrame::Batch(Batch { epoch: 4, first, observations: (first..first + count).map(applied).collect() })
}

fn decoded(bytes: &[u8], pieces: usize) -> Result<Vec<EventFrame>, FrameError> {
    let mut decoder = FrameDecoder::default();
    let mut frames = Vec::new();
    for piece in bytes.chunks(pieces.max(1)) {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame()? {
            frames.push(frame);
        }
    }
    assert_eq!(decoder.pending(), 0);
    Ok(frames)
}

/// The bytes of released frames: only ever added to.
const GOLDEN: &[(&str, &str)] = &[
    ("idle", include_str!("../../tests/golden/idle.hex")),
    ("lease", include_str!("../../tests/golden/lease.hex")),
    ("one", include_str!("../../tests/golden/one.hex")),
    ("compressed", include_str!("../../tests/golden/compressed.hex")),
];

fn golden(name: &str) -> EventFrame {
    match name {
        "idle" => EventFrame::Idle,
        "lease" => EventFrame::Lease { held: true },
        "one" => batch(7, 1),
        _ => batch(1, 5),
    }
}

#[test]
fn released_frames_are_read_as_they_were_meant() {
    for (name, hexadecimal) in GOLDEN {
        let bytes = hex::decode(hexadecimal.trim()).unwrap();
        assert_eq!(decoded(&bytes, 7).unwrap(), [golden(name)], "{name}");
        // How a block is compressed may change, what small frames look like may not.
        if *name != "compressed" {
            assert_eq!(hex::encode(encode_frame(&golden(name)).unwrap()), hexadecimal.trim(), "{name}");
        }
    }
}

#[test]
fn released_bodies_keep_their_names() {
    let shown = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let info = AgentInfo {
        agent: AgentId(Uuid::nil()),
        instance: InstanceId(Uuid::nil()),
        version: "1".to_owned(),
        epoch: 1,
        holds_lease: true,
        revision: 2,
    };
    let text = shown(events::encode(&info).unwrap());
    for name in ["agent", "instance", "version", "epoch", "holds_lease", "revision"] {
        assert!(text.contains(name), "{name}");
    }
    let text = shown(events::encode(&Acknowledged { epoch: 1, sequence: 2 }).unwrap());
    assert!(text.contains("epoch") && text.contains("sequence"));
    let text = shown(events::encode(&Farewell { reason: "x".to_owned(), again: Again::AtOnce }).unwrap());
    assert!(text.contains("reason") && text.contains("again") && text.contains("at-once"));
}

#[test]
fn a_hundred_observations_cost_less_than_150_bytes_each() {
    let bytes = encode_frame(&batch(1, 100)).unwrap();
    assert!(bytes.len() <= 100 * 150, "{} bytes for 100 observations", bytes.len());
}

#[test]
fn the_bytes_of_observations_are_given_as_they_came() {
    for count in [1, 15, 16, 300] {
        let frame = batch(9, count);
        let EventFrame::Batch(sent) = &frame else { panic!("a batch") };
        let mut decoder = FrameDecoder::default();
        decoder.push(&encode_frame(&frame).unwrap());
        let received = decoder.next_received().unwrap().unwrap();
        let EventFrame::Batch(read) = received.frame::<&str>().unwrap() else { panic!("a batch") };
        let observations = received.observations(&read).unwrap().unwrap();
        assert_eq!(observations, events::encode(&sent.observations).unwrap());
        assert_eq!(observations, events::encode(&read.observations).unwrap(), "borrowed text reads the same");
        assert_eq!(received.frame().unwrap(), frame);
    }
}

#[test]
fn bytes_behind_the_end_of_a_frame_are_refused() {
    let mut content = events::encode(&batch(1, 2)).unwrap();
    content.extend_from_slice(b"more");
    let mut bytes = u32::try_from(content.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(content);
    assert!(matches!(decoded(&bytes, 100), Err(FrameError::Malformed { .. })));
}

#[test]
fn cursors_survive_their_text() {
    let cursor = Acknowledged { epoch: 3, sequence: 41 };
    assert_eq!(cursor.to_string().parse::<Acknowledged>().unwrap(), cursor);
    for wrong in ["", "3", "3,", ",4", "3;4", "-1,4", "3,4,5"] {
        assert!(wrong.parse::<Acknowledged>().is_err(), "{wrong}");
    }
}

#[test]
fn what_no_frame_may_be_is_refused_at_both_ends() {
    let empty = EventFrame::Batch(Batch { epoch: 1, first: 1, observations: Vec::new() });
    assert!(matches!(encode_frame(&empty), Err(FrameError::BatchSize { observations: 0 })));
    let crowded = batch(1, MAXIMUM_BATCH as u64 + 1);
    assert!(matches!(encode_frame(&crowded), Err(FrameError::BatchSize { .. })));
    let long = Observation {
        at: Timestamp(0),
        what: Observed::SourceBlocked {
            source: SourceId(Uuid::nil()),
            reason: "x".repeat(MAXIMUM_FRAME_BYTES),
            missing: Vec::new(),
        },
    };
    let large = EventFrame::Batch(Batch { epoch: 1, first: 1, observations: vec![long] });
    assert!(matches!(encode_frame(&large), Err(FrameError::TooLarge { .. })));

    let content = events::encode(&empty).unwrap();
    let mut bytes = u32::try_from(content.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(content);
    assert!(matches!(decoded(&bytes, 3), Err(FrameError::BatchSize { .. })));
    let too_long = u32::try_from(MAXIMUM_FRAME_BYTES + 1).unwrap();
    let mut decoder = FrameDecoder::default();
    decoder.push(&too_long.to_be_bytes());
    assert!(matches!(decoder.next_frame(), Err(FrameError::TooLarge { .. })), "before its bytes are there");
}

#[test]
fn a_block_that_says_it_is_huge_is_refused_before_memory_is_taken() {
    let mut bytes = (COMPRESSED | 8).to_be_bytes().to_vec();
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let mut decoder = FrameDecoder::default();
    decoder.push(&bytes);
    assert!(matches!(decoder.next_frame(), Err(FrameError::TooLarge { .. })));
}

proptest! {
    #[test]
    fn frames_survive_any_cut(counts in proptest::collection::vec(1_u64..40, 1..6), piece in 1_usize..5000) {
        let mut first = 1;
        let mut frames = vec![EventFrame::Lease { held: false }];
        for count in counts {
            frames.push(batch(first, count));
            frames.push(EventFrame::Idle);
            first += count;
        }
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| encode_frame(frame).unwrap()).collect();
        prop_assert_eq!(decoded(&bytes, piece).unwrap(), frames);
    }

    #[test]
    fn any_bytes_give_frames_or_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut decoder = FrameDecoder::default();
        decoder.push(&bytes);
        while let Ok(Some(_)) = decoder.next_frame() {}
    }

    #[test]
    fn a_damaged_block_is_an_error_and_never_a_panic(at in 4_usize..600, to in any::<u8>()) {
        let mut bytes = encode_frame(&batch(1, 30)).unwrap().to_vec();
        let at = at.min(bytes.len() - 1);
        bytes[at] = to;
        let mut decoder = FrameDecoder::default();
        decoder.push(&bytes);
        let _ = decoder.next_frame();
    }
}
