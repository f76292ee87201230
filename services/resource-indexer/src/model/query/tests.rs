use std::sync::Arc;

use events::grants::UserAccessAs;
use events::observation::{Observation, ObservationBatch, Observed as Word};
use events::pass::Narrowing;
use events::requests::index::{ExplainHealth, FindObjects, ObjectFilter, ShowCoverage};
use events::requests::page::{PageLimit, Paged as _};
use events::{InstanceId, RefusalKind, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::model::given::{
    AGENT, GATEWAY, Given, ORGANIZATION, OTHER, batch, below, config, gone, kind, listed, object, pod, seen,
    usable,
};
use crate::model::{
    ClusterRights, Listable, Rights, verdict_with_judged_pods, verdict_with_pods, workloads_above,
};
use events::requests::index::HealthState;

mod environments;
mod found;
mod mesh;
mod network;

fn named(kind: &str, name: &str) -> ObjectFilter {
    ObjectFilter { kind: Some(kind.to_owned()), name: Some(name.to_owned()), ..ObjectFilter::default() }
}

fn failing(name: &str) -> Value {
    let status = json!({"phase": "Pending", "containerStatuses": [{"name": "web", "ready": false,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]});
    let labels = json!({"app": "web", "pod-template-hash": "h"});
    let body = pod(
        &format!("shop/{name}"),
        json!({"metadata": {"labels": labels}, "spec": {"restartPolicy": "Always"}, "status": status}),
    );
    below(body, "apps/v1", "ReplicaSet", "web-h")
}

fn deployment() -> Value {
    object(
        "apps/v1",
        "Deployment",
        "shop/web",
        json!({"metadata": {"generation": 1}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1}}),
    )
}

fn replica_set() -> Value {
    let body = object(
        "apps/v1",
        "ReplicaSet",
        "shop/web-h",
        json!({"metadata": {"generation": 1}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"observedGeneration": 1, "replicas": 1}}),
    );
    below(body, "apps/v1", "Deployment", "web")
}

/// A Deployment whose pod's image cannot be pulled, behind a Service and an Ingress.
fn shop() -> (Given, Vec<Value>) {
    let service = object(
        "v1",
        "Service",
        "shop/front",
        json!({"spec": {"type": "ClusterIP", "selector": {"app": "web"}}}),
    );
    let ingress = object(
        "networking.k8s.io/v1",
        "Ingress",
        "shop/edge",
        json!({"spec": {"defaultBackend": {"service": {"name": "front"}}}}),
    );
    let bodies = vec![failing("web-h-1"), replica_set(), deployment(), service, ingress];
    let mut given = Given::agents();
    given.says(bodies.iter().map(seen).collect());
    judge(&mut given, &bodies);
    (given, bodies)
}

/// Judges workloads with their pods, as a driver does.
fn judge(given: &mut Given, bodies: &[Value]) {
    let body = |record: &Record| {
        bodies
            .iter()
            .find(|body| crate::model::given::uid(body) == record.uid.to_string())
            .cloned()
            .map(Arc::new)
    };
    let (now, index) = (given.now(), &mut given.fold.index);
    let all: Vec<_> =
        bodies.iter().filter_map(|body| index.by_uid(AGENT, &crate::model::given::uid(body))).collect();
    for slot in workloads_above(index, all) {
        let verdict = verdict_with_pods(index, slot, now, &body);
        assert_eq!(verdict_with_judged_pods(index, slot, now, &body), verdict);
        index.judge_with_pods(slot, verdict);
    }
}

/// A tree, each node behind as many dots as it is deep.
fn drawn(given: &Given, filter: ObjectFilter) -> Vec<String> {
    let tree = given.look(|view| tree(&ShowTree { filter, at: None, todays_rules: false }, view)).unwrap();
    let depth = |mut at: usize| {
        let mut depth = 0;
        while let Some(parent) = tree.nodes[at].parent {
            (at, depth) = (parent as usize, depth + 1);
        }
        depth
    };
    let nodes = tree.nodes.iter().enumerate().map(|(at, node)| {
        let how = node.relation.as_ref().map(|how| format!("{how} ")).unwrap_or_default();
        format!("{}{how}{}", ".".repeat(depth(at)), node.object.identity.name)
    });
    nodes.collect()
}

