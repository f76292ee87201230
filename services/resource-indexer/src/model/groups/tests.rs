use events::environment::Grouping;
use events::requests::index::ObjectFilter;
use events::{EnvironmentId, ProjectId};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::model::given::{
    AGENT, BANK, Given, ORGANIZATION, PROJECT, below, config, environment, gone, marked, object, pod, seen,
};
use crate::model::{Index, Matcher, Rights};

fn labelled(values: (&str, &str)) -> Value {
    let (project, environment) = values;
    let labels =
        json!({"app.gitlab.com/project_id": project, "app.gitlab.com/environment_slug": environment});
    json!({"metadata": {"labels": labels}})
}

fn deployment(rest: Value) -> Value {
    object("apps/v1", "Deployment", "shop/web", rest)
}

fn replica_set() -> Value {
    below(object("apps/v1", "ReplicaSet", "shop/web-h", json!({})), "apps/v1", "Deployment", "web")
}

fn web_pod() -> Value {
    below(pod("shop/web-h-1", json!({})), "apps/v1", "ReplicaSet", "web-h")
}

#[test]
fn what_a_source_put_there_belongs_to_its_environment_with_what_that_has_caused() {
    let mut given = Given::agents();
    given.environments(vec![environment(PROJECT, "production", "shop", Grouping::Inventory)]);
    // Children come first, and a copied mark counts for nothing.
    let mut copy = config("shop/copy", json!({}));
    copy["metadata"]["labels"] = marked(deployment(json!({})))["metadata"]["labels"].clone();
    given.says(vec![seen(&web_pod()), seen(&replica_set()), seen(&copy)]);
    assert_eq!(given.members("production"), Vec::<String>::new());
    given.says(vec![seen(&marked(deployment(json!({}))))]);
    assert_eq!(given.members("production"), ["web*", "web-h", "web-h-1"]);
    given.says(vec![seen(&deployment(json!({})))]);
    assert_eq!(given.members("production"), Vec::<String>::new(), "another took it over");
}

#[test]
fn labels_name_the_project_by_id_path_or_number_and_a_change_moves_objects_at_once() {
    let mut given = Given::agents();
    let rule = Grouping::reserved_labels;
    given.environments(vec![
        environment(PROJECT, "production", "shop", rule()),
        environment(PROJECT, "staging", "shop", rule()),
    ]);
    given.says(vec![seen(&replica_set()), seen(&web_pod())]);
    for project in ["17", "shop/front", &PROJECT.to_string()] {
        given.says(vec![seen(&deployment(labelled((project, "production"))))]);
        assert_eq!(given.members("production"), ["web*", "web-h", "web-h-1"], "{project}");
        given.says(vec![seen(&deployment(labelled((project, "staging"))))]);
        assert_eq!(given.members("production"), Vec::<String>::new());
        assert_eq!(given.members("staging").len(), 3);
    }
    given.says(vec![seen(&deployment(labelled(("18", "staging"))))]);
    assert_eq!(given.members("staging"), Vec::<String>::new(), "another project");
    given.says(vec![seen(&object("v1", "ConfigMap", "bank/c", labelled(("17", "staging"))))]);
    assert_eq!(given.members("staging"), Vec::<String>::new(), "another namespace");
}

#[test]
fn another_rule_finds_other_objects_and_no_rule_none() {
    let mut given = Given::agents();
    given.says(vec![seen(&marked(config("other/a", json!({})))), seen(&config("shop/b", json!({})))]);
    given.environments(vec![environment(PROJECT, "production", "shop", Grouping::Inventory)]);
    assert_eq!(given.members("production"), ["a*"]);
    given.environments(vec![environment(PROJECT, "production", "shop", Grouping::Namespace)]);
    assert_eq!(given.members("production"), ["b*"]);
    given.environments(vec![environment(PROJECT, "production", "other", Grouping::Namespace)]);
    assert_eq!(given.members("production"), ["a*"]);
    given.environments(Vec::new());
    assert_eq!(given.members("production"), Vec::<String>::new());
}

#[test]
fn what_is_left_of_a_deleted_owner_stands_at_the_top() {
    let mut given = Given::agents();
    given.environments(vec![environment(PROJECT, "production", "shop", Grouping::Namespace)]);
    given.says(vec![seen(&web_pod()), seen(&replica_set())]);
    assert_eq!(given.members("production"), ["web-h*", "web-h-1"]);
    given.says(vec![gone(&replica_set())]);
    assert_eq!(given.members("production"), ["web-h-1*"]);
    let filter = ObjectFilter { env: Some("production".to_owned()), ..ObjectFilter::default() };
    let all = given.look(|view| Matcher::read(&filter, view).unwrap().walk_all(view).count());
    assert_eq!(all, 2, "its history is kept with the environment");
}

