use events::EnvironmentId;
use events::environment::{Grouping, Tier};
use events::requests::environments::EnvironmentState;
use events::requests::index::{
    EnvironmentHealth, HealthCount, ListEnvironmentHealth, ShowEnvironmentTree, ShowTiers,
};

use super::*;
use crate::model::given::{BANK, PROJECT, environment};

fn production() -> Given {
    let (mut given, _) = shop();
    given.says(vec![
        seen(&config("shop/settings", json!({}))),
        seen(&object("v1", "Event", "shop/told", json!({}))),
        seen(&config("bank/other", json!({}))),
    ]);
    given.environments(vec![environment(PROJECT, "production", "shop", Grouping::Namespace)]);
    given
}

fn health(given: &Given) -> EnvironmentHealth {
    health_as(given, None).unwrap()
}

/// How production is doing as somebody sees it who may list these resources of it; everything if not given.
fn health_as(given: &Given, resources: Option<&[&str]>) -> Option<EnvironmentHealth> {
    let request =
        ListEnvironmentHealth { env: Some("production".to_owned()), ..ListEnvironmentHealth::default() };
    let look = |view: &View<'_>| list_health(&request, view).unwrap().items.into_iter().next();
    let Some(resources) = resources else { return given.look(look) };
    let narrowing = Narrowing {
        resources: resources.iter().map(|resource| (*resource).to_owned()).collect(),
        ..Narrowing::default()
    };
    let rights = Rights::of([usable(AGENT, UserAccessAs::Agent, narrowing)]).seeing([PROJECT]);
    given.look_as(&rights, look)
}

fn count(health: &EnvironmentHealth, state: HealthState) -> u64 {
    health.counts.iter().find(|count| count.state == state).map_or(0, |count| count.count)
}

#[test]
fn an_environment_is_as_the_worst_of_what_nothing_in_it_has_caused() {
    let given = production();
    let found = health(&given);
    assert_eq!((found.objects, found.health), (7, HealthState::Degraded));
    // Deployment, Service, Ingress, ConfigMap and Event; the ReplicaSet and its pod count with their Deployment.
    assert_eq!(found.counts.iter().map(|count| count.count).sum::<u64>(), 5);
    assert_eq!(count(&found, HealthState::Degraded), 1);
    let worst = found.worst.clone().unwrap();
    assert_eq!(worst.identity.name, "web");
    assert!(worst.health.message.contains("ImagePullBackOff"), "{worst:?}");
    assert_eq!(worst.environment.as_ref().unwrap().name, "production");
    assert!(found.stale.unwrap().contains("whether its agent is connected"), "nobody told of a tunnel");
}

#[test]
fn what_somebody_may_not_see_counts_for_nothing() {
    let given = production();
    let of_pods = health_as(&given, Some(&["pods"])).unwrap();
    assert_eq!((of_pods.objects, of_pods.health), (1, HealthState::Degraded));
    assert_eq!(of_pods.worst.unwrap().identity.name, "web-h-1", "its owners are not seen");
    let of_services = health_as(&given, Some(&["services"])).unwrap();
    assert_eq!((of_services.objects, of_services.worst), (1, None));
    let narrow = health_as(&given, Some(&["deployments.apps"])).unwrap();
    assert!(!narrow.worst.unwrap().health.message.contains("ImagePullBackOff"), "pods are not seen");

    let nothing = Rights::of([]).seeing([PROJECT]);
    given.look_as(&nothing, |view| {
        let found = &list_health(&ListEnvironmentHealth::default(), view).unwrap().items[0];
        assert_eq!((found.objects, found.counts.len(), &found.worst), (0, 0, &None));
        assert!(found.hidden.is_some() && found.stale.is_none());
    });
    let all = || usable(AGENT, UserAccessAs::Agent, Narrowing::default());
    given.look_as(&Rights::of([all()]).seeing([BANK]), |view| {
        assert!(list_health(&ListEnvironmentHealth::default(), view).unwrap().items.is_empty());
        assert!(tiers(&ShowTiers::default(), view).unwrap().tiers.is_empty());
        let environment = EnvironmentId::derive(PROJECT, "production");
        let refused =
            environment_tree(&ShowEnvironmentTree { environment, at: None, todays_rules: false }, view)
                .unwrap_err();
        assert_eq!(refused.kind, RefusalKind::NotFound);
    });
}