fn chains(given: &Given, filter: ObjectFilter) -> Vec<Vec<String>> {
    let explained =
        given.look(|view| explain(&ExplainHealth { filter, at: None, todays_rules: false }, view)).unwrap();
    let line = |object: &events::requests::index::IndexedObject| {
        format!("{} {:?} {}", object.identity.name, object.health.state, object.health.message)
    };
    explained.chains.iter().map(|chain| chain.iter().map(line).collect()).collect()
}

#[test]
fn the_tree_goes_by_controllers_and_then_by_the_relations_of_workloads() {
    let (given, _) = shop();
    assert_eq!(drawn(&given, named("deploy", "web")), ["web", ".controls web-h", "..controls web-h-1"]);
    let from_outside = ["edge", ".routes-to front", "..selects web-h-1"];
    assert_eq!(drawn(&given, named("ingress", "edge")), from_outside);
    let all = ObjectFilter { namespace: Some("shop".to_owned()), ..ObjectFilter::default() };
    let roots = ["front", "web", "edge", ".controls web-h"];
    let drawn = drawn(&given, all);
    assert!(roots.iter().all(|root| drawn.iter().any(|node| node == root)), "{drawn:?}");
    assert_eq!(drawn.len(), 5, "each object stands in it once: {drawn:?}");
}

#[test]
fn owners_in_a_ring_are_shown_once_each() {
    let mut given = Given::agents();
    let one = below(config("shop/one", json!({})), "v1", "ConfigMap", "two");
    let two = below(config("shop/two", json!({})), "v1", "ConfigMap", "one");
    let own = below(config("shop/self", json!({})), "v1", "ConfigMap", "self");
    given.says(vec![seen(&one), seen(&two), seen(&own)]);
    assert_eq!(drawn(&given, named("cm", "one")), ["one", ".controls two"]);
    assert_eq!(drawn(&given, named("cm", "self")), ["self"]);
    let all = ObjectFilter { kind: Some("cm".to_owned()), ..ObjectFilter::default() };
    assert_eq!(drawn(&given, all.clone()).len(), 3);
    assert_eq!(chains(&given, all).len(), 3);
}

#[test]
fn why_leads_from_the_deployment_to_the_container_that_cannot_start() {
    let (given, _) = shop();
    let found = chains(&given, named("deploy", "web"));
    let [chain] = found.as_slice() else { panic!("{found:?}") };
    let names: Vec<&str> = chain.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["web", "web-h", "web-h-1"]);
    assert!(chain.iter().all(|line| line.contains("Degraded")), "{chain:?}");
    assert!(chain[0].contains("pod web-h-1") && chain[2].contains("ImagePullBackOff"), "{chain:?}");
}

#[test]
fn why_of_a_service_or_an_ingress_leads_to_the_pods_behind_it() {
    let (given, _) = shop();
    for root in ["svc", "ingress"] {
        let name = if root == "svc" { "front" } else { "edge" };
        let found = chains(&given, named(root, name));
        assert!(found[0].last().unwrap().starts_with("web-h-1 Degraded"), "{found:?}");
    }
}

#[test]
fn an_object_that_is_well_stands_alone() {
    let mut given = Given::agents();
    given.says(vec![seen(&config("shop/a", json!({})))]);
    assert_eq!(chains(&given, named("cm", "a")), [["a None "]]);
}

#[test]
fn a_workload_is_well_again_once_its_pod_is_gone() {
    let (mut given, bodies) = shop();
    given.says(vec![gone(&bodies[0])]);
    judge(&mut given, &bodies);
    assert!(chains(&given, named("deploy", "web"))[0][0].starts_with("web Progressing"));
}

#[test]
fn who_may_not_see_pods_hears_nothing_of_them_also_not_by_a_workloads_reason() {
    let (given, _) = shop();
    let narrowing = Narrowing { resources: vec!["*.apps".to_owned()], ..Narrowing::default() };
    let rights = Rights::of([usable(AGENT, UserAccessAs::Agent, narrowing)]);
    given.look_as(&rights, |view| {
        let explained =
            explain(&ExplainHealth { filter: named("deploy", "web"), at: None, todays_rules: false }, view)
                .unwrap();
        let text = format!("{explained:?}");
        assert!(!text.contains("web-h-1") && !text.contains("ImagePullBackOff"), "{text}");
        let record = one(&named("deploy", "web"), view).unwrap();
        assert_eq!(view.line(record).health.state, HealthState::Progressing);
        let shown =
            tree(&ShowTree { filter: named("deploy", "web"), at: None, todays_rules: false }, view).unwrap();
        assert_eq!((shown.nodes.len(), shown.left_out), (2, 0));
        assert_eq!(coverage(&ShowCoverage::default(), view).unwrap().agents[0].objects, 2);
        for unseen in [named("svc", "front"), named("pods", "web-h-1")] {
            assert_eq!(one(&unseen, view).unwrap_err().kind, RefusalKind::NotFound);
        }
    });
}