fn found(given: &Given, filter: &ObjectFilter) -> Result<Vec<String>, String> {
    given.look(|view| {
        let matcher = Matcher::read(filter, view).map_err(|refusal| refusal.message)?;
        Ok(matcher.walk(view, None).map(|record| record.name.to_string()).collect())
    })
}

fn env(name: &str) -> ObjectFilter {
    ObjectFilter { env: Some(name.to_owned()), ..ObjectFilter::default() }
}

#[test]
fn environments_are_named_by_name_pattern_path_or_id_and_nobody_learns_of_others() {
    let mut given = Given::agents();
    let namespace = |project, name, namespace| environment(project, name, namespace, Grouping::Namespace);
    given.environments(vec![
        namespace(PROJECT, "production", "shop"),
        namespace(PROJECT, "review/login", "login"),
        namespace(PROJECT, "review/cart", "cart"),
        namespace(BANK, "production", "bank"),
    ]);
    let places = ["shop", "login", "cart", "bank", "nowhere"];
    let bodies: Vec<Value> = places
        .iter()
        .map(|place| {
            config(&format!("{place}/in-{place}"), json!({"metadata": {"uid": format!("uid-{place}")}}))
        })
        .collect();
    given.says(bodies.iter().map(seen).collect());
    let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(found(&given, &env("review/*")), names(&["in-cart", "in-login"]));
    assert_eq!(found(&given, &env("shop/bank:production")), names(&["in-bank"]));
    let id = EnvironmentId::derive(PROJECT, "production").to_string();
    assert_eq!(found(&given, &env(&id)), names(&["in-shop"]));
    let of_project = ObjectFilter { project: Some("shop/bank".to_owned()), ..env("production") };
    assert_eq!(found(&given, &of_project), names(&["in-bank"]));
    let tier = ObjectFilter { tier: Some(events::environment::Tier::Production), ..ObjectFilter::default() };
    assert_eq!(found(&given, &tier), names(&["in-bank", "in-shop"]));
    let ambiguous = found(&given, &env("production")).unwrap_err();
    assert!(ambiguous.contains("shop/bank:production, shop/front:production"), "{ambiguous}");
    let missing = found(&given, &env("staging")).unwrap_err();

    // Who may use the cluster and not see the project sees its objects without its environments.
    let all = crate::model::given::usable(AGENT, events::grants::UserAccessAs::Agent, Default::default());
    given.look_as(&Rights::of([all]).seeing([BANK]), |view| {
        let read = |filter: &ObjectFilter| {
            Matcher::read(filter, view).map(|matcher| matcher.walk(view, None).count())
        };
        assert_eq!(read(&env("production")), Ok(1), "the only one that they know of");
        let hidden = read(&env("review/login")).unwrap_err();
        assert_eq!(hidden.message.replace("review/login", "staging"), missing, "as what is not there");
        assert_eq!(read(&env(&id)).unwrap_err().kind, hidden.kind);
        assert_eq!(read(&tier), Ok(1));
        let everything = Matcher::read(&ObjectFilter::default(), view).unwrap();
        let told: Vec<_> =
            everything.walk(view, None).filter_map(|record| view.line(record).environment).collect();
        assert_eq!(told.len(), 1, "{told:?}");
    });
}

