use events::grants::UserAccessAs;
use events::pass::Narrowing;
use serde_json::json;

use super::*;
use crate::model::given::{AGENT, Given, OTHER, batch, config, gone, object, pod, seen, usable};
use crate::model::rights::Rights;

fn shop() -> Given {
    let mut given = Given::agents();
    let labels = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    given.says(vec![
        seen(&config("shop/settings", labels("web"))),
        seen(&config("bank/settings", json!({"metadata": {"uid": "uid-bank"}}))),
        seen(&pod("shop/web-1", labels("web"))),
        seen(&pod("shop/web-2", json!({"metadata": {"labels": {"app": "web"}}, "status": {"phase": "Failed", "message": "Evicted from its node"}}))),
        seen(&object("apps/v1", "Deployment", "shop/web", labels("web"))),
        seen(&object("v1", "Node", "n1", json!({}))),
    ]);
    given.apply(
        OTHER,
        batch(OTHER, 1, 1, vec![seen(&config("shop/settings", json!({"metadata": {"uid": "uid-core"}})))]),
    );
    given
}

fn found(given: &Given, filter: &ObjectFilter) -> Vec<String> {
    given.look(|view| match Matcher::read(filter, view) {
        Ok(matcher) => matcher.walk(view, None).map(|record| record.uid.to_string()).collect(),
        Err(refusal) => vec![format!("{}: {}", refusal.field.unwrap_or_default(), refusal.message)],
    })
}

fn filter(fields: &[(&str, &str)]) -> ObjectFilter {
    let mut filter = ObjectFilter::default();
    for (field, value) in fields {
        let value = Some((*value).to_owned());
        match *field {
            "agent" => filter.agent = value,
            "kind" => filter.kind = value,
            "namespace" => filter.namespace = value,
            "name" => filter.name = value,
            "labels" => filter.labels = value,
            "text" => filter.text = value,
            other => panic!("{other}"),
        }
    }
    filter
}

#[test]
fn conditions_all_hold_and_the_order_is_that_of_cluster_kind_namespace_and_name() {
    let given = shop();
    let all = ["uid-bank", "uid-settings", "uid-n1", "uid-web-1", "uid-web-2", "uid-web", "uid-core"];
    assert_eq!(found(&given, &ObjectFilter::default()), all);
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let rows: &[Row<'_>] = &[
        (&[("kind", "cm")], &["uid-bank", "uid-settings", "uid-core"]),
        (&[("kind", "cm"), ("namespace", "shop")], &["uid-settings", "uid-core"]),
        (&[("kind", "cm"), ("agent", "shop/front:core")], &["uid-core"]),
        (&[("agent", "core")], &["uid-core"]),
        (&[("name", "web")], &["uid-web"]),
        (&[("labels", "app=web"), ("kind", "pods")], &["uid-web-1", "uid-web-2"]),
        (&[("labels", "app!=web"), ("namespace", "shop")], &["uid-core"]),
        (&[("text", "EVICTED")], &["uid-web-2"]),
        (&[("text", "deploy")], &["uid-web"]),
        (&[("namespace", "")], &["uid-n1"]),
        (&[("name", "absent")], &[]),
    ];
    for (fields, expected) in rows {
        assert_eq!(found(&given, &filter(fields)), *expected, "{fields:?}");
    }
    let unwell = ObjectFilter { health: vec![HealthState::Degraded], ..ObjectFilter::default() };
    assert_eq!(found(&given, &unwell), ["uid-web-2"]);
    let without =
        ObjectFilter { health: vec![HealthState::None], ..filter(&[("kind", "cm"), ("namespace", "bank")]) };
    assert_eq!(found(&given, &without), ["uid-bank"]);
}