#[test]
fn a_stranger_finds_nothing_in_any_answer() {
    let (given, _) = shop();
    let nobody = Rights::default();
    let as_themselves = Rights::of([usable(AGENT, UserAccessAs::User, Narrowing::default())]);
    let nothing = ClusterRights::Known(Arc::new(Listable::default()));
    let without_rights = as_themselves.with([(AGENT, nothing)]);
    for rights in [nobody, as_themselves, without_rights] {
        given.look_as(&rights, |view| {
            let filters = [
                ObjectFilter::default(),
                named("deploy", "web"),
                ObjectFilter { agent: Some("edge".to_owned()), ..ObjectFilter::default() },
                ObjectFilter { agent: Some(AGENT.to_string()), ..ObjectFilter::default() },
                ObjectFilter { health: vec![HealthState::Degraded], ..ObjectFilter::default() },
                ObjectFilter { text: Some("image".to_owned()), ..ObjectFilter::default() },
                ObjectFilter { labels: Some("app=web".to_owned()), ..ObjectFilter::default() },
            ];
            let mut said = format!("{:?}", coverage(&ShowCoverage::default(), view));
            for filter in filters {
                let find_all = FindObjects { filter: filter.clone(), ..FindObjects::default() };
                said += &format!("{:?}", find(&find_all, view));
                said += &format!(
                    "{:?}",
                    tree(&ShowTree { filter: filter.clone(), at: None, todays_rules: false }, view)
                );
                said += &format!(
                    "{:?}",
                    explain(&ExplainHealth { filter: filter.clone(), at: None, todays_rules: false }, view)
                );
                said += &format!("{:?}", one(&filter, view).map(|record| view.line(record)));
            }
            for secret in ["web-h", "uid-front", "ImagePull", "objects: 5"] {
                assert!(!said.contains(secret), "{secret} in {said}");
            }
        });
    }
}

#[test]
fn pages_follow_each_other_also_when_objects_come_and_go_between_them() {
    let mut given = Given::agents();
    let bodies: Vec<_> = (0..10).map(|number| config(&format!("shop/c{number}"), json!({}))).collect();
    given.says(bodies.iter().map(seen).collect());
    let request = FindObjects { limit: PageLimit::new(4), ..FindObjects::default() };
    let names = |page: &events::requests::page::Page<events::requests::index::IndexedObject>| -> Vec<String> {
        page.items.iter().map(|object| object.identity.name.clone()).collect()
    };
    let first = given.look(|view| find(&request, view)).unwrap();
    assert_eq!(names(&first), ["c0", "c1", "c2", "c3"]);
    given.says(vec![gone(&bodies[3]), gone(&bodies[5]), seen(&config("shop/c00", json!({})))]);
    let second = given.look(|view| find(&request.clone().at(first.next.unwrap()), view)).unwrap();
    assert_eq!(names(&second), ["c4", "c6", "c7", "c8"]);
    let last = given.look(|view| find(&request.clone().at(second.next.unwrap()), view)).unwrap();
    assert_eq!((names(&last), last.next), (vec!["c9".to_owned()], None));
}

#[test]
fn several_objects_are_named_where_one_is_meant() {
    let mut given = Given::agents();
    let again = config("bank/a", json!({"metadata": {"uid": "uid-bank"}}));
    given.says(vec![seen(&config("shop/a", json!({}))), seen(&again)]);
    let refusal = given.look(|view| one(&named("cm", "a"), view).map(|_| ()).unwrap_err());
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    assert!(refusal.message.contains("ConfigMap bank/a in shop/front:edge"), "{}", refusal.message);
    assert!(refusal.message.contains("ConfigMap shop/a"), "{}", refusal.message);
    let refusal = given.look(|view| one(&named("cm", "b"), view).map(|_| ()).unwrap_err());
    assert_eq!(refusal.kind, RefusalKind::NotFound);
    assert!(drawn(&given, named("cm", "b")).is_empty() && chains(&given, named("cm", "b")).is_empty());
}

