use events::environment::{Grouping, SyncRun};
use events::observation::{ObjectBody, Observed as Word, OwnedObject, SeenObject, Write};
use events::requests::environments::PlacedDeployment;
use events::requests::index::ObjectFilter;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::model::given::{
    AGENT, BANK, Given, PROJECT, SOURCE, batch, config, digest, environment, identity, marked, seen, uid,
};
use crate::model::{Matcher, Rights};

fn writer(manager: &str, subresource: &str, at: i64) -> FieldWriter {
    FieldWriter {
        manager: manager.to_owned(),
        operation: "Update".to_owned(),
        subresource: subresource.to_owned(),
        at: Some(Timestamp(at)),
    }
}

fn sync(number: u128) -> SyncId {
    SyncId(Uuid::from_u128(number))
}

fn id(number: u128) -> DeploymentId {
    DeploymentId(Uuid::from_u128(100 + number))
}

fn recent(number: u128, sync: Option<SyncId>, (started, ended): (i64, Option<i64>)) -> PlacedDeployment {
    PlacedDeployment {
        deployment: id(number),
        commit: format!("commit-{number}"),
        sync: sync.map(|sync| SyncRun { source: SOURCE, sync, run: 1 }),
        started_at: Timestamp(started),
        ended_at: ended.map(Timestamp),
    }
}

fn applied(body: &Value, sync: SyncId, write: Write) -> Word {
    let object = OwnedObject {
        source: SOURCE,
        identity: identity(body),
        uid: uid(body),
        digest: None,
        adopted: false,
    };
    Word::ObjectApplied { sync: Some(sync), object, write, taken_over: Vec::new() }
}

/// As [`seen`], by these writers.
fn seen_by(body: &Value, writers: Vec<FieldWriter>) -> Word {
    Word::ObjectSeen {
        object: Box::new(SeenObject {
            identity: identity(body),
            uid: uid(body),
            resource_version: "1".to_owned(),
            digest: digest(body),
            body: ObjectBody::Json(body.to_string()),
            writers,
        }),
    }
}

/// The deployment that an answer names as the last to set an object.
fn set_by(given: &Given, name: &str) -> Option<ObjectDeployment> {
    given.look(|view| {
        let filter = ObjectFilter { name: Some(name.to_owned()), ..ObjectFilter::default() };
        let matcher = Matcher::read(&filter, view).unwrap();
        let record = matcher.walk(view, None).next().unwrap();
        view.line(record).deployment
    })
}

fn known(number: u128, inferred: bool) -> Option<ObjectDeployment> {
    Some(ObjectDeployment { id: id(number), commit: format!("commit-{number}"), inferred })
}

fn names(given: &Given, number: u128) -> Result<Vec<String>, String> {
    let filter = ObjectFilter { deployment: Some(id(number)), ..ObjectFilter::default() };
    given.look(|view| {
        let matcher = Matcher::read(&filter, view).map_err(|refusal| refusal.message)?;
        Ok(matcher.walk(view, None).map(|record| record.name.to_string()).collect())
    })
}

#[test]
fn the_last_hand_is_no_components_and_no_status() {
    let writers = [
        writer("kube-controller-manager", "", 9_000),
        writer("kubelet", "", 8_000),
        writer("operator", "status", 7_000),
        writer("helm", "", 6_000),
        writer("kubectl-edit", "", 5_000),
    ];
    assert_eq!(hand_of(&writers), Some(Timestamp(6_000)));
    assert_eq!(hand_of(&writers[..3]), None);
}

#[test]
fn a_syncs_objects_are_those_that_it_wrote_last_whichever_stream_comes_first() {
    let mut given = Given::agents();
    let mut group = environment(PROJECT, "production", "shop", Grouping::Inventory);
    group.places[0].recent = vec![
        recent(2, Some(sync(2)), (20_000, Some(30_000))),
        recent(1, Some(sync(1)), (1_000, Some(2_000))),
    ];
    given.environments(vec![group]);
    let [a, b] = ["shop/a", "shop/b"].map(|place| marked(config(place, json!({}))));
    // The applier's word comes before the object itself is seen.
    let first = vec![applied(&a, sync(1), Write::Created), applied(&b, sync(1), Write::Created)];
    assert!(given.fold.applied(AGENT, &batch(AGENT, 1, 1, first.clone())).is_empty());
    given.says(vec![seen(&a), seen(&b)]);
    assert_eq!((set_by(&given, "a"), set_by(&given, "b")), (known(1, false), known(1, false)));
    let second = vec![applied(&a, sync(2), Write::Changed), applied(&b, sync(2), Write::Unchanged)];
    let changed = given.fold.applied(AGENT, &batch(AGENT, 1, 3, second));
    assert_eq!(changed, [Text::from("uid-a")], "what was as it should be stays the first one's");
    assert_eq!((set_by(&given, "a"), set_by(&given, "b")), (known(2, false), known(1, false)));
    assert!(given.fold.applied(AGENT, &batch(AGENT, 1, 1, first)).is_empty(), "a double comes late");
    assert_eq!(names(&given, 2), Ok(vec!["a".to_owned()]));
    assert_eq!(names(&given, 1), Ok(vec!["b".to_owned()]));
    let unknown = names(&given, 3).unwrap_err();
    assert!(unknown.contains("not found"), "{unknown}");

    // A user of the cluster who may not see the environment does not learn of its deployments.
    let all = crate::model::given::usable(AGENT, events::grants::UserAccessAs::Agent, Default::default());
    given.look_as(&Rights::of([all]).seeing([BANK]), |view| {
        let filter = ObjectFilter { deployment: Some(id(2)), ..ObjectFilter::default() };
        let refused = Matcher::read(&filter, view).unwrap_err();
        assert_eq!(refused.message.replace(&id(2).to_string(), &id(3).to_string()), unknown);
        let everything = ObjectFilter::default();
        let matcher = Matcher::read(&everything, view).unwrap();
        assert!(matcher.walk(view, None).all(|record| view.line(record).deployment.is_none()));
    });
}

#[test]
fn a_jobs_objects_are_inferred_by_who_wrote_them_while_it_went_on() {
    let mut given = Given::agents();
    let mut group = environment(PROJECT, "production", "shop", Grouping::Namespace);
    group.places[0].recent = vec![recent(2, None, (100_000, None)), recent(1, None, (10_000, Some(20_000)))];
    given.environments(vec![group]);
    let by = |place: &str, at: i64| {
        let body = config(place, json!({}));
        seen_by(&body, vec![writer("kube-controller-manager", "", 999_000), writer("helm", "", at)])
    };
    given.says(vec![by("shop/during", 15_000), by("shop/later", 50_000), by("shop/running", 150_000)]);
    given.says(vec![by("other/elsewhere", 15_000)]);
    given.says(vec![seen_by(
        &marked(config("shop/of-a-source", json!({}))),
        vec![writer("helm", "", 15_000)],
    )]);
    assert_eq!(set_by(&given, "during"), known(1, true));
    assert_eq!(set_by(&given, "running"), known(2, true), "it has not ended");
    for name in ["later", "elsewhere", "of-a-source"] {
        assert_eq!(set_by(&given, name), None, "{name}");
    }
    assert_eq!(names(&given, 1), Ok(vec!["during".to_owned()]));
}
