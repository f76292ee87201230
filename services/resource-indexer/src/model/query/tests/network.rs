//! Which objects send traffic to which, and what can be done with an object.

use std::collections::BTreeSet;

use events::Event;
use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, DeclaredAction, HealthSettings, Mode,
    ObjectPatch, ObserveRules, ResourceRules,
};
use events::grants::Grants;
use events::requests::index::{Network, NetworkNode, ShowNetwork};

use super::*;
use crate::model::given::DECIDED;

fn web(name: &str) -> Value {
    let spec = json!({"containers": [{"name": "web"}, {"name": "istio-proxy"}]});
    let pod = pod(&format!("shop/{name}"), json!({"metadata": {"labels": {"app": "web"}}, "spec": spec}));
    below(pod, "apps/v1", "ReplicaSet", "web-1")
}

fn shop() -> Vec<Value> {
    let backend = |name: &str| json!({"backend": {"service": {"name": name}}});
    let paths = json!([backend("web"), backend("gone")]);
    vec![
        object(
            "networking.k8s.io/v1",
            "Ingress",
            "shop/site",
            json!({"spec": {"rules": [{"http": {"paths": paths}}]}}),
        ),
        object("gateway.networking.k8s.io/v1", "Gateway", "edge/front", json!({})),
        object(
            "gateway.networking.k8s.io/v1",
            "HTTPRoute",
            "shop/api",
            json!({"spec": {"parentRefs": [{"name": "front", "namespace": "edge"}], "rules": [{"backendRefs": [{"name": "web"}]}]}}),
        ),
        object("v1", "Service", "shop/web", json!({"spec": {"selector": {"app": "web"}}})),
        object("apps/v1", "Deployment", "shop/web", json!({"metadata": {"uid": "uid-web-deployment"}})),
        {
            let mut set = below(
                object("apps/v1", "ReplicaSet", "shop/web-1", json!({})),
                "apps/v1",
                "Deployment",
                "web",
            );
            set["metadata"]["ownerReferences"][0]["uid"] = json!("uid-web-deployment");
            set
        },
        web("web-1-a"),
        web("web-1-b"),
        object(
            "security.istio.io/v1",
            "PeerAuthentication",
            "shop/all",
            json!({"spec": {"mtls": {"mode": "STRICT"}}}),
        ),
        config("shop/settings", json!({})),
    ]
}

fn asked(given: &Given, namespace: &str) -> Network {
    let filter = ObjectFilter { namespace: Some(namespace.to_owned()), ..ObjectFilter::default() };
    given.look(|view| network(&ShowNetwork { filter: filter.clone(), at: None }, view).unwrap())
}

fn node<'n>(network: &'n Network, name: &str, kind: &str) -> &'n NetworkNode {
    network.nodes.iter().find(|node| node.key.name == name && node.key.kind == kind).unwrap()
}

fn edges(network: &Network) -> BTreeSet<String> {
    let name = |place: u32| {
        let key = &network.nodes[usize::try_from(place).unwrap()].key;
        format!("{} {}", key.kind, key.name)
    };
    network
        .edges
        .iter()
        .map(|edge| format!("{} {} {}", name(edge.from), edge.relation, name(edge.to)))
        .collect()
}

#[test]
fn traffic_is_followed_from_what_lets_it_in_to_workloads_whose_pods_are_folded() {
    let mut given = Given::agents();
    given.says(shop().iter().map(seen).collect());
    let network = asked(&given, "shop");
    let expected = [
        "Gateway front serves HTTPRoute api",
        "HTTPRoute api routes-to Service web",
        "Ingress site routes-to Service gone",
        "Ingress site routes-to Service web",
        "PeerAuthentication all protects Deployment web",
        "Service web selects Deployment web",
    ];
    assert_eq!(edges(&network), expected.map(str::to_owned).into());
    let workload = node(&network, "web", "Deployment");
    assert_eq!((workload.pods, workload.mesh.as_ref().unwrap().mtls.as_str()), (Some(2), "strict"));
    assert!(node(&network, "front", "Gateway").beside, "it is of another namespace");
    let gone = node(&network, "gone", "Service");
    assert!(
        gone.object.is_none() && !gone.missing,
        "whether it is there is not known before its kind is listed"
    );
    given.says(vec![listed(kind("", "Service", "services", ""), 1)]);
    assert!(node(&asked(&given, "shop"), "gone", "Service").missing);
    assert_eq!(edges(&asked(&given, "edge")), ["Gateway front serves HTTPRoute api".to_owned()].into());
}

