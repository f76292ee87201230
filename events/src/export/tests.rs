use super::*;

fn event(log: u128, run: u128, sequence: u64) -> CloudEvent {
    let json = serde_json::json!({
        "specversion": "1.0", "id": format!("e{sequence}"), "source": "/organizations/1",
        "type": "kasbah.sync.finished", "subject": "source/1", "time": "2026-01-01T00:00:00Z",
        "datacontenttype": "application/json", "recordedat": "2026-01-01T00:00:00Z",
        "exportlog": Uuid::from_u128(log), "exportsequence": sequence, "exportrun": Uuid::from_u128(run),
    });
    CloudEvent::from_json(json.to_string().as_bytes()).unwrap()
}

fn began(log: u128, run: u128, sequence: u64) -> CloudEvent {
    CloudEvent { event_type: BEGAN.to_owned(), ..event(log, run, sequence) }
}

fn position(log: u128, sequence: u64) -> ExportPosition {
    ExportPosition { log: Uuid::from_u128(log), sequence, at: Timestamp(5) }
}

fn given(resume: &mut Resume, records: &[CloudEvent]) -> Vec<(Resumed, u64)> {
    let took = records.iter().map(|event| (resume.take(event), event.exportsequence.unwrap()));
    took.filter(|(resumed, _)| *resumed != Resumed::Skip).collect()
}

#[test]
fn a_position_is_a_text() {
    let position = position(7, 42);
    assert_eq!(position.to_string().parse(), Ok(position));
    for wrong in ["", "start", "1.2", "x.1.2", "00000000000000000000000000000007.1.2.3"] {
        assert_eq!(wrong.parse::<ExportPosition>(), Err(ParseExportPositionError), "{wrong}");
    }
}

#[test]
fn patterns_name_types_that_are_exported() {
    let all: TypePattern = "kasbah.sync.*".parse().unwrap();
    assert!(all.has("kasbah.sync.finished") && !all.has("kasbah.source.pinned"));
    assert!("*".parse::<TypePattern>().unwrap().has("kasbah.observed.gap"));
    for wrong in ["", "kasbah.sync*", "kasbah.*.finished", "KASBAH.*", "a b"] {
        assert!(wrong.parse::<TypePattern>().is_err(), "{wrong}");
    }
    for useless in ["kasbah.nothing.*", "kasbah.token.used"] {
        assert!(!useless.parse::<TypePattern>().unwrap().is_of_use(), "{useless}");
    }
}

#[test]
fn observations_that_are_exported_exist() {
    for (name, _) in OBSERVED {
        let kind = name.strip_prefix("kasbah.observed.").unwrap();
        assert!(crate::observation::Observed::KINDS.iter().any(|(known, _)| *known == kind), "{kind}");
    }
    for name in INTERNAL {
        assert!(Event::types().iter().any(|(known, _)| *known == name), "{name}");
        assert!(!is_exported(name));
    }
}

#[test]
fn of_two_who_export_only_the_later_counts() {
    let mut lane = ExportLane::default();
    let records = [
        began(1, 1, 0),
        event(1, 1, 1),
        began(1, 2, 1),
        event(1, 1, 2),
        event(1, 2, 2),
        event(1, 2, 2),
        event(1, 2, 3),
    ];
    let counted: Vec<_> = records.iter().map(|event| lane.take(event)).collect();
    use Counted::{Began, Event, Void};
    assert_eq!(counted, [Began, Event, Began, Void, Event, Void, Event]);
    assert_eq!(lane.sequence, 3);
}

#[test]
fn a_reader_goes_on_exactly_behind_what_it_has() {
    let records = [began(1, 1, 0), event(1, 1, 1), event(1, 1, 2), event(1, 1, 3)];
    let mut resume = Resume::new(Some(position(1, 2)), Uuid::from_u128(1));
    assert_eq!(given(&mut resume, &records), [(Resumed::Give, 3)]);
    let mut resume = Resume::new(None, Uuid::from_u128(1));
    assert_eq!(given(&mut resume, &records).len(), 3);
}

#[test]
fn a_reader_is_told_what_has_left() {
    let mut resume = Resume::new(Some(position(1, 2)), Uuid::from_u128(1));
    let left = [event(1, 1, 7), event(1, 1, 8)];
    let expected = [(Resumed::GiveBehindGap(Some((3, 6))), 7), (Resumed::Give, 8)];
    assert_eq!(given(&mut resume, &left), expected);
    let gap = gap_before(&left[0], Some((3, 6)));
    assert_eq!((gap.data["events"].as_u64(), gap.exportsequence), (Some(4), Some(6)));
    assert!(
        EventFilter { types: vec!["kasbah.agent.*".parse().unwrap()], ..EventFilter::default() }.wants(&gap)
    );
}

#[test]
fn a_position_means_the_same_in_a_copy() {
    let records =
        [began(1, 1, 0), event(1, 1, 1), event(1, 1, 2), began(2, 2, 2), event(2, 2, 3), event(2, 2, 4)];
    let of = |from| given(&mut Resume::new(Some(from), Uuid::from_u128(2)), &records);
    assert_eq!(of(position(1, 1)), [(Resumed::Give, 2), (Resumed::Give, 3), (Resumed::Give, 4)]);
    assert_eq!(of(position(2, 3)), [(Resumed::Give, 4)]);
    // The original went on by itself: what it numbered 3 and 4 is something else here.
    assert_eq!(of(position(1, 4)), [(Resumed::Give, 3), (Resumed::Give, 4)]);
    // Nothing of the original is left.
    let left = given(&mut Resume::new(Some(position(1, 9)), Uuid::from_u128(2)), &records[4..]);
    assert_eq!(left, [(Resumed::GiveBehindGap(None), 3), (Resumed::Give, 4)]);
}