#[test]
fn the_roll_up_goes_with_each_change() {
    let mut given = production();
    given.says(vec![gone(&deployment()), gone(&replica_set()), gone(&failing("web-h-1"))]);
    let found = health(&given);
    assert_eq!((found.objects, &found.worst), (4, &None));
    assert!(found.health <= HealthState::Healthy, "{found:?}");
    given.environments(vec![environment(PROJECT, "production", "nowhere", Grouping::Namespace)]);
    let empty = health(&given);
    assert_eq!((empty.objects, empty.health, empty.counts.len()), (0, HealthState::None, 0));
}

#[test]
fn the_tree_of_an_environment_has_the_worst_at_the_top_and_no_events() {
    let given = production();
    let environment = EnvironmentId::derive(PROJECT, "production");
    let found = given
        .look(|view| {
            environment_tree(&ShowEnvironmentTree { environment, at: None, todays_rules: false }, view)
        })
        .unwrap();
    let nodes: Vec<String> = found
        .nodes
        .iter()
        .map(|node| {
            let parent = node.parent.map(|at| found.nodes[at as usize].object.identity.name.clone());
            format!("{} below {}", node.object.identity.name, parent.unwrap_or_default())
        })
        .collect();
    assert_eq!(nodes[0], "web below ");
    assert!(
        nodes.contains(&"web-h below web".to_owned()) && nodes.contains(&"web-h-1 below web-h".to_owned())
    );
    assert_eq!((nodes.len(), found.left_out), (6, 0), "{nodes:?}");
    assert_eq!(found.health.health, HealthState::Degraded);
}

#[test]
fn a_tree_is_bounded_and_says_how_many_are_left_out() {
    let mut given = Given::agents();
    given.environments(vec![environment(PROJECT, "production", "shop", Grouping::Namespace)]);
    let many = ShowTree::NODES + 9;
    given.says((0..many).map(|number| seen(&config(&format!("shop/c{number}"), json!({})))).collect());
    let environment = EnvironmentId::derive(PROJECT, "production");
    let found = given
        .look(|view| {
            environment_tree(&ShowEnvironmentTree { environment, at: None, todays_rules: false }, view)
        })
        .unwrap();
    assert_eq!((found.nodes.len(), found.left_out), (ShowTree::NODES, 9));
}

#[test]
fn tiers_count_their_environments_by_how_they_are_and_leave_out_stopped_ones() {
    let mut given = production();
    let namespace = |name, namespace| environment(PROJECT, name, namespace, Grouping::Namespace);
    let mut stopped = namespace("review/old", "bank");
    stopped.state = EnvironmentState::Stopped;
    let mut quiet = namespace("quiet", "bank");
    quiet.tier = Tier::Production;
    given.environments(vec![
        namespace("production", "shop"),
        quiet,
        namespace("review/new", "nowhere"),
        stopped,
    ]);
    let found = given.look(|view| tiers(&ShowTiers::default(), view)).unwrap().tiers;
    let [first, second] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((first.tier, first.environments, first.health), (Tier::Production, 2, HealthState::Degraded));
    let states = [HealthState::None, HealthState::Degraded].map(|state| HealthCount { state, count: 1 });
    assert_eq!(first.counts, states);
    assert_eq!(first.worst.as_ref().unwrap().name, "production");
    assert_eq!((second.tier, second.environments, second.empty), (Tier::Development, 1, 1));
    assert_eq!(second.worst, None);
}

#[test]
fn environments_are_listed_page_by_page() {
    let mut given = Given::agents();
    let names = ["a", "b", "c", "d", "e"];
    given.environments(
        names.iter().map(|name| environment(PROJECT, name, "shop", Grouping::Namespace)).collect(),
    );
    let mut request = ListEnvironmentHealth { limit: PageLimit::new(2), ..ListEnvironmentHealth::default() };
    let mut found = Vec::new();
    loop {
        let page = given.look(|view| list_health(&request, view)).unwrap();
        found.extend(page.items.into_iter().map(|item| item.name));
        let Some(next) = page.next else { break };
        request = request.at(next);
    }
    assert_eq!(found, names);
}