#[test]
fn too_many_roots_are_refused() {
    let mut given = Given::agents();
    let bodies: Vec<_> = (0..101).map(|number| config(&format!("shop/c{number}"), json!({}))).collect();
    given.says(bodies.iter().map(seen).collect());
    let all = ShowTree { filter: ObjectFilter::default(), at: None, todays_rules: false };
    let refusal = given.look(|view| tree(&all, view)).unwrap_err();
    assert!(refusal.message.contains("more than 100 objects match"), "{}", refusal.message);
}

#[test]
fn a_large_tree_is_cut_and_says_how_much_is_left_out() {
    let mut given = Given::agents();
    given.says(vec![seen(&object("apps/v1", "ReplicaSet", "shop/web", json!({})))]);
    for chunk in 0..5 {
        let pods = (0..500).map(|number| pod(&format!("shop/p{chunk}-{number}"), json!({})));
        given.says(pods.map(|pod| seen(&below(pod, "apps/v1", "ReplicaSet", "web"))).collect());
    }
    let request = ShowTree { filter: named("rs", "web"), at: None, todays_rules: false };
    let tree = given.look(|view| tree(&request, view)).unwrap();
    assert_eq!((tree.nodes.len(), tree.left_out), (ShowTree::NODES, 501));
}

#[test]
fn related_objects_are_told_with_their_direction_also_those_that_are_not_there() {
    let mut given = Given::agents();
    let user = pod(
        "shop/p",
        json!({"spec": {"serviceAccountName": "sa", "volumes": [{"configMap": {"name": "settings"}}]}}),
    );
    given.says(vec![seen(&user), seen(&config("shop/settings", json!({})))]);
    let told = |kind: &str, name: &str| -> Vec<String> {
        given.look(|view| {
            let record = one(&named(kind, name), view).unwrap();
            let told = related(view, record).into_iter().map(|related| {
                let direction = if related.inwards { "from" } else { "to" };
                format!("{} {direction} {} {:?}", related.relation, related.key, related.uid)
            });
            told.collect()
        })
    };
    let expected = [
        "mounts to ConfigMap shop/settings Some(\"uid-settings\")",
        "runs-as to ServiceAccount shop/sa None",
    ];
    assert_eq!(told("pod", "p"), expected);
    assert_eq!(told("cm", "settings"), ["mounts from Pod shop/p Some(\"uid-p\")"]);
}

#[test]
fn what_may_be_out_of_date_says_why() {
    let mut given = Given::agents();
    given.says(vec![seen(&config("shop/a", json!({}))), listed(kind("", "ConfigMap", "configmaps", ""), 1)]);
    let stale = |given: &Given| given.look(|view| view.line(one(&named("cm", "a"), view).unwrap()).stale);
    assert!(stale(&given).unwrap().contains("not known"));
    let tunnel = |first: u64, what: Word| ObservationBatch {
        organization: ORGANIZATION,
        writer: ObservationBatch::gateway_writer(GATEWAY),
        epoch: 0,
        first,
        observations: vec![Observation { at: Timestamp(5_000), what }],
    };
    let instance = InstanceId(Uuid::from_u128(77));
    let opened = Word::TunnelOpened { agent: AGENT, instance, version: "1".to_owned() };
    given.tunnels.apply(GATEWAY, &tunnel(1, opened.clone()));
    given.tunnels.apply(GATEWAY, &tunnel(1, opened));
    assert_eq!(stale(&given), None);
    let blind = Word::KindBlind {
        of: kind("", "ConfigMap", "configmaps", ""),
        reason: "forbidden".to_owned(),
        missing: None,
    };
    given.says(vec![blind]);
    assert!(stale(&given).unwrap().contains("does not see this kind: forbidden"));
    let told = given.look(|view| coverage(&ShowCoverage::default(), view)).unwrap();
    let [core, edge] = [OTHER, AGENT].map(|agent| told.agents.iter().find(|of| of.agent == agent).unwrap());
    assert_eq!((edge.objects, edge.kinds, edge.blind_count, edge.stale.clone()), (1, 1, 1, None));
    assert_eq!(edge.blind[0].resource, "configmaps");
    assert!(core.stale.is_some() && core.objects == 0);
    let in_shop = kind("", "ConfigMap", "configmaps", "shop");
    given.says(vec![listed(in_shop, 1)]);
    assert_eq!(stale(&given), None, "in this namespace it is seen");
    given.apply(AGENT, batch(AGENT, 2, 1, vec![Word::Gap { dropped: 0 }]));
    assert!(stale(&given).unwrap().contains("begun anew"));
    given.apply(AGENT, batch(AGENT, 2, 2, vec![seen(&config("shop/a", json!({})))]));
    assert_eq!(stale(&given), None);
    let closed = Word::TunnelClosed { agent: AGENT, instance, reason: "gone".to_owned() };
    given.tunnels.apply(GATEWAY, &tunnel(2, closed));
    assert!(stale(&given).unwrap().contains("not connected since 1970"), "it was opened once");
}