#[test]
fn many_objects_are_listed_in_the_same_order_as_few() {
    let mut given = Given::agents();
    let bodies: Vec<Value> = (0..3_000)
        .map(|number| {
            let name = format!("n{}/c{number}", number % 7);
            config(&name, if number % 2 == 0 { labelled(("17", "production")) } else { json!({}) })
        })
        .collect();
    given.says(bodies.iter().map(seen).collect());
    let mut group = environment(PROJECT, "production", "n0", Grouping::reserved_labels());
    let place = group.places[0].clone();
    group.places.extend((1..7).map(|number| {
        let mut place = place.clone();
        place.association.namespace = format!("n{number}");
        place
    }));
    given.environments(vec![group]);
    let all = found(&given, &ObjectFilter::default()).unwrap();
    let even = |name: &&String| name[1..].parse::<u32>().unwrap() % 2 == 0;
    let expected: Vec<String> = all.iter().filter(even).cloned().collect();
    assert_eq!(expected.len(), 1_500, "more than are sorted");
    assert_eq!(found(&given, &env("production")).unwrap(), expected);
    let within = ObjectFilter { namespace: Some("n3".to_owned()), ..env("production") };
    assert!(found(&given, &within).unwrap().iter().all(|name| name[1..].parse::<u32>().unwrap() % 7 == 3));
    // Page by page, each once.
    let mut paged = Vec::new();
    let mut request =
        events::requests::index::FindObjects { filter: env("production"), ..Default::default() };
    loop {
        let page = given.look(|view| crate::model::query::find(&request, view)).unwrap();
        paged.extend(page.items.into_iter().map(|item| item.identity.name));
        let Some(next) = page.next else { break };
        request = events::requests::page::Paged::at(request, next);
    }
    assert_eq!(paged, expected);
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    /// An object is stated: below another one, or none, and with or without mark and labels.
    State {
        name: u8,
        owner: Option<u8>,
        label: u8,
        is_marked: bool,
    },
    Delete(u8),
    Forget(u8),
    Rule(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..6_u8;
    prop_oneof![
        6 => (name(), prop::option::of(name()), 0..3_u8, any::<bool>())
            .prop_map(|(name, owner, label, is_marked)| Step::State { name, owner, label, is_marked }),
        2 => name().prop_map(Step::Delete),
        1 => name().prop_map(Step::Forget),
        1 => (0..4_u8).prop_map(Step::Rule),
    ]
}

fn body((name, owner, label, is_marked): (u8, Option<u8>, u8, bool)) -> Value {
    let rest = match label {
        0 => json!({}),
        1 => labelled(("17", "production")),
        _ => labelled(("17", "staging")),
    };
    let mut body = config(&format!("shop/c{name}"), rest);
    if let Some(owner) = owner {
        body = below(body, "v1", "ConfigMap", &format!("c{owner}"));
    }
    if is_marked { marked(body) } else { body }
}

fn rules(number: u8) -> Vec<events::requests::environments::ResourceGroup> {
    let of = |grouping: Grouping| environment(PROJECT, "production", "shop", grouping);
    let staging = environment(PROJECT, "staging", "shop", Grouping::reserved_labels());
    match number {
        0 => Vec::new(),
        1 => vec![of(Grouping::Inventory), staging],
        2 => vec![of(Grouping::Namespace), staging],
        _ => vec![of(Grouping::reserved_labels()), staging],
    }
}

/// Everything that an index knows of environments.
fn known(index: &Index) -> Vec<String> {
    let environments = ["production", "staging"].map(|name| EnvironmentId::derive(PROJECT, name));
    let mut told = Vec::new();
    for environment in environments {
        for (_, cluster) in index.clusters_of(environment) {
            let name = |slot| index.get(slot).map(|record| record.name.to_string());
            let mut members: Vec<_> = cluster.members().map(name).collect();
            members.sort();
            let top: Vec<_> = cluster
                .top()
                .iter()
                .map(|(state, slots)| {
                    let mut names: Vec<_> = slots.iter().map(|slot| name(*slot)).collect();
                    names.sort();
                    (state, names)
                })
                .collect();
            told.push(format!("{members:?} {} {top:?}", cluster.there()));
        }
    }
    told
}

proptest! {
    #[test]
    fn whatever_happens_the_groups_are_those_of_an_index_that_is_made_anew(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let mut given = Given::agents();
        let mut bodies = std::collections::BTreeMap::new();
        for step in steps {
            match step {
                Step::State { name, owner, label, is_marked } => {
                    let body = body((name, owner, label, is_marked));
                    given.says(vec![seen(&body)]);
                    bodies.insert(name, body);
                }
                Step::Delete(name) => {
                    if let Some(body) = bodies.get(&name) {
                        given.says(vec![gone(body)]);
                    }
                }
                Step::Forget(name) => {
                    let index = &mut given.fold.index;
                    if let Some(slot) = index.by_uid(AGENT, &format!("uid-c{name}")) {
                        index.remove(slot);
                    }
                }
                Step::Rule(number) => given.environments(rules(number)),
            }
            let index = &given.fold.index;
            let mut anew = Index::default();
            anew.set_groups(std::sync::Arc::clone(index.groups()));
            for slot in index.slots().collect::<Vec<_>>() {
                anew.put(index.get(slot).unwrap().clone());
            }
            prop_assert_eq!(known(index), known(&anew));
        }
    }
}

#[test]
fn another_organization_keeps_its_environments() {
    let mut given = Given::agents();
    given.environments(vec![environment(PROJECT, "production", "shop", Grouping::Namespace)]);
    let groups = given.fold.index.groups();
    let other = events::OrganizationId(Uuid::from_u128(99));
    assert_ne!(other, ORGANIZATION);
    let (groups, changed) = groups.with(other, Vec::new());
    assert!(changed.is_empty() && groups.get(EnvironmentId::derive(PROJECT, "production")).is_some());
    let unknown = EnvironmentId::derive(ProjectId(Uuid::from_u128(98)), "production");
    assert!(groups.get(unknown).is_none());
}