#[test]
fn a_network_that_is_too_large_is_cut_and_says_so() {
    let mut given = Given::agents();
    let count = ShowNetwork::NODES + 7;
    let services = (0..count).map(|number| object("v1", "Service", &format!("shop/s{number:04}"), json!({})));
    let mut all: Vec<Value> = services.collect();
    all.push(object(
        "networking.k8s.io/v1",
        "Ingress",
        "shop/site",
        json!({"spec": {"defaultBackend": {"service": {"name": format!("s{:04}", count - 1)}}}}),
    ));
    given.says(all.iter().map(seen).collect());
    let network = asked(&given, "shop");
    assert_eq!((network.nodes.len(), network.left_out), (ShowNetwork::NODES, 8));
    assert_eq!((network.edges.len(), network.edges_left_out), (1, 0), "what has an edge is not cut");
}

#[test]
fn a_user_who_may_not_see_pods_sees_no_workload_by_them() {
    let mut given = Given::agents();
    given.says(shop().iter().map(seen).collect());
    let narrowing = Narrowing { resources: vec!["services".to_owned()], ..Narrowing::default() };
    let rights = Rights::of([usable(AGENT, UserAccessAs::Agent, narrowing)]);
    let filter = ObjectFilter { namespace: Some("shop".to_owned()), ..ObjectFilter::default() };
    let seen = given
        .look_as(&rights, |view| network(&ShowNetwork { filter: filter.clone(), at: None }, view).unwrap());
    let kinds: Vec<&str> = seen.nodes.iter().map(|node| node.key.kind.as_str()).collect();
    assert_eq!((kinds, seen.edges.len()), (vec!["Service"], 0));
}

#[test]
fn actions_are_those_of_the_agents_configuration_beside_the_built_in_ones() {
    let mut given = Given::agents();
    let cron_job = object("batch/v1", "CronJob", "shop/nightly", json!({"spec": {"suspend": false}}));
    given.says(vec![seen(&cron_job), listed(kind("batch", "CronJob", "cronjobs", ""), 1)]);
    let offered = |given: &Given, body: &Value| -> Vec<(String, bool, String)> {
        let of = given.look(|view| actions(view, one(&named("cj", "nightly"), view).unwrap()));
        let offered = of.offered(body.clone(), Timestamp(0)).into_iter();
        offered.map(|action| (action.name, action.declared, action.resource)).collect()
    };
    let suspend = |declared| ("suspend".to_owned(), declared, "cronjobs".to_owned());
    assert_eq!(offered(&given, &cron_job), [suspend(false)]);
    let own = DeclaredAction {
        name: "suspend".to_owned(),
        group: "batch".to_owned(),
        kind: "CronJob".to_owned(),
        text: "Ours.".to_owned(),
        when: None,
        patch: ObjectPatch::Merge(json!({"spec": {"suspend": true}})),
        subresource: None,
    };
    let configuration = AgentConfiguration {
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        relations: Vec::new(),
        actions: vec![own],
        sources: Vec::new(),
        lockdown: false,
        grants: Grants::default(),
        implicit_rights: false,
    };
    let changed =
        ConfigurationChanged { agent: AGENT, commit: "c".to_owned(), configuration, warnings: Vec::new() };
    let event = Event::from(ConfigurationEvent::ConfigurationChanged(changed));
    let decided = given.directory.apply((ORGANIZATION, DECIDED), [event]);
    assert!(decided.declared.is_empty(), "nothing is judged or related otherwise");
    assert_eq!(offered(&given, &cron_job), [suspend(true)], "it stands for the built-in one");
}