fn related_to(given: &Given, rights: Option<&Rights>, filter: ObjectFilter) -> Vec<String> {
    let told = |view: &View<'_>| {
        let record = one(&filter, view).unwrap();
        let told = related(view, record).into_iter();
        told.map(|related| format!("{} {:?} {}", related.key, related.uid, related.missing)).collect()
    };
    match rights {
        Some(rights) => given.look_as(rights, told),
        None => given.look(told),
    }
}

#[test]
fn what_is_only_not_seen_is_not_said_to_be_missing() {
    let mut given = Given::agents();
    let mounting = json!({"spec": {"volumes": [{"configMap": {"name": "settings"}}]}});
    given.says(vec![seen(&below(pod("shop/p", mounting), "v1", "Node", "one"))]);
    let settings = |given: &Given, rights: Option<&Rights>| {
        let told = related_to(given, rights, named("pod", "p"));
        assert!(told.iter().any(|line| line.starts_with("Node one None")), "in no namespace: {told:?}");
        told.into_iter().find(|line| line.contains("settings")).unwrap()
    };
    assert_eq!(settings(&given, None), "ConfigMap shop/settings None false", "the kind is not listed");
    given.says(vec![listed(kind("", "ConfigMap", "configmaps", ""), 1)]);
    assert_eq!(settings(&given, None), "ConfigMap shop/settings None true");
    let narrowing = Narrowing { resources: vec!["pods".to_owned()], ..Narrowing::default() };
    let rights = Rights::of([usable(AGENT, UserAccessAs::Agent, narrowing)]);
    assert_eq!(settings(&given, Some(&rights)), "ConfigMap shop/settings None false", "it may be hidden");
}

#[test]
fn coverage_tells_nothing_of_namespaces_that_the_asker_may_not_see_and_is_limited() {
    let mut given = Given::agents();
    let blind = |namespace: &str, resource: &str| Word::KindBlind {
        of: kind("", if resource == "pods" { "Pod" } else { "Secret" }, resource, namespace),
        reason: format!("forbidden in {namespace}"),
        missing: None,
    };
    given.says(vec![
        blind("shop", "pods"),
        blind("hidden", "pods"),
        blind("", "secrets"),
        listed(kind("", "ConfigMap", "configmaps", "shop"), 1),
        listed(kind("", "ConfigMap", "configmaps", "hidden"), 1),
    ]);
    let all = given.look(|view| coverage(&ShowCoverage::default(), view)).unwrap();
    let edge = |all: &events::requests::index::Coverage| {
        all.agents.iter().find(|of| of.agent == AGENT).unwrap().clone()
    };
    assert_eq!((edge(&all).kinds, edge(&all).blind_count, edge(&all).blind.len()), (2, 3, 3));
    let narrowing = Narrowing { namespaces: vec!["shop".to_owned()], ..Narrowing::default() };
    let rights = Rights::of([usable(AGENT, UserAccessAs::Agent, narrowing)]);
    let told = given.look_as(&rights, |view| coverage(&ShowCoverage::default(), view)).unwrap();
    assert_eq!((edge(&told).kinds, edge(&told).blind_count), (1, 2), "also what is so of all namespaces");
    assert!(!format!("{told:?}").contains("hidden"), "{told:?}");
    let brief = ShowCoverage { agent: Some("edge".to_owned()), brief: true, fresh: false };
    let told = given.look(|view| coverage(&brief, view)).unwrap();
    assert_eq!((told.agents.len(), edge(&told).blind_count, edge(&told).blind.len()), (1, 3, 0));
    let unknown = ShowCoverage { agent: Some("nobody".to_owned()), brief: true, fresh: false };
    assert_eq!(given.look(|view| coverage(&unknown, view)).unwrap_err().kind, RefusalKind::NotFound);
    let as_themselves = Rights::of([usable(AGENT, UserAccessAs::User, Narrowing::default())]);
    let told = given.look_as(&as_themselves, |view| coverage(&brief, view)).unwrap();
    assert_eq!(edge(&told).rights_unknown.unwrap(), "its cluster was not asked");
    assert_eq!((edge(&told).kinds, edge(&told).blind_count, edge(&told).heard_at), (0, 0, Timestamp(0)));
}
