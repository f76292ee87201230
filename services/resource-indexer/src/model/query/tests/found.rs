use super::*;

#[test]
fn several_kinds_and_short_names_of_custom_resources_are_found() {
    let mut given = Given::agents();
    let names = json!({"kind": "Widget", "shortNames": ["wd"]});
    let spec = json!({"spec": {"group": "example.com", "names": names}});
    given.says(vec![
        seen(&config("shop/a", json!({}))),
        seen(&pod("shop/p", json!({}))),
        seen(&object("example.com/v1", "Widget", "shop/w", json!({}))),
        seen(&object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", spec)),
    ]);
    let found = |kinds: &str| {
        let filter = ObjectFilter { kind: Some(kinds.to_owned()), ..ObjectFilter::default() };
        let request = FindObjects { filter, ..FindObjects::default() };
        let page = given.look(|view| find(&request, view));
        page.map(|page| page.items.into_iter().map(|item| item.identity.name).collect::<Vec<_>>())
    };
    assert_eq!(found("pods,cm").unwrap(), ["a", "p"]);
    assert_eq!(found("wd, po").unwrap(), ["p", "w"]);
    assert!(found("pods,nonsense").is_err() && found("pods,").is_err());
}

#[test]
fn the_history_of_what_was_unwell_has_what_is_gone() {
    let (mut given, bodies) = shop();
    given.says(vec![gone(&bodies[0])]);
    let degraded = ObjectFilter { health: vec![HealthState::Degraded], ..ObjectFilter::default() };
    let names: Vec<String> = given.look(|view| {
        let matcher = Matcher::read(&degraded, view).unwrap();
        matcher.walk_all(view).map(|record| record.name.to_string()).collect()
    });
    assert!(names.contains(&"web-h-1".to_owned()), "{names:?}");
}

#[test]
fn a_workload_whose_pods_are_refused_says_so_while_the_event_is_there() {
    let stateful = object(
        "apps/v1",
        "StatefulSet",
        "shop/db",
        json!({"metadata": {"generation": 1}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "db"}}},
            "status": {"observedGeneration": 1, "replicas": 0}}),
    );
    let event = object(
        "v1",
        "Event",
        "shop/db.1",
        json!({"reason": "FailedCreate", "message": "exceeded quota: small", "lastTimestamp": "2026-01-31T12:00:00Z",
            "involvedObject": {"uid": "uid-db"}}),
    );
    let bodies = [stateful.clone(), event.clone()];
    let mut given = Given::agents();
    given.says(vec![seen(&stateful), seen(&event)]);
    judge(&mut given, &bodies[1..]);
    let verdict = |given: &Given, rights: Option<&Rights>| {
        let line = |view: &View<'_>| view.line(one(&named("sts", "db"), view).unwrap()).health;
        rights.map_or_else(|| given.look(line), |rights| given.look_as(rights, line))
    };
    judge(&mut given, &bodies);
    let told = verdict(&given, None);
    assert_eq!(
        (told.state, told.message.as_str()),
        (HealthState::Degraded, "FailedCreate: exceeded quota: small")
    );
    let resources = vec!["statefulsets.apps".to_owned(), "pods".to_owned()];
    let rights =
        Rights::of([usable(AGENT, UserAccessAs::Agent, Narrowing { resources, ..Narrowing::default() })]);
    assert_eq!(verdict(&given, Some(&rights)).state, HealthState::Progressing, "who may not see Events");
    given.says(vec![gone(&event)]);
    judge(&mut given, &bodies);
    assert_eq!(verdict(&given, None).state, HealthState::Progressing);
}

#[test]
fn a_claim_that_waits_for_its_first_consumer_is_optional_where_its_class_is_known() {
    let class = object(
        "storage.k8s.io/v1",
        "StorageClass",
        "local",
        json!({"volumeBindingMode": "WaitForFirstConsumer"}),
    );
    let claim = object(
        "v1",
        "PersistentVolumeClaim",
        "shop/data",
        json!({"spec": {"storageClassName": "local"}, "status": {"phase": "Pending"}}),
    );
    let mut given = Given::agents();
    given.says(vec![seen(&class), seen(&claim)]);
    let health = given.look(|view| view.line(one(&named("pvc", "data"), view).unwrap()).health);
    assert!(health.optional && health.message.contains("first pod"), "{health:?}");
    let mut late = Given::agents();
    late.says(vec![seen(&claim), seen(&class)]);
    let index = &late.fold.index;
    let slots = ["uid-local", "uid-data"].map(|uid| index.by_uid(AGENT, uid).unwrap());
    let beside = crate::model::claims_beside(index, &slots[..1]);
    assert_eq!(beside.into_iter().collect::<Vec<_>>(), slots[1..], "it is judged again");
}

#[test]
fn a_page_over_many_objects_is_filled_in_steps() {
    let mut given = Given::agents();
    for chunk in 0..45 {
        let objects = (0..500).map(|number| config(&format!("shop/c{:05}", chunk * 500 + number), json!({})));
        given.says(objects.map(|object| seen(&object)).collect());
    }
    let filter = ObjectFilter { name: Some("c22499".to_owned()), ..ObjectFilter::default() };
    let request = FindObjects { filter, ..FindObjects::default() };
    let (steps, page) = given.look(|view| {
        let mut finding = Finding::begin(&request, view).unwrap();
        let mut steps = 1;
        while finding.go_on(view).unwrap() {
            steps += 1;
        }
        (steps, finding.finish().unwrap())
    });
    assert_eq!((steps, page.items.len(), page.next), (2, 1, None));
}