#[test]
fn a_walk_goes_on_behind_any_object_also_behind_one_that_is_gone() {
    let given = shop();
    given.look(|view| {
        for filter in [ObjectFilter::default(), filter(&[("labels", "app=web")])] {
            let matcher = Matcher::read(&filter, view).unwrap();
            let all: Vec<&Record> = matcher.walk(view, None).collect();
            for (number, record) in all.iter().enumerate() {
                let behind = |place| Behind { agent: record.agent, kind: record.kind.clone(), place };
                let rest = matcher.walk(view, Some(behind(Place::of(record)))).count();
                assert_eq!(rest, all.len() - number - 1, "{}", record.name);
                let gone = Place { uid: Text::from("uid-"), ..Place::of(record) };
                assert_eq!(matcher.walk(view, Some(behind(gone))).count(), all.len() - number);
            }
        }
    });
}

#[test]
fn wrong_fields_are_named_with_what_to_do() {
    let given = shop();
    let refused = |fields: &[(&str, &str)]| found(&given, &filter(fields)).remove(0);
    assert!(refused(&[("agent", "nobody")]).starts_with("agent: agent \"nobody\" not found"));
    assert!(refused(&[("kind", "podz")]).contains("did you mean pods"));
    assert!(refused(&[("labels", "a b")]).starts_with("labels: cannot read"));
    assert!(refused(&[("text", &"x".repeat(2_000))]).starts_with("text: longer than"));
}

#[test]
fn an_agent_whose_rights_are_not_known_is_refused_with_the_reason_and_shows_nothing() {
    let given = shop();
    let rights = Rights::of([
        usable(AGENT, UserAccessAs::User, Narrowing::default()),
        usable(OTHER, UserAccessAs::Agent, Narrowing::default()),
    ]);
    given.look_as(&rights, |view| {
        let refusal = Matcher::read(&filter(&[("agent", "edge")]), view).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Denied);
        assert!(refusal.message.contains("rights unknown"), "{}", refusal.message);
        let matcher = Matcher::read(&ObjectFilter::default(), view).unwrap();
        assert_eq!(matcher.walk(view, None).count(), 1);
        let kind = Matcher::read(&filter(&[("kind", "nodes")]), view).unwrap();
        assert_eq!(kind.walk(view, None).count(), 0);
    });
}

#[test]
fn a_name_that_two_agents_have_is_refused_with_both() {
    let mut given = shop();
    let registered = events::directory::AgentRegistered {
        agent: OTHER,
        name: "edge".to_owned(),
        project: crate::model::given::PROJECT,
        group: Some(crate::model::given::GROUP),
        replaces: Vec::new(),
    };
    let event = events::Event::from(events::directory::DirectoryEvent::AgentRegistered(registered));
    given.directory.apply((crate::model::given::ORGANIZATION, crate::model::given::DECIDED), [event]);
    let refused = found(&given, &filter(&[("agent", "edge")])).remove(0);
    assert!(refused.contains("shop/front:edge") && refused.contains("shop:edge"), "{refused}");
}

#[test]
fn a_text_is_found_wherever_it_stands_while_objects_come_change_and_go() {
    const OBJECTS: usize = 1_500;
    let mut given = shop();
    let body = |number: usize, round: usize| {
        let label = format!("round-{round}-{number}-{}", "x".repeat(40));
        let metadata =
            json!({"uid": format!("uid-{number}"), "labels": {"example.com/label-of-this": label}});
        config(&format!("space-{}/Config-{number}", number % 7), json!({"metadata": metadata}))
    };
    for round in 0..4 {
        given.says((0..OBJECTS).map(|number| seen(&body(number, round))).collect());
        let leaving = (0..OBJECTS).filter(|number| number % 3 == round % 3);
        given.says(leaving.map(|number| gone(&body(number, round))).collect());
        for text in
            ["config-99", "space-3", "round-1-77", "round-3", "label-of", "configmap", "evicted", "g-5\n"]
        {
            let expected: Vec<String> = given.look(|view| {
                let all = Matcher::read(&ObjectFilter::default(), view).unwrap();
                let with_text = all.walk(view, None).filter(|record| contains(view, record, text));
                with_text.map(|record| record.uid.to_string()).collect()
            });
            assert_eq!(found(&given, &filter(&[("text", text)])), expected, "{text} in round {round}");
        }
    }
}
